"""What every engine keeps to: `check_engine(engine, team)`, the engine made for that team."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from epymarl_fairtest.core.episodes import Episodes, Tests, operator_code, random_tests
from epymarl_fairtest.core.judged import totals
from epymarl_fairtest.engine.contract import Engine
from epymarl_fairtest.team.contract import CHUNK, Team
from epymarl_fairtest.testing.comparing import assert_same, copied, difference

ROWS = 12
COPIED = ("root_seed", "stream", "shift", "start_step", "operator", "parent")


def check_engine(engine: Engine, team: Team) -> None:
    """All of the contract; an AssertionError says what is not kept."""
    for contract in CONTRACTS:
        contract(engine, team)


def repeats(engine: Engine, team: Team) -> None:
    """The same tests give the same episodes, and are not changed by being executed."""
    for tests in _all_kinds(engine, team):
        before = copied(tests)
        first, again = engine.execute(tests), engine.execute(tests)
        assert_same(first, again, "the same tests give other episodes the second time")
        changed = difference(before, copied(tests))
        assert changed is None, f"executing tests changes them: {changed}"


def row_depends_on_its_test_alone(engine: Engine, team: Team) -> None:
    """Alone, in another order, in parts, or far back in a batch of several chunks: always the same episode."""
    for tests in _all_kinds(engine, team):
        whole, order = engine.execute(tests), np.arange(len(tests))[::-1]
        alone = Episodes.concatenate([engine.execute(tests.take([row])) for row in range(len(tests))])
        assert_same(whole, alone, "an episode changes with the tests beside it")
        assert_same(whole.take(order), engine.execute(tests.take(order)), "an episode changes with the order of tests")
    fresh = _tests(team)
    many = Tests.concatenate([random_tests(CHUNK, team.task.state_size, np.random.default_rng(1)), fresh])
    last = engine.execute(many).take(slice(CHUNK, None))
    assert_same(last, engine.execute(fresh), f"an episode changes behind {CHUNK} others")


def shapes_are_right(engine: Engine, team: Team) -> None:
    """No tests give no episodes, of the right shapes; after its end an episode holds zeros (actions: -1)."""
    task, policy, tests = team.task, team.policy, _tests(team)
    for episodes in (engine.execute(tests.take(slice(0))), engine.execute(tests)):
        rows = len(episodes)
        expected = {
            "states": (rows, team.limit + 1, task.state_size),
            "obs": (rows, team.limit, task.n_agents, policy.obs_size),
            "actions": (rows, team.limit, task.n_agents),
            "rewards": (rows, team.limit, task.n_agents),
            "q": (rows, team.limit, task.n_agents, policy.n_actions),
            "length": (rows,),
        }
        for name, shape in expected.items():
            actual = getattr(episodes, name).shape
            assert actual == shape, f"{name} of {rows} episodes has the shape {actual}; it must be {shape}"
        assert ((episodes.length >= 1) & (episodes.length <= team.limit)).all(), "an episode is empty or too long"
        over = ~episodes.running
        assert (episodes.actions[over] == -1).all(), "actions after the end are not -1"
        assert (episodes.actions[~over] >= 0).all(), "a step has no action"
        for name in ("obs", "rewards", "q"):
            assert not getattr(episodes, name)[over].any(), f"{name} after the end are not 0"
        beyond = np.arange(team.limit + 1) > episodes.length[:, None]
        assert not episodes.states[beyond].any(), "states after the end are not 0"


def lineage_is_kept(engine: Engine, team: Team) -> None:
    """Seeds, streams, operators and parents are those of the tests."""
    for tests in _all_kinds(engine, team):
        episodes = engine.execute(tests)
        for name in COPIED:
            assert np.array_equal(getattr(episodes, name), getattr(tests, name)), f"{name} is not that of the tests"


def prefix_is_kept(engine: Engine, team: Team) -> None:
    """A test that starts in the middle of an episode keeps what came before."""
    if not team.task.restorable:
        return
    tests = _middle(engine, team)
    parents, children = tests.prefix, engine.execute(tests)
    assert parents is not None
    kept = np.arange(team.limit) < tests.start_step[:, None]
    for name in ("states", "obs", "actions", "rewards", "q"):
        before, after = (getattr(one, name)[:, : team.limit][kept] for one in (parents, children))
        assert np.array_equal(before, after), f"{name} before the start of a test are not those of its prefix"
    rows = np.arange(len(tests))
    assert np.array_equal(children.states[rows, tests.start_step], tests.start_state), "a start state is not kept"


def forced_actions_are_kept(engine: Engine, team: Team) -> None:
    """Where an action is forced it is taken; until then the episode is what it would have been."""
    tests = _forced(team)
    assert tests.forced is not None
    executed, free = engine.execute(tests), engine.execute(_tests(team))
    acted = executed.running[..., None] & (tests.forced >= 0)
    assert np.array_equal(executed.actions[acted], tests.forced[acted]), "a forced action was not taken"
    begin = (tests.forced >= 0).any(axis=(0, 2)).argmax()
    assert begin > 0
    for name in ("states", "actions", "q"):
        before, after = (getattr(one, name)[:, :begin] for one in (executed, free))
        assert np.array_equal(before, after), f"{name} before the first forced action are not those without it"


def continues_its_own_episodes(engine: Engine, team: Team) -> None:
    """From a state it recorded, with the stream it drew from, an episode goes on as it did."""
    if not team.task.restorable:
        return
    tests = _middle(engine, team)
    parents = tests.prefix
    assert parents is not None
    again = engine.execute(tests)
    for name in ("states", "obs", "actions", "rewards", "q", "length"):
        same = np.array_equal(getattr(again, name), getattr(parents, name))
        assert same, f"{name} of an episode that is taken up in its middle are not those that were recorded"


def received_is_what_the_steps_add_up_to(engine: Engine, team: Team) -> None:
    """Without the course of episodes their agents receive the same, to the last bit, in as many steps."""
    for tests in (*_all_kinds(engine, team), *([_shared(engine, team)] if team.task.restorable else [])):
        whole = engine.execute(tests)
        assert_same(whole, engine.execute(tests.plain(team.limit)), "tests that share their pasts give other episodes")
        engine.keeps_course = False
        try:
            short = engine.execute(tests)
        finally:
            engine.keeps_course = True
        same = np.array_equal(totals(short.rewards), totals(whole.rewards))
        assert same, "agents receive something else where the course of an episode is not kept"
        assert np.array_equal(short.length, whole.length), "episodes end elsewhere where their course is not kept"


def initial_states_are_those_of_resets(engine: Engine, team: Team) -> None:
    tests = _tests(team)
    initial, executed = engine.initial_states(tests.root_seed), engine.execute(tests).states[:, 0]
    assert np.array_equal(initial, executed), (
        "initial_states differ from the states that episodes of these seeds begin in"
    )
    reverse = engine.initial_states(tests.root_seed[::-1])[::-1]
    assert np.array_equal(initial, reverse), "initial_states change with the order of the seeds"


CONTRACTS = (
    repeats,
    row_depends_on_its_test_alone,
    shapes_are_right,
    lineage_is_kept,
    prefix_is_kept,
    forced_actions_are_kept,
    continues_its_own_episodes,
    received_is_what_the_steps_add_up_to,
    initial_states_are_those_of_resets,
)


def _all_kinds(engine: Engine, team: Team) -> list[Tests]:
    kinds = [_tests(team), _forced(team)]
    return [*kinds, _middle(engine, team)] if team.task.restorable else kinds


def _tests(team: Team) -> Tests:
    return random_tests(ROWS, team.task.state_size, np.random.default_rng(0))


def _forced(team: Team) -> Tests:
    """The same with some actions forced, none in the first step."""
    tests, generator = _tests(team), np.random.default_rng(2)
    shape = (ROWS, team.limit, team.task.n_agents)
    last = team.available.shape[1] - 1 - team.available[:, ::-1].argmax(axis=1)  # any action that an agent has will do
    chosen = np.where(generator.random(shape) < 0.3, last, -1).astype(np.int16)
    chosen[:, :1] = -1
    tests.forced, tests.operator = chosen, np.full(ROWS, operator_code("action"), np.int8)
    return tests


def _middle(engine: Engine, team: Team) -> Tests:
    """Tests that take up recorded episodes halfway, each with its own stream."""
    parents = engine.execute(_tests(team))
    step = (parents.length // 2).astype(np.int32)
    return Tests(
        root_seed=parents.root_seed,
        stream=parents.stream,
        shift=parents.shift,
        start_step=step,
        start_state=parents.states[np.arange(len(parents)), step],
        operator=np.full(len(parents), operator_code("mutation"), np.int8),
        parent=np.arange(len(parents)),
        prefix=parents,
    )


def _shared(engine: Engine, team: Team) -> Tests:
    """Tests that take up the same episodes twice, with different streams and one action forced at their start."""
    tests = _middle(engine, team)
    rows, last = np.arange(len(tests)), _forced(team).forced
    assert last is not None
    tests = replace(tests, of=rows, at_start=np.where(rows[:, None] % 3, last.max(axis=1), -1).astype(np.int16))
    other = replace(tests, stream=tests.stream[::-1].copy())
    return Tests.concatenate([tests, other.take(rows[::-1])])
