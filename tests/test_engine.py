"""The engine: a test is a value. The same test gives the same episode in any batch, engine and process."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support import (
    AGENTS,
    KEYS,
    LIMITS,
    TESTS,
    assert_identical,
    digest_of,
    engine_of,
    environment,
    few_and_many,
    most_tasks,
    random_policy,
    record_of,
    some_tests,
)

from epymarl_fairtest.core.episodes import Episodes, Tests, operator_code, replay_tests
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.engine import lockstep
from epymarl_fairtest.engine.action_rules import choose
from epymarl_fairtest.engine.contract import ActionRule
from epymarl_fairtest.engine.lockstep import Lockstep, memory_before
from epymarl_fairtest.host.build import configuration
from epymarl_fairtest.host.hosts import Host
from epymarl_fairtest.host.tap import host_world
from epymarl_fairtest.tasks import task_for
from epymarl_fairtest.tasks.allocation import resolve_allocation
from epymarl_fairtest.tasks.world import World, flat
from epymarl_fairtest.team.contract import CHUNK

every_task = pytest.mark.parametrize("task", KEYS)
every_agent = pytest.mark.parametrize("agent", AGENTS)


# --- a test is a value --------------------------------------------------------------------------------


@most_tasks
@every_agent
def test_the_same_test_gives_the_same_episode_alone_and_in_batches_of_7_and_64(task: str, agent: str) -> None:
    tests = some_tests(task, 64)
    together = engine_of(task, agent).execute(tests)
    seven = engine_of(task, agent).execute(tests.take(slice(7)))
    assert_identical(seven, together.take(slice(7)))
    alone = engine_of(task, agent)
    for row in (0, 3, 63):
        assert_identical(alone.execute(tests.take([row])), together.take([row]))
    assert len({row.tobytes() for row in together.actions}) > 60, "the episodes are hardly worth comparing"


@every_task
def test_an_engine_that_played_before_gives_the_same_episodes(task: str) -> None:
    tests = some_tests(task, 9)
    used = engine_of(task, "gru")
    first = used.execute(tests)
    used.execute(some_tests(task, 20, seed=6))
    assert_identical(used.execute(tests), first)


@few_and_many("chunk", 16, CHUNK)
def test_more_tests_than_one_chunk_are_executed_in_their_order(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lockstep, "CHUNK", chunk)
    tests = some_tests("spread", chunk + 5)
    episodes = engine_of("spread", "gru").execute(tests)
    assert episodes.root_seed.tolist() == tests.root_seed.tolist()
    assert_identical(
        engine_of("spread", "gru").execute(tests.take(slice(chunk, None))), episodes.take(slice(chunk, None))
    )


def test_few_worlds_are_made_for_few_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """A particle world takes long to make, and holds a surface of its own to draw on."""
    monkeypatch.setattr(lockstep, "FEWEST_WORLDS", 4)
    engine, tests = engine_of("spread", "gru"), some_tests("spread", 30)
    episodes = engine.execute(tests)
    assert len(engine._worlds) == 4
    assert_identical(episodes.take(slice(9, 11)), engine_of("spread", "gru").execute(tests.take(slice(9, 11))))


@pytest.mark.fresh
def test_two_processes_with_different_hash_seeds_give_the_same_episodes() -> None:
    def digests(hash_seed: str) -> str:
        path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": path}
        command = [sys.executable, "-W", "ignore", "-c", "import support; support.print_digests()"]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    here = [
        f"{task} {agent} {digest_of(engine_of(task, agent).execute(some_tests(task, 7)))}"
        for task in KEYS
        for agent in AGENTS
    ]
    assert digests("1").splitlines() == digests("2").splitlines() == here


def test_no_tests_give_no_episodes() -> None:
    episodes = engine_of("spread").execute(some_tests("spread", 3).take(slice(0)))
    assert len(episodes) == 0
    assert episodes.executed_steps() == 0


@every_task
@every_agent
def test_replayed_episodes_are_the_same(task: str, agent: str) -> None:
    episodes = engine_of(task, agent).execute(some_tests(task, 12))
    again = engine_of(task, agent).execute(replay_tests(episodes))
    assert_identical(again, episodes)


# --- continuing from a recorded state -----------------------------------------------------------------


def continued(episodes: Episodes, step: int, operator: str = "mutation") -> Tests:
    """Tests that go on from `step` of the recorded episodes."""
    count = len(episodes)
    return Tests(
        root_seed=episodes.root_seed.copy(),
        stream=episodes.stream.copy(),
        shift=episodes.shift.copy(),
        start_step=np.full(count, step, np.int32),
        start_state=episodes.states[:, step].copy(),
        operator=np.full(count, operator_code(operator), np.int8),
        parent=np.arange(count),
        prefix=episodes,
    )


def lasting(episodes: Episodes, step: int) -> Episodes:
    """Those that were still running at `step`."""
    return episodes.take(episodes.length > step)


@every_task
@every_agent
@pytest.mark.parametrize("step", [7, *(pytest.param(step, marks=pytest.mark.slow) for step in (1, 24))])
def test_a_restored_episode_goes_on_bit_for_bit(task: str, agent: str, step: int) -> None:
    episodes = lasting(engine_of(task, agent).execute(some_tests(task, 12)), step)
    assert len(episodes) > 8
    tests = continued(episodes, step)
    again = engine_of(task, agent).execute(tests)
    for name in ("states", "obs", "actions", "rewards", "q", "length"):
        assert getattr(again, name).tobytes() == getattr(episodes, name).tobytes(), name
    assert again.executed_steps() == int((episodes.length - step).sum())
    assert again.parent.tolist() == tests.parent.tolist()
    assert_identical(engine_of(task, agent).execute(replay_tests(again)), again)


def test_different_rows_restore_at_different_steps() -> None:
    episodes = engine_of("tag", "gru").execute(some_tests("tag", 10))
    tests = continued(episodes, 0)
    tests.start_step[:] = np.arange(10) * 2
    tests.start_state[:] = episodes.states[np.arange(10), tests.start_step]
    again = engine_of("tag", "gru").execute(tests)
    assert again.states.tobytes() == episodes.states.tobytes()
    assert again.q.tobytes() == episodes.q.tobytes()


def test_the_memory_matters_when_an_episode_is_restored() -> None:
    """What the test above holds would be lost with a hidden state of zeros."""
    policy = random_policy(record_of("spread", "gru"))
    episodes = engine_of("spread", "gru").execute(some_tests("spread", 10))
    tests = continued(episodes, 10)
    hidden, last = memory_before(policy, tests.prefix, tests.start_step)
    assert np.abs(hidden).max() > 0
    assert last.tolist() == episodes.actions[:, 9].tolist()
    remembering, _ = policy.forward(episodes.obs[:, 10], last, hidden)
    forgetting, _ = policy.forward(episodes.obs[:, 10], last, np.zeros_like(hidden))
    assert remembering.tobytes() == episodes.q[:, 10].tobytes()
    assert (remembering.argmax(-1) != forgetting.argmax(-1)).any()


def test_a_shift_reads_the_stream_further_on() -> None:
    tests = some_tests("spread", 8)
    moved = replace(tests, shift=np.full(8, 3, np.int32))
    plain, shifted = engine_of("spread").execute(tests), engine_of("spread").execute(moved)
    assert plain.actions.tobytes() != shifted.actions.tobytes()
    assert plain.states[:, 0].tobytes() == shifted.states[:, 0].tobytes()


# --- actions ------------------------------------------------------------------------------------------


@every_task
def test_forced_actions_are_executed_and_the_rest_is_the_policys(task: str) -> None:
    tests = some_tests(task, 6)
    free = engine_of(task, kind="greedy").execute(tests)
    forced = np.full((6, LIMITS[task], free.actions.shape[2]), -1, np.int16)
    forced[:, 2:5, 0] = 1
    forced[:, 4, 1] = 3
    tests.forced = forced
    episodes = engine_of(task, kind="greedy").execute(tests)
    assert (episodes.actions[:, 2:5, 0] == 1).all()
    assert (episodes.actions[:, 4, 1] == 3).all()
    greedy = episodes.q.argmax(axis=-1)
    unforced = (forced < 0) & (np.arange(LIMITS[task])[None, :, None] < episodes.length[:, None, None])
    assert (episodes.actions[unforced] == greedy[unforced]).all()
    assert free.actions[:, :2].tobytes() == episodes.actions[:, :2].tobytes()


def chosen(
    kind: str, *, epsilon: float = 0.0, temperature: float = 1.0, available: Any = None, rows: int = 20_000
) -> Any:
    """Actions on the same Q-values (2 agents, 4 actions) in many streams."""
    q = np.tile(np.array([[0.0, 0.1, 0.4, 0.2], [1.0, 0.0, -3.0, 0.5]], np.float32), (rows, 1, 1))
    streams = np.random.default_rng(0).integers(0, 2**64, rows, dtype=np.uint64)
    allowed = np.ones((2, 4), bool) if available is None else np.array(available, bool)
    return choose(q, streams, np.zeros(rows, np.int64), ActionRule(kind, epsilon, temperature, allowed))


def shares(actions: Any) -> Any:
    return np.array([np.bincount(column, minlength=4) / len(column) for column in actions.T])


def test_greedy_takes_the_best_available_action() -> None:
    assert (chosen("greedy") == [2, 0]).all()
    assert (chosen("greedy", available=[[1, 1, 0, 1], [0, 1, 1, 1]]) == [3, 3]).all()


def test_epsilon_greedy_explores_as_often_as_it_says_and_evenly() -> None:
    assert (chosen("epsilon_greedy") == [2, 0]).all()
    found = shares(chosen("epsilon_greedy", epsilon=0.2))
    assert found == pytest.approx(np.array([[0.05, 0.05, 0.85, 0.05], [0.85, 0.05, 0.05, 0.05]]), abs=0.01)
    masked = shares(chosen("epsilon_greedy", epsilon=1.0, available=[[1, 1, 0, 0], [1, 1, 1, 1]]))
    assert masked == pytest.approx(np.array([[0.5, 0.5, 0, 0], [0.25] * 4]), abs=0.015)
    assert (masked[0, 2:] == 0).all()


def test_agents_explore_independently() -> None:
    explored = chosen("epsilon_greedy", epsilon=0.5) != [2, 0]
    assert np.corrcoef(explored.T)[0, 1] == pytest.approx(0, abs=0.03)


def test_softmax_follows_the_scaled_q_values() -> None:
    q = np.array([[0.0, 0.1, 0.4, 0.2], [1.0, 0.0, -3.0, 0.5]])
    weight = np.exp((q - q.max(1, keepdims=True)) / (q.max(1) - q.min(1))[:, None])
    assert shares(chosen("softmax")) == pytest.approx(weight / weight.sum(1, keepdims=True), abs=0.015)
    cold = shares(chosen("softmax", temperature=0.01))
    assert cold[0, 2] > 0.99
    assert cold[1, 0] > 0.99
    masked = shares(chosen("softmax", available=[[1, 1, 0, 1], [1, 1, 1, 1]]))
    assert masked[0, 2] == 0


def test_executed_episodes_explore_as_often_as_they_should() -> None:
    episodes = engine_of("spread", epsilon=0.3).execute(some_tests("spread", 60))
    differs = (episodes.actions != episodes.q.argmax(-1)).mean()
    assert differs == pytest.approx(0.3 * 4 / 5, abs=0.03)


# --- lengths and steps --------------------------------------------------------------------------------


class Hungry:
    """A team that walks to the nearest food together and loads it: it ends foraging early."""

    n_agents, n_actions, hidden_size, reading = 3, 6, 0, "q"
    obs_size = record_of("foraging", "mlp").obs_size

    def forward(self, obs: Any, last: Any, hidden: Any) -> Any:
        q = np.zeros((len(obs), 3, 6), np.float32)
        for row, agent in np.ndindex(len(obs), 3):
            seen = obs[row, agent]
            food = seen[:9].reshape(3, 3)
            food = food[food[:, 2] > 0]
            if len(food):
                away = food[0, :2] - seen[9:11]
                if np.abs(away).sum() <= 1:
                    q[row, agent, 5] = 1
                elif abs(away[0]) >= abs(away[1]):
                    q[row, agent, 2 if away[0] > 0 else 1] = 1
                else:
                    q[row, agent, 4 if away[1] > 0 else 3] = 1
        return q, hidden


def test_foraging_ends_when_all_food_is_eaten_and_what_follows_is_empty() -> None:
    episodes = engine_of("foraging", policy=Hungry(), epsilon=0.2).execute(some_tests("foraging", 40))
    early = np.flatnonzero(episodes.length < LIMITS["foraging"])
    assert len(early) >= 5
    for row in early:
        end = episodes.length[row]
        assert (task_for(environment("foraging")).food(episodes.states[row, end])[:, 2] == 0).all()
        assert episodes.rewards[row, end - 1].sum() > 0
        assert (episodes.actions[row, end:] == -1).all()
        for name in ("obs", "rewards", "q"):
            assert not getattr(episodes, name)[row, end:].any(), name
        assert not episodes.states[row, end + 1 :].any()
    for row in early[:2]:
        alone = engine_of("foraging", policy=Hungry(), epsilon=0.2).execute(some_tests("foraging", 40).take([row]))
        assert_identical(alone, episodes.take([row]))


class Counting:
    """A world that counts its steps."""

    steps = 0

    def __init__(self, world: World) -> None:
        self._world = world

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world, name)

    def step(self, actions: Any) -> None:
        Counting.steps += 1
        self._world.step(actions)


@pytest.mark.parametrize("start", [0, 6])
def test_executed_steps_are_the_steps_that_the_worlds_made(start: int) -> None:
    engine = engine_of("foraging", policy=Hungry(), epsilon=0.2)
    tests = some_tests("foraging", 30)
    if start:
        tests = continued(lasting(engine.execute(tests), start), start)
    make = engine._make_world
    counted = engine_of("foraging", policy=Hungry(), epsilon=0.2)
    counted._make_world = lambda: Counting(make())  # type: ignore[assignment,return-value,arg-type]
    Counting.steps = 0
    episodes = counted.execute(tests)
    assert Counting.steps == episodes.executed_steps() == int((episodes.length - start).sum())
    assert (episodes.length < LIMITS["foraging"]).any()


# --- what must not happen -----------------------------------------------------------------------------


class Broken:
    """A team whose Q-values turn bad at its fourth step."""

    n_agents, n_actions, hidden_size, reading = 3, 5, 0, "q"
    obs_size = record_of("spread", "mlp").obs_size

    def __init__(self, value: float) -> None:
        self._value, self._asked = value, 0

    def forward(self, obs: Any, last: Any, hidden: Any) -> Any:
        q = np.zeros((len(obs), 3, 5), np.float32)
        self._asked += 1
        if self._asked == 4:
            q[1, 2, 3] = self._value
        return q, hidden


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_q_values_that_are_not_finite_are_an_error(value: float) -> None:
    tests = some_tests("spread", 3)
    with pytest.raises(FairTestError, match=r"Q-values are not finite .*step 3") as caught:
        engine_of("spread", policy=Broken(value)).execute(tests)
    assert str(tests.root_seed[1]) in str(caught.value)


def test_observations_of_different_lengths_are_padded_on_the_right() -> None:
    seen = flat([np.arange(3), np.arange(5)], 5)
    assert seen.dtype == np.float32
    assert seen.tolist() == [[0, 1, 2, 0, 0], [0, 1, 2, 3, 4]]


# --- the hosts' own wrappers --------------------------------------------------------------------------


every_host = pytest.mark.parametrize("host", ["zoo", "epymarl"], indirect=True)
CONFIGS = {"spread": "fairtest_mpe", "tag": "fairtest_pp", "foraging": "fairtest_lbf"}
STOCK_FORAGING = {"key": "lbforaging:Foraging-8x8-3p-3f-v3"}


def wrapper_of(host: Host, task: str, **env_args: Any) -> Any:
    args = configuration(host, "iql", CONFIGS[task], {"env_args": {"time_limit": LIMITS[task], **env_args}})
    return host.environments["gymma"](**host.environment_arguments(args))


@every_host
@pytest.mark.parametrize(
    ("task", "env_args"), [("spread", {}), ("tag", {}), ("foraging", {}), ("foraging", STOCK_FORAGING)]
)
def test_a_host_world_steps_like_the_hosts_wrapper(host: Host, task: str, env_args: dict[str, Any]) -> None:
    theirs, ours = wrapper_of(host, task, **env_args), wrapper_of(host, task, **env_args)
    known = task_for(ours._env)
    world = host_world(ours, known, host, "env")
    generator = np.random.default_rng(3)
    for seed in range(4):
        theirs.reset()
        world.reset(seed)
        known.write(theirs._env, world.state(), 0)
        done, steps = False, 0
        while not done:
            actions = generator.integers(0, theirs.get_total_actions(), world.obs.shape[0])
            result = theirs.step(actions)
            reward, done = (result[1], result[2] or result[3]) if len(result) == 5 else result[:2]
            world.step(actions.astype(np.int16))
            steps += 1
            assert np.array(theirs.get_obs(), np.float32).tobytes() == world.obs.tobytes()
            assert sum(world.reward) == pytest.approx(reward, abs=0)
            assert world.done == bool(done)
        assert 0 < steps <= LIMITS[task]
        assert steps == LIMITS[task] or task == "foraging"


@every_host
def test_a_host_world_starts_where_its_seed_says(host: Host) -> None:
    worlds = [host_world(w := wrapper_of(host, "foraging"), task_for(w._env), host, "env") for _ in range(2)]
    worlds[1].reset(9)
    for world in worlds:
        world.reset(4)
    assert worlds[0].state().tobytes() == worlds[1].state().tobytes()
    worlds[0].reset(5)
    assert worlds[0].state().tobytes() != worlds[1].state().tobytes()


@every_host
@every_task
def test_host_worlds_and_bare_worlds_give_the_same_episodes(host: Host, task: str) -> None:
    """What the plug-in finds is what `fairtest run` finds."""
    record = record_of(task, "gru")
    known = task_for(environment(task))
    how = ActionRule("epsilon_greedy", 0.3, 1.0, np.ones((record.n_agents, record.n_actions), bool))
    inside = Lockstep(
        lambda: host_world(wrapper_of(host, task), known, host, "env"),
        random_policy(record),
        how,
        limit=record.time_limit,
        state_size=known.state_size,
    )
    tests = some_tests(task, 8)
    assert_identical(inside.execute(tests), engine_of(task, "gru").execute(tests))


@every_host
def test_a_host_world_pays_the_chosen_allocation(host: Host) -> None:
    ours = wrapper_of(host, "tag", allocation="env")
    known = task_for(ours._env)
    world = host_world(ours, known, host, "prey_distance")
    world.reset(1)
    world.step(np.array([1, 2, 3], np.int16))
    expected = resolve_allocation(known, "prey_distance")(world.state(), np.zeros(3))
    assert world.reward.tolist() == expected.tolist()
    assert len(set(world.reward.tolist())) == 3
