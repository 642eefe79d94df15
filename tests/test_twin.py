"""The twins against the real environments: not one bit may differ, or they are not used."""

from __future__ import annotations

import builtins
from dataclasses import replace
from functools import cache
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils import seeding
from numba import njit
from numba.core import event
from numba.core.dispatcher import Dispatcher
from support import (
    AGENTS,
    KEYS,
    LIMITS,
    assert_identical,
    engine_of,
    environment,
    few_and_many,
    random_policy,
    record_of,
    some_tests,
)

from benchmarks.exact import measure
from epymarl_fairtest.core.episodes import Tests, operator_code
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.engine import advance, choice, meeting
from epymarl_fairtest.engine import twin as twin_engine
from epymarl_fairtest.engine.advance import record
from epymarl_fairtest.engine.contract import ActionRule
from epymarl_fairtest.engine.meeting import Answers
from epymarl_fairtest.engine.selection import make_engine, twin_of
from epymarl_fairtest.engine.twin import Twin, prove
from epymarl_fairtest.host.hosts import Host
from epymarl_fairtest.strategies import configure
from epymarl_fairtest.strategies.scout import spacing
from epymarl_fairtest.tasks import task_for
from epymarl_fairtest.tasks.allocation import resolve_allocation
from epymarl_fairtest.tasks.contract import Kernel
from epymarl_fairtest.tasks.foraging import twin as foraging
from epymarl_fairtest.tasks.kernels import seeds
from epymarl_fairtest.tasks.kernels.seeds import WORDS, next_double, next_integer, next_permutation, seed_stream
from epymarl_fairtest.tasks.mpe import physics
from epymarl_fairtest.tasks.spread import twin as spread
from epymarl_fairtest.tasks.spread.twin import SpreadTwin
from epymarl_fairtest.tasks.tag import twin as tag
from epymarl_fairtest.tasks.world import World
from epymarl_fairtest.team.contract import CHUNK, Team

every_task = pytest.mark.parametrize("task", KEYS)
every_agent = pytest.mark.parametrize("agent", AGENTS)


real_engine = cache(engine_of)  # its worlds are what is slow to make


def kernel_of(env: Any, allocation: str = "env") -> Kernel | None:
    """The twin of a team's environment, whatever the team."""
    return twin_of(replace(team("spread"), task=task_for(env), environment=env, allocation=allocation))


def twin(
    task: str, agent: str = "mlp", *, kind: str = "epsilon_greedy", epsilon: float = 0.3, threads: int = 1
) -> Twin:
    record, known = record_of(task, agent), task_for(environment(task))
    kernel = kernel_of(environment(task))
    assert kernel is not None
    how = ActionRule(kind, epsilon, 1.0, np.ones((record.n_agents, record.n_actions), bool))
    return Twin(
        kernel, random_policy(record), how, limit=record.time_limit, state_size=known.state_size, threads=threads
    )


def from_states(task: str, states: np.ndarray, seed: int = 0) -> Tests:
    """Tests that start from given initial states."""
    tests = some_tests(task, len(states), seed)
    tests.start_state, tests.operator = states, np.full(len(states), operator_code("state"), np.int8)
    return tests


def crowded_states(task: str, count: int) -> np.ndarray:
    """Bodies on top of each other, or players side by side around the food: as much contact as there can be."""
    states = real_engine(task).execute(some_tests(task, count, seed=77)).states[:, 0]
    generator = np.random.default_rng(3)
    known = task_for(environment(task))
    if task == "foraging":
        for state in states:
            food, players = known.food(state), known.players(state)
            around = [(1, 0), (-1, 0), (0, 1), (0, -1)]
            generator.shuffle(around)
            for player, (down, right) in zip(players, around, strict=False):
                player[:2] = food[0, 0] + down, food[0, 1] + right
        return states
    bodies = known.everyone(states)
    bodies[..., :2] *= 0.15
    bodies[..., 2:] = generator.uniform(-1.0, 1.0, bodies[..., 2:].shape)
    return states


@every_task
@every_agent
@few_and_many("count", 20, 300)
def test_a_twin_plays_the_very_episodes_of_the_real_environment(task: str, agent: str, count: int) -> None:
    tests = some_tests(task, count, seed=11)
    assert_identical(twin(task, agent).execute(tests), real_engine(task, agent).execute(tests))


@every_task
@few_and_many("count", 15, 200)
def test_a_twin_follows_random_actions_bit_for_bit(task: str, count: int) -> None:
    tests = some_tests(task, count, seed=12)
    assert_identical(twin(task, epsilon=1.0).execute(tests), real_engine(task, epsilon=1.0).execute(tests))


@every_task
@few_and_many("count", 15, 100)
def test_a_twin_handles_contact_bit_for_bit(task: str, count: int) -> None:
    tests = from_states(task, crowded_states(task, count))
    real = real_engine(task, epsilon=0.8).execute(tests)
    assert_identical(twin(task, epsilon=0.8).execute(tests), real)
    if task == "foraging":
        assert (real.rewards > 0).any(axis=(1, 2)).mean() > 0.3, "hardly anything was loaded"


@every_task
@every_agent
@few_and_many("count", 25, 200)
def test_a_twin_goes_on_from_perturbed_states_at_every_step(task: str, agent: str, count: int) -> None:
    known = task_for(environment(task))
    parents = real_engine(task, agent).execute(some_tests(task, count, seed=13))
    generator = np.random.default_rng(4)
    step = (np.arange(count) % LIMITS[task] * (parents.length / LIMITS[task])).astype(np.int32)
    states, accepted = known.perturb(parents.states[np.arange(count), step], generator)
    keep = np.flatnonzero(accepted)
    tests = Tests(
        root_seed=parents.root_seed,
        stream=generator.integers(0, 2**64, count, dtype=np.uint64),
        shift=generator.integers(-5, 5, count).astype(np.int32) * (step > 5),
        start_step=step,
        start_state=states,
        operator=np.full(count, operator_code("mutation"), np.int8),
        parent=parents.id,
        prefix=parents,
    ).take(keep)
    tests.shift = tests.shift.astype(np.int32)
    assert len(keep) > 0.3 * count
    executed = twin(task, agent).execute(tests)
    assert_identical(executed, real_engine(task, agent).execute(tests))
    unseen, tests.prefix = twin(task, agent), replace(tests.prefix, obs=tests.prefix.obs[..., :0])
    unseen.keeps_obs = False
    again = unseen.execute(tests)
    assert again.obs.size == 0
    assert_identical(replace(again, obs=executed.obs), executed)


@every_task
@pytest.mark.parametrize("kind", ["greedy", "softmax"])
def test_a_twin_executes_every_kind_of_choice_and_forced_actions(task: str, kind: str) -> None:
    tests = some_tests(task, 15, seed=14)
    forced = np.full((15, LIMITS[task], 3), -1, np.int16)
    forced[:, 2:5, 1] = 3
    tests.forced = forced
    ours, real = twin(task, kind=kind).execute(tests), real_engine(task, kind=kind).execute(tests)
    assert_identical(ours, real)
    assert (real.actions[:, 2:5, 1] == 3).all()


class Elsewhere:
    """A kernel that is handed an array of its own to write what is seen."""

    def __init__(self, kernel: Any) -> None:
        self.reset, self.observe, self.step = kernel.reset, kernel.observe, kernel.step


@every_task
@every_agent
def test_what_is_seen_may_be_written_into_the_networks_inputs(task: str, agent: str) -> None:
    tests, copied = some_tests(task, 2 * CHUNK + 9, seed=18), twin(task, agent)
    copied._kernel = Elsewhere(copied._kernel)
    assert_identical(copied.execute(tests), twin(task, agent).execute(tests))


@every_task
def test_a_twins_episode_does_not_depend_on_the_batch_or_the_threads(task: str) -> None:
    tests = some_tests(task, CHUNK + 60, seed=15)
    together = twin(task, "gru").execute(tests)
    assert_identical(twin(task, "gru", threads=2).execute(tests), together)
    assert_identical(twin(task, "gru").execute(tests.take([3, CHUNK + 1])), together.take([3, CHUNK + 1]))


def test_what_was_in_an_episodes_memory_before_does_not_show_behind_its_end() -> None:
    tests = some_tests("foraging", 600, seed=16)
    states = twin("foraging").execute(tests).states[:, 0].copy()
    states[::2, 11::3] = 0.0  # nothing to eat from the second player's level on: over after a step
    tests = from_states("foraging", states)
    for _ in range(2):  # the second time in memory that is full of sevens
        episodes = twin("foraging").execute(tests)
        assert (episodes.length[::2] == 1).all()
        for name in ("states", "obs", "rewards", "q"):
            array = getattr(episodes, name)
            first = episodes.length + (name == "states")
            assert not array[np.arange(array.shape[1]) >= first[:, None]].any(), name
            array[:] = 7
        before = episodes.obs.ctypes.data
        del episodes, array
    assert twin("foraging").execute(tests).obs.ctypes.data == before


@pytest.mark.parametrize("task", ["spread", "tag"])
@pytest.mark.parametrize("action", [-7, 5, 32767])
def test_an_action_that_does_not_exist_does_nothing(task: str, action: int) -> None:
    tests = some_tests(task, 5)
    tests.forced = np.zeros((5, LIMITS[task], 3), np.int16)
    idle = twin(task).execute(tests)
    kernel = twin(task)._kernel
    states, rewards, over, steps = idle.states[:, 0].copy(), np.zeros((5, 3)), np.zeros(5, bool), np.zeros(5, np.int32)
    kernel.step(states, np.ones(5, bool), np.full((5, 3), action, np.int16), rewards, over, steps)
    np.testing.assert_array_equal(states, idle.states[:, 1])


@pytest.mark.parametrize("task", ["spread", "tag"])
def test_groups_that_move_at_the_same_time_are_not_in_each_others_way(task: str) -> None:
    tests = some_tests(task, 3 * twin_engine.FEWEST, seed=19)
    assert_identical(twin(task, threads=3).execute(tests), twin(task).execute(tests))


def test_a_batch_of_which_nothing_seen_is_kept_needs_no_kernel_of_its_own() -> None:
    engine, tests = twin("spread"), some_tests("spread", 5)
    engine.execute(tests)
    before = len(record.signatures)
    engine.keeps_obs = False
    engine.execute(tests)
    assert len(record.signatures) == before


@pytest.mark.parametrize("module", [advance, choice, meeting, seeds, physics, spread, tag, foraging, spacing])
def test_no_kernel_makes_arrays_which_numba_would_have_to_compile(module: Any) -> None:
    kernels = [one for one in vars(module).values() if isinstance(one, Dispatcher)]
    assert kernels
    for kernel in kernels:
        assert not {"zeros", "empty", "full", "ones", "view"} & set(kernel.py_func.__code__.co_names), kernel


def test_what_is_seen_is_kept_without_compiling_text_for_an_error_that_cannot_be() -> None:
    begun: list[str] = []

    class Listener(event.Listener):
        def on_start(self, event: Any) -> None:
            begun.append(event.data["dispatcher"].py_func.__module__)

        def on_end(self, event: Any) -> None: ...

    rows, seen, last = np.arange(2), np.zeros((2, 3), np.uint32), np.zeros((2, 3), np.int16)
    with event.install_listener("numba:compile", Listener()):
        recall = njit(meeting._recall.py_func)  # anew, not from the cache
        assert recall(rows, seen, last, np.full(8, -1), seen.copy(), last.copy(), 0, rows.copy(), rows.copy()) == 1
    assert meeting.__name__ in begun
    assert not [name for name in begun if "unicode" in name]


def test_a_policy_without_a_memory_is_asked_once_about_what_is_seen() -> None:
    asked: list[int] = []

    class Summing:
        n_agents, n_actions, obs_size, hidden_size = 2, 3, 2, 0

        def forward(self, obs: Any, last: Any, hidden: Any) -> Any:
            asked.append(len(obs))
            return np.repeat(obs.sum(axis=2)[:, :, None] + last[:, :, None], 3, axis=2).astype(np.float32), hidden

    policy: Any = Summing()
    draw = np.random.default_rng(0)
    every = draw.integers(0, 2, (5, 40, 2, 2)).astype(np.float32)  # 16 different ones
    for reads_last, most in ((False, 16), (True, 64)):
        answers, asked[:] = Answers(policy, reads_last), []
        for seen in every:
            last = draw.integers(0, 2, (40, 2)).astype(np.int16) * reads_last
            rows = np.flatnonzero(draw.random(40) < 0.8)
            scores, _ = answers.about(rows, seen, last)
            assert np.array_equal(scores, Summing().forward(seen[rows], last[rows], None)[0])
            asked.pop()
        assert sum(asked) <= most


@every_task
def test_seeds_start_where_the_real_environment_starts(task: str) -> None:
    env, known = environment(task), task_for(environment(task))
    kernel = kernel_of(env)
    assert kernel is not None
    seeds = np.concatenate([np.arange(300), np.random.default_rng(0).integers(0, 2**31, 700)])
    states = np.empty((len(seeds), known.state_size))
    kernel.reset(seeds, states)
    for seed, state in zip(seeds, states, strict=True):
        known.reset(env, int(seed))
        assert known.read(env).tobytes() == state.tobytes(), f"seed {seed}"


def test_the_compiled_generator_is_numpys() -> None:
    for seed in np.random.default_rng(1).integers(0, 2**32, 500):
        stream, order = np.zeros(WORDS, np.uint64), np.zeros(5, np.int64)
        seed_stream(np.uint64(seed), stream)
        real, _ = seeding.np_random(int(seed))
        next_permutation(stream, order)
        assert order.tolist() == real.permutation(5).tolist()
        bounds = [(0, 8), (1, 7), (2, 3), (0, 3), (5, 1000), (0, 1), (1, 5)]
        assert [next_integer(stream, *b) for b in bounds] == [int(real.integers(*b)) for b in bounds]
        assert [next_double(stream) for _ in range(3)] == real.random(3).tolist()


def test_stock_foraging_of_other_sizes_and_levels_has_a_twin_too() -> None:
    import lbforaging  # noqa: F401

    for key in ("Foraging-8x8-3p-3f-v3", "Foraging-10x10-4p-2f-v3"):
        env = gymnasium.make(key, disable_env_checker=True)
        known = task_for(env)
        kernel = kernel_of(env)
        assert kernel is not None
        seeds = np.arange(300)
        states = np.empty((300, known.state_size))
        kernel.reset(seeds, states)
        for seed in seeds:
            known.reset(env, int(seed))
            assert known.read(env).tobytes() == states[seed].tobytes(), f"{key}, seed {seed}"


def test_there_is_no_twin_of_what_the_twins_do_not_know() -> None:
    import lbforaging  # noqa: F401

    short_sighted = gymnasium.make("Foraging-2s-8x8-3p-3f-v3", disable_env_checker=True)
    assert kernel_of(short_sighted) is None
    together = gymnasium.make("Foraging-8x8-3p-3f-coop-v3", disable_env_checker=True)
    assert kernel_of(together) is None
    own_reward = gymnasium.make("epymarl_fairtest:mpe-spread-v0", allocation="env")
    assert kernel_of(own_reward) is None
    narrow = gymnasium.make("epymarl_fairtest:mpe-spread-v0", num_agent_neighbors=1)
    assert kernel_of(narrow) is None


# --- choosing an engine ---------------------------------------------------------------------------------


def team(task: str, **changes: Any) -> Team:
    record, known = record_of(task, "mlp"), task_for(environment(task))
    allocate = resolve_allocation(known, "env")
    whole = Team(
        task=known,
        policy=random_policy(record),
        make_world=lambda: World(
            gymnasium.make(record.key), known, allocate, limit=record.time_limit, obs_size=record.obs_size
        ),
        available=np.ones((record.n_agents, record.n_actions), bool),
        limit=record.time_limit,
        environment=environment(task),
    )
    return replace(whole, **changes)


@every_task
def test_auto_takes_the_twin_once_it_has_proved_itself(task: str) -> None:
    warnings: list[str] = []
    assert make_engine(team(task), configure({}), warnings.append).name == "twin"
    assert not warnings
    assert make_engine(team(task), configure({"engine": "lockstep"}), warnings.append).name == "lockstep"


def test_auto_says_so_and_uses_the_real_environment_when_the_twin_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    step = SpreadTwin.step

    def wrong(self: Any, states: np.ndarray, *args: Any) -> None:
        step(self, states, *args)
        states[0, 0] = np.nextafter(states[0, 0], 9)

    monkeypatch.setattr(SpreadTwin, "step", wrong)
    warnings: list[str] = []
    assert make_engine(team("spread"), configure({}), warnings.append).name == "lockstep"
    assert "does not agree" in warnings[0]


def test_a_team_that_is_kept_proves_its_twin_once_for_each_way_to_play(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a worker of a study keeps it; whoever loads a team again, or plays another policy, proves again."""
    proofs: list[Any] = []

    def noting(*given: Any) -> bool:
        proofs.append(given)
        return prove(*given)

    monkeypatch.setattr(twin_engine, "prove", noting)
    kept = team("spread")
    for settings, expected in (({}, 1), ({}, 1), ({"epsilon": 0.2}, 2), ({"execution": "greedy"}, 3), ({}, 3)):
        assert make_engine(kept, configure(settings), print).name == "twin"
        assert len(proofs) == expected
    make_engine(replace(kept, policy=team("spread").policy), configure({}), print)
    make_engine(team("spread"), configure({}), print)
    assert len(proofs) == 5


def test_a_twin_that_failed_is_not_trusted_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(twin_engine, "prove", lambda *_: False)
    kept, warnings = team("spread"), list[str]()
    for _ in range(2):
        assert make_engine(kept, configure({}), warnings.append).name == "lockstep"
    assert len(warnings) == 2


def test_a_difference_only_after_a_restore_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, real = twin("tag", "gru"), real_engine("tag", "gru")
    state_size = task_for(environment("tag")).state_size
    assert prove(ours, real, state_size)

    def forgetful(policy: Any, prefix: Any, start: Any, seen: Any, memory: Any = None) -> Any:
        return np.zeros((len(start), 3, 16), np.float32), np.full((len(start), 3), -1, np.int16)

    monkeypatch.setattr(twin_engine, "memory_before", forgetful)
    assert not prove(ours, real, state_size)


def test_without_numba_auto_uses_the_real_environment_and_twin_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real_import = builtins.__import__

    def without_numba(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "epymarl_fairtest.engine.twin":
            raise ImportError("No module named 'numba'")
        return real_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_numba)
    assert make_engine(team("spread"), configure({}), pytest.fail).name == "lockstep"
    with pytest.raises(FairTestError, match="needs numba"):
        make_engine(team("spread"), configure({"engine": "twin"}), pytest.fail)


def test_asking_for_a_twin_that_does_not_exist_names_those_that_do() -> None:
    with pytest.raises(FairTestError, match=r"mpe-tag-v0 \(prey_distance"):
        make_engine(team("spread", environment=None), configure({"engine": "twin"}), pytest.fail)


@pytest.mark.parametrize("host", ["zoo", "epymarl"], indirect=True)
@pytest.mark.parametrize("agent", ["mlp64", "gru128"])
@every_task
@few_and_many("count", 2, 12)
def test_whole_episodes_of_a_team_are_those_of_the_hosts_episode_runner(
    task: str, agent: str, host: Host, count: int
) -> None:
    """A few; `python -m benchmarks.exact` compares a thousand of each."""
    assert measure(host, task, agent, count) == 0


def test_two_bodies_on_one_spot_have_no_totals_and_the_others_theirs() -> None:
    """Such starts are refused, but a smallest example may run into one: the simulator divides by zero."""
    engine = twin("spread")
    states = engine.initial_states(np.arange(3))
    engine.keeps_course = False
    whole = engine.execute(from_states("spread", states.copy())).rewards
    states[1, :2] = states[1, 4:6]
    broken = engine.execute(from_states("spread", states)).rewards
    assert np.isnan(broken[1]).all()
    assert np.array_equal(broken[[0, 2]], whole[[0, 2]])
