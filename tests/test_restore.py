"""Any environment, continued from its middle: its layers are copied, proved, and what does not work is said."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, Tuple
from support import assert_identical

from epymarl_fairtest.commands import main
from epymarl_fairtest.core.episodes import random_tests, replay_tests
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.engine.selection import real_engine
from epymarl_fairtest.store.finished import read_run
from epymarl_fairtest.strategies import configure
from epymarl_fairtest.strategies.genetic.operators import mutate
from epymarl_fairtest.tasks.contract import env_reward
from epymarl_fairtest.tasks.generic.rules import GenericTask
from epymarl_fairtest.tasks.world import World
from epymarl_fairtest.testing import random_team, save_random_team
from epymarl_fairtest.testing.engines import check_engine

LIMIT = 8


class Walk(gymnasium.Env[Any, Any]):
    """Two agents on a line; the wind is random, and each is paid for being far to the right."""

    n_agents = 2
    action_space = Tuple([Discrete(3)] * 2)  # type: ignore[assignment]
    observation_space = Tuple([Box(-99, 99, (2,), np.float32)] * 2)  # type: ignore[assignment]
    forgets = False
    resets: ClassVar[list[int]] = []

    def __init__(self) -> None:
        self.lock, self.noisy = threading.Lock(), np.random.default_rng()
        self.listeners = [self.tell]  # refers to the environment itself
        self.told = 0

    def tell(self) -> None:
        self.told += 1

    def seed(self, seed: int | None = None) -> None:
        self.reset(seed=seed)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        type(self).resets.append(0 if seed is None else seed)
        self.at = (self.noisy if self.forgets else self.np_random).uniform(0, 5, 2)
        self.told = 0
        return self._seen(), {}

    def _seen(self) -> tuple[Any, ...]:
        return tuple(np.array([place, self.told], np.float32) for place in self.at)

    def step(self, actions: Any) -> Any:
        for listener in self.listeners:
            listener()
        self.at = self.at + np.array(actions) - 1 + self.np_random.normal(size=2)
        return self._seen(), np.abs(self.at).tolist(), False, False, {}


class Forgetful(Walk):
    forgets = True


class Elsewhere(Walk):
    """Something of it is nobody's variable: a copy does not go on alike."""

    hidden: ClassVar[dict[int, float]] = {}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.hidden[id(self)] = 0.0
        return super().reset(seed=seed)

    def step(self, actions: Any) -> Any:
        self.hidden[id(self)] += 1.0
        seen, paid, *rest = super().step(actions)
        return seen, [paid[0] + self.hidden[id(self)], paid[1]], *rest


class Grid(Walk):
    """Says what its state is: whole coordinates, the wind left out."""

    positions, bounds = ((0, 1), (2, 3)), (0, 9)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.place = self.np_random.integers(1, 9, 4).astype(float)
        return self._seen(), {}

    def _seen(self) -> tuple[Any, ...]:
        return tuple(getattr(self, "place", np.zeros(4)).reshape(2, 2).astype(np.float32))

    def step(self, actions: Any) -> Any:
        self.place[::2] = np.clip(self.place[::2] + np.array(actions) - 1, 0, 9)
        return self._seen(), (1 + self.place[::2]).tolist(), False, False, {}

    def get_state(self) -> Any:
        return self.place.copy()

    def set_state(self, state: Any) -> Any:
        self.place = state
        return self._seen()

    def valid(self, state: Any) -> bool:
        return bool(state[0] != state[2])


class Mute(Grid):
    def set_state(self, state: Any) -> Any:
        self.place = state


class Wrong(Grid):
    positions = ((0, 1), (2, 4))  # type: ignore[assignment]


class Unbounded(Grid):
    bounds = (9, 0)


class Described(Walk):
    """What agents see is a dictionary, with a mask of the actions in it."""

    observation_space = Tuple(  # type: ignore[assignment]
        [Dict({"place": Box(-99, 99, (1,), np.float32), "kind": Discrete(3), "action_mask": MultiBinary(3)})] * 2
    )

    def _seen(self) -> tuple[Any, ...]:
        mask = np.ones(3, np.int8)
        return tuple({"place": np.array([x], np.float32), "kind": int(x) % 3, "action_mask": mask} for x in self.at)


class Leaving(Walk):
    """The second agent goes home after the third step."""

    def step(self, actions: Any) -> Any:
        seen, paid, *rest = super().step(actions)
        here = 1 if self.told > 3 else 2
        return seen[:here], paid[:here], *rest


class Shrinking(Walk):
    """The second agent sees less after the third step."""

    def step(self, actions: Any) -> Any:
        seen, *rest = super().step(actions)
        return [seen[0], seen[1][:-1] if self.told > 3 else seen[1]], *rest


KINDS = (Described, Leaving, Shrinking, Walk, Forgetful, Elsewhere, Grid, Mute, Wrong, Unbounded)


@pytest.fixture(autouse=True)
def registered() -> Any:
    names = {f"tests/{kind.__name__}-v0": kind for kind in KINDS}
    for name, kind in names.items():
        gymnasium.register(name, kind, disable_env_checker=True)
    yield
    for name in names:
        del gymnasium.registry[name]


def key(kind: type) -> str:
    return f"tests/{kind.__name__}-v0"


def admitted(make: Any, agents: int, actions: int, size: int) -> tuple[GenericTask, str]:
    env = make()
    env.reset(seed=0)
    task = GenericTask(env)
    assert task.n_agents == agents
    return task, task.admit(
        lambda: World(make(), task, env_reward, obs_size=size, limit=25), np.ones((agents, actions), bool)
    )


# --- proved -------------------------------------------------------------------------------------------

OTHERS = {
    "particles": ("epymarl_fairtest:mpe-spread-v0", 3, 5, 18),
    "foraging": ("epymarl_fairtest:lbforaging-v0", 3, 6, 18),
    "a walk with a lock, a wind and itself": (key(Walk), 2, 3, 2),
}


@pytest.mark.parametrize("name", OTHERS)
def test_an_environment_that_nobody_knows_is_restored(name: str) -> None:
    environment, *sizes = OTHERS[name]
    task, why = admitted(lambda: gymnasium.make(environment, disable_env_checker=True), *sizes)
    assert (task.restorable, task.retraced, why) == (True, True, "")


def test_pettingzoos_environments_are_restored_although_they_cannot_be_copied() -> None:
    game = pytest.importorskip("mpe2.simple_reference_v3")

    class AsTuples(gymnasium.Wrapper[Any, Any, Any, Any]):
        """As EPyMARL shows them: everything by agent, in order."""

        def __init__(self) -> None:
            self.env = game.parallel_env(max_cycles=25)
            self.names = self.env.possible_agents
            self._cached = None
            self.action_space = Tuple([self.env.action_space(name) for name in self.names])
            self.observation_space = Tuple([self.env.observation_space(name) for name in self.names])

        def reset(self, *, seed: Any = None, options: Any = None) -> Any:
            seen, _ = self.env.reset(seed=seed)
            return tuple(seen[name] for name in self.names), {}

        def step(self, actions: Any) -> Any:
            seen, paid, over, late, _ = self.env.step(dict(zip(self.names, actions, strict=True)))
            order = self.names
            return tuple(seen[n] for n in order), [paid[n] for n in order], all(over.values()), all(late.values()), {}

    task, why = admitted(AsTuples, 2, 50, 21)
    assert (task.restorable, why) == (True, "")


@pytest.mark.parametrize(
    ("kind", "said"),
    [(Forgetful, "does not give the same episode for the same seed"), (Elsewhere, "does not go on alike")],
)
def test_what_cannot_be_restored_is_said_and_tested_from_seeds(
    kind: type, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    team = random_team(key(kind), time_limit=LIMIT)
    assert not team.task.restorable
    assert said in team.caution
    assert "seed 1, step" in team.caution
    folder = save_random_team(tmp_path / "team", key(kind))
    more = ["--set", "method=random", "--set", "budget=20", "--set", "report=false"]
    assert main(["run", "--policy", str(folder), "--out", str(tmp_path / "run"), *more]) == 0
    assert said in capsys.readouterr().err


# --- executed -----------------------------------------------------------------------------------------


@pytest.fixture
def mutants() -> Any:
    """A team with a memory, some episodes of it, and mutants of these: six from one place, ten from anywhere."""
    team = random_team(key(Walk), time_limit=LIMIT, recurrent=True)
    engine = real_engine(team, configure({"epsilon": 0.3}))
    generator = np.random.default_rng(1)
    episodes = engine.execute(random_tests(6, team.task.state_size, generator))
    episodes.id[:] = np.arange(6)
    tests, missing = mutate(episodes, lambda n: generator.integers(0, 6, n), 16, team.task, generator)
    assert missing == 0
    tests.start_step[:6] = 3
    tests.prefix = episodes.take([0] * 6 + [int(np.flatnonzero(episodes.id == p)[0]) for p in tests.parent[6:]])
    tests.root_seed[:6] = episodes.root_seed[0]
    tests.start_state[:6] = episodes.states[0, 3]
    return team, engine, tests


def test_a_continued_episode_is_the_one_that_is_played_from_its_seed(mutants: Any) -> None:
    _, engine, tests = mutants
    played = engine.execute(tests)
    from_seed = replay_tests(played, restorable=False)
    again = engine.execute(from_seed)
    for name in ("actions", "rewards", "states", "length"):
        assert np.array_equal(getattr(played, name), getattr(again, name)), name
    assert_identical(played, engine.execute(replay_tests(engine.seen(played))))
    assert played.executed_steps() == int((LIMIT - tests.start_step).sum()), "the way there is not charged"


def test_a_way_that_tests_have_in_common_is_gone_once(mutants: Any) -> None:
    _, engine, tests = mutants
    Walk.resets.clear()
    played = engine.execute(tests.take(slice(0, 6)))
    assert len(Walk.resets) == 1
    assert len({row.tobytes() for row in played.rewards}) > 1, "they explore for themselves"


def test_such_an_engine_keeps_the_contract() -> None:
    team = random_team(key(Walk), time_limit=LIMIT)
    check_engine(real_engine(team, configure({"epsilon": 0.3})), team)


@pytest.mark.slow
def test_a_search_mutates_in_such_an_environment(tmp_path: Path) -> None:
    folder, out = save_random_team(tmp_path / "team", key(Walk)), tmp_path / "run"
    more = ["--set", "budget=200", "--set", "report=false", "--set", "theta=0.99"]
    assert main(["run", "--policy", str(folder), "--out", str(out), *more]) == 0
    run = read_run(out)
    assert run.summary["unstable_failures"] == 0
    with np.load(out / "failures.npz") as file:
        assert (file["start_step"] > 0).any(), "mutants start in the middle"


# --- what an environment says of itself ---------------------------------------------------------------


def test_an_environment_that_says_its_state_is_perturbed_and_counted() -> None:
    team = random_team(key(Grid), time_limit=LIMIT)
    task = team.task
    assert (task.restorable, task.proposable, task.retraced, task.placed) == (True, True, False, True)
    assert (task.low, task.high, task.state_size) == (0, 9, 4)
    states = np.array([[1.0, 2, 6, 8], [5, 5, 7, 7]] * 20)
    new, allowed = task.perturb(states, np.random.default_rng(0))
    assert allowed.any()
    assert (new == np.rint(new)).all(), "whole coordinates stay whole"
    assert (new[allowed, 0] != new[allowed, 2]).all(), "`valid` is asked"
    assert ((new >= 0) & (new <= 9)).all()
    assert np.array_equal(task.positions(states)[0], [[1, 2], [6, 8]])
    back, fine = task.starts_from(task.start_vectors(states))
    assert fine.all()
    assert back == pytest.approx(states)
    assert len(np.unique(task.cells(states, 4))) == 2
    check_engine(real_engine(team, configure({"epsilon": 0.3})), team)


@pytest.mark.parametrize(("kind", "part"), [(Wrong, "Wrong.positions="), (Unbounded, r"Unbounded.bounds=\(9, 0\)")])
def test_what_it_says_wrongly_is_refused(kind: type, part: str) -> None:
    with pytest.raises(FairTestError, match=part):
        random_team(key(kind))


def test_a_set_state_that_shows_nothing_is_said() -> None:
    team = random_team(key(Mute), time_limit=LIMIT)
    assert not team.task.restorable
    assert "set_state of Mute returns nothing" in team.caution


# --- odd environments ---------------------------------------------------------------------------------


def test_observations_that_are_dictionaries_are_flat_numbers_as_in_the_hosts() -> None:
    team = random_team(key(Described), time_limit=LIMIT)
    assert team.policy.obs_size == 1 + 3 + 3
    world = team.make_world()
    world.reset(5)
    place = team.environment.reset(seed=5)[0][0]
    assert world.obs[0].tolist() == pytest.approx([1, 1, 1, *np.eye(3)[int(place[-1]) % 3], place[-1]])
    assert team.task.restorable
    assert "action_mask" in team.caution, "nobody looks at it, and that is said"


def test_agents_that_come_and_go_are_refused_in_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = save_random_team(tmp_path / "team", key(Leaving))
    assert main(["run", "--policy", str(folder), "--out", str(tmp_path / "run"), "--set", "method=random"]) == 2
    said = capsys.readouterr().err
    assert "Agents that come and go are not supported" in said
    assert "Traceback" not in said


def test_observations_that_change_their_size_are_refused_before_anything_is_executed() -> None:
    with pytest.raises(FairTestError, match="must have the size that the environment declares"):
        random_team(key(Shrinking), time_limit=LIMIT)
