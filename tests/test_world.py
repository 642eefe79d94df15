"""A world: one reward per agent or none at all, and the state that the outermost remembering layer shows."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, Tuple

from epymarl_fairtest.core.episodes import random_tests
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.engine.contract import ActionRule
from epymarl_fairtest.engine.lockstep import Lockstep
from epymarl_fairtest.engine.twin import Twin
from epymarl_fairtest.host.hosts import Epymarl, PymarlZoo
from epymarl_fairtest.host.tap import Tap, host_world
from epymarl_fairtest.tasks import task_for
from epymarl_fairtest.tasks.contract import Allocation, Array, env_reward
from epymarl_fairtest.tasks.generic.rules import GenericTask
from epymarl_fairtest.tasks.world import World, per_agent

AGENTS, SEES, LIMIT = 3, 4, 5
PAYS: dict[str, Any] = {  # what `step` returns as the reward -> what is said of it
    "a number": (1.0, "pays one reward for the whole team"),
    "an array of no dimension": (np.array(1.0), "pays one reward for the whole team"),
    "one number in a list": ([1.0], r"rewards of the shape \(1,\)"),
    "too few": ([1.0, 0.0], r"rewards of the shape \(2,\)"),
    "too many": ([1.0, 0.0, 0.0, 0.0], r"rewards of the shape \(4,\)"),
    "none": ([], r"rewards of the shape \(0,\)"),
    "a column": (np.ones((AGENTS, 1)), r"rewards of the shape \(3, 1\)"),
    "a row": (np.ones((1, AGENTS)), r"rewards of the shape \(1, 3\)"),
    "a square": (np.ones((AGENTS, AGENTS)), r"rewards of the shape \(3, 3\)"),
}
every_reward = pytest.mark.parametrize("pays", PAYS)


class Walk(gymnasium.Env[Any, Any]):
    """Three agents walk at random; `pays` is what every step pays. It remembers nothing."""

    def __init__(self, pays: Any = (1.0, 2.0, 3.0)) -> None:
        self.pays = pays
        self.action_space = Tuple([Discrete(2)] * AGENTS)
        self.observation_space = Tuple([Box(-9, 9, (SEES,), np.float32)] * AGENTS)

    def _seen(self) -> tuple[Any, ...]:
        return tuple(self.np_random.uniform(-1, 1, (AGENTS, SEES)).astype(np.float32))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        return self._seen(), self.pays, False, False, {}


class Remembering(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A layer as hosts have them: it keeps what it showed last, `plus` something that tells it from others."""

    def __init__(self, env: Any, name: str = "last_obs", plus: float = 0.0) -> None:
        super().__init__(env)
        self._name, self._plus = name, plus
        setattr(self, name, None)

    def _kept(self, seen: Any) -> Any:
        shown = tuple(one + np.float32(self._plus) for one in seen)
        setattr(self, self._name, shown)
        return shown

    def reset(self, **given: Any) -> Any:
        seen, info = self.env.reset(**given)
        return self._kept(seen), info

    def step(self, action: Any) -> Any:
        seen, *rest = self.env.step(action)
        return (self._kept(seen), *rest)


def twice(state: Array, reward: Array) -> Array:
    """An allocation that is not the environment's own."""
    return 2 * reward


def world_of(env: Any, allocation: Allocation = env_reward) -> World:
    return World(env, task_for(env), allocation, obs_size=SEES, limit=LIMIT)


def inside(host: Any, env: Any) -> World:
    """The same environment as a host would hand it over."""
    return host_world(SimpleNamespace(_env=env, get_obs_size=lambda: SEES), task_for(env), host, "env")


class Idle:
    """A team that does nothing."""

    n_agents, n_actions, obs_size, hidden_size, reading, thread_safe = AGENTS, 2, SEES, 0, "q", True

    def forward(self, obs: Any, last: Any, hidden: Any) -> Any:
        return np.zeros((len(obs), AGENTS, 2), np.float32), hidden


def lockstep(make_env: Any, allocation: Allocation = env_reward) -> Lockstep:
    rule = ActionRule("greedy", 0.0, 1.0, np.ones((AGENTS, 2), bool))
    size = task_for(make_env()).state_size
    return Lockstep(lambda: world_of(make_env(), allocation), Idle(), rule, limit=LIMIT, state_size=size)


STAND = np.zeros(AGENTS, np.int16)

# --- rewards ------------------------------------------------------------------------------------------


@every_reward
@pytest.mark.parametrize("allocation", [env_reward, twice])
def test_a_world_refuses_anything_but_one_reward_per_agent(pays: str, allocation: Allocation) -> None:
    reward, why = PAYS[pays]
    world = world_of(Walk(reward), allocation)
    world.reset(0)
    with pytest.raises(FairTestError, match=why) as caught:
        world.step(STAND)
    assert "one reward per agent" in str(caught.value) or "one number for each of its 3 agents" in str(caught.value)
    assert "Walk" in str(caught.value)


@every_reward
def test_a_batch_in_lockstep_refuses_it_too(pays: str) -> None:
    reward, why = PAYS[pays]
    tests = random_tests(5, AGENTS * SEES, np.random.default_rng(0))
    with pytest.raises(FairTestError, match=why):
        lockstep(lambda: Walk(reward)).execute(tests)


@every_reward
@pytest.mark.parametrize("host", [Epymarl(), PymarlZoo()], ids=lambda host: host.name)
def test_a_world_inside_a_host_refuses_it_and_a_tap_tells_it(pays: str, host: Any) -> None:
    """Training must not end for want of our sample, so a tap only keeps the reason."""
    reward, why = PAYS[pays]
    world = inside(host, Walk(reward))
    world.reset(0)
    with pytest.raises(FairTestError, match=why):
        world.step(STAND)
    env = Walk(reward)
    tap = Tap(env, task_for(env), env_reward)
    tap.reset(seed=0)
    tap.recorded = []
    assert tap.step(STAND.tolist())[1] is reward
    (told,) = tap.recorded
    assert isinstance(told, str)
    assert re.search(why, told)


@pytest.mark.parametrize("reward", [[1, 2, 3], (1.0, 2.0, 3.0), np.array([1, 2, 3], np.float32)])
def test_one_reward_per_agent_is_taken_in_any_form(reward: Any) -> None:
    paid = per_agent(reward, Walk(), AGENTS)
    assert paid.dtype == np.float64
    assert paid.tolist() == [1.0, 2.0, 3.0]
    for allocation, expected in ((env_reward, [1.0, 2.0, 3.0]), (twice, [2.0, 4.0, 6.0])):
        world = world_of(Walk(reward), allocation)
        world.reset(0)
        world.step(STAND)
        assert world.reward.tolist() == expected
        episodes = lockstep(lambda: Walk(reward), allocation).execute(
            random_tests(5, AGENTS * SEES, np.random.default_rng(0))
        )
        assert (episodes.rewards == np.array(expected)).all()


class Bare:
    """A world of one's own, as an engine may be given: whatever it pays is handed on."""

    def __init__(self, pays: Any) -> None:
        self.reward, self.done, self.obs = pays, False, np.zeros((AGENTS, SEES), np.float32)

    def reset(self, seed: int) -> None: ...

    def step(self, actions: Any) -> None: ...

    def state(self) -> Array:
        return np.zeros(0)


def bare(pays: Any) -> Lockstep:
    rule = ActionRule("greedy", 0.0, 1.0, np.ones((AGENTS, 2), bool))
    return Lockstep(lambda: Bare(pays), Idle(), rule, limit=LIMIT, state_size=0)  # type: ignore[arg-type,return-value]


@every_reward
@pytest.mark.parametrize("batch", [1, AGENTS, 5])
def test_a_bare_world_that_pays_anything_but_one_reward_per_agent_is_refused(pays: str, batch: int) -> None:
    """In a batch of three, agent j of three would receive what world j paid."""
    with pytest.raises(FairTestError, match=r"one number for each of the 3 agents, the shape \(3,\)"):
        bare(PAYS[pays][0]).execute(random_tests(batch, 0, np.random.default_rng(0)))
    paid = bare([1.0, 2.0, 3.0]).execute(random_tests(batch, 0, np.random.default_rng(0)))
    assert (paid.rewards == [1.0, 2.0, 3.0]).all()


class Wild(Walk):
    """Pays agent 1 something odd at step 2 of the episode of one seed."""

    def __init__(self, value: float, seed: int) -> None:
        super().__init__()
        self._value, self._odd_seed = value, seed

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._odd, self._step = seed == self._odd_seed, 0
        return super().reset(seed=seed)

    def step(self, action: Any) -> Any:
        self._step += 1
        self.pays = (1.0, self._value if self._odd and self._step == 3 else 2.0, 3.0)
        return super().step(action)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e308, -1e200])
def test_a_reward_that_cannot_be_judged_is_an_error_that_names_seed_step_and_agent(value: float) -> None:
    tests = random_tests(4, AGENTS * SEES, np.random.default_rng(0))
    seed = int(tests.root_seed[2])
    with pytest.raises(FairTestError, match=f"seed {seed}, step 2, agent 1") as caught:
        lockstep(lambda: Wild(value, seed)).execute(tests)
    assert str(value) in str(caught.value)
    assert len(lockstep(lambda: Wild(-1e99, seed)).execute(tests)) == 4


class WildKernel:
    """A twin of such an environment."""

    def __init__(self, value: float, seed: int) -> None:
        self._value, self._seed = value, seed

    def reset(self, seeds: Any, states: Any) -> None:
        states[:, 0] = seeds

    def observe(self, states: Any, running: Any, seen: Any) -> None:
        seen[:] = 0

    def step(self, states: Any, running: Any, actions: Any, rewards: Any, over: Any, steps: Any) -> None:
        rewards[:] = 1.0
        rewards[(states[:, 0] == self._seed) & (steps == 2), 1] = self._value


@pytest.mark.parametrize("value", [np.nan, -np.inf, 1e308])
def test_the_twin_engine_names_seed_step_and_agent_too(value: float) -> None:
    tests = random_tests(4, 1, np.random.default_rng(0))
    seed = int(tests.root_seed[2])
    rule = ActionRule("greedy", 0.0, 1.0, np.ones((AGENTS, 2), bool))
    with pytest.raises(FairTestError, match=f"seed {seed}, step 2, agent 1"):
        Twin(WildKernel(value, seed), Idle(), rule, limit=LIMIT, state_size=1).execute(tests)


# --- states -------------------------------------------------------------------------------------------


def flat_state(world: World) -> list[float]:
    return world.obs.astype(np.float64).ravel().tolist()


@pytest.mark.parametrize("name", ["last_obs", "_obs"])
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_the_state_of_a_generic_world_is_what_the_outermost_remembering_layer_shows(name: str, layers: int) -> None:
    env: Any = Walk()
    for layer in range(layers):
        env = Remembering(env, name if layer == layers - 1 else "last_obs", plus=float(layer))
    env = gymnasium.wrappers.TimeLimit(env, max_episode_steps=LIMIT)  # a layer that remembers nothing, further out
    for world in (world_of(env), inside(Epymarl(), env), inside(PymarlZoo(), env)):
        assert isinstance(task_for(env), GenericTask)
        world.reset(3)
        shown = [flat_state(world)]
        assert world.state().tolist() == shown[0]
        for _ in range(3):
            world.step(STAND)
            shown.append(flat_state(world))
            assert world.state().tolist() == shown[-1]
        assert len({tuple(state) for state in shown}) == 4, "something moves"
        assert np.abs(shown).min() > 0, "nothing is zero for want of knowing"


def test_recorded_states_of_a_generic_environment_are_those_of_its_worlds() -> None:
    episodes = lockstep(lambda: Remembering(Remembering(Walk()), plus=2.0)).execute(
        random_tests(4, AGENTS * SEES, np.random.default_rng(1))
    )
    assert (episodes.length == LIMIT).all()
    seen = episodes.obs.astype(np.float64).reshape(4, LIMIT, -1)
    assert (episodes.states[:, :-1] == seen).all()
    assert (np.abs(episodes.states) > 0).all()


@pytest.mark.parametrize("host", [None, Epymarl(), PymarlZoo()], ids=["bare", "EPyMARL", "PyMARLzoo+"])
def test_without_a_layer_that_remembers_the_state_is_what_the_outermost_one_shows(host: Any) -> None:
    env = gymnasium.wrappers.TimeLimit(Walk(), max_episode_steps=LIMIT)
    world = world_of(env) if host is None else inside(host, env)
    world.reset(0)
    for _ in range(3):
        assert world.state().tolist() == flat_state(world)
        assert np.abs(world.state()).min() > 0
        world.step(STAND)


def test_an_allocation_of_ones_own_gets_that_state_in_a_world_and_in_a_tap() -> None:
    got: list[list[float]] = []

    def allocation(state: Array, reward: Array) -> Array:
        got.append(state.tolist())
        return reward

    world = world_of(Walk(), allocation)
    world.reset(7)
    world.step(STAND)
    tap = Tap(env := Walk(), task_for(env), allocation)
    tap.reset(seed=7)
    tap.step(STAND.tolist())
    assert got == [flat_state(world)] * 2
