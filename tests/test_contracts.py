"""Everything that is registered keeps the contracts that `epymarl_fairtest.testing` ships, and they can be broken.

A new strategy, task, index or step is covered by being registered: nothing here is listed by name.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, Tuple
from support import every_method

from epymarl_fairtest.campaign.steps import STEPS
from epymarl_fairtest.campaign.steps.contract import Execute, Outcome, Step
from epymarl_fairtest.core.episodes import Episodes, Tests, operator_code, random_tests
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.indices import INDICES, Index
from epymarl_fairtest.core.ledger import EXECUTION, PREDICTOR, PURPOSES, purpose
from epymarl_fairtest.settings import FIELDS, Rule, fields_of, setting, whole
from epymarl_fairtest.strategies import STRATEGIES
from epymarl_fairtest.strategies.contract import Context, Request, Search, Strategy
from epymarl_fairtest.tasks import TASKS
from epymarl_fairtest.tasks.contract import Task
from epymarl_fairtest.tasks.scene import Field
from epymarl_fairtest.tasks.spread import TASK as SPREAD_TASK
from epymarl_fairtest.team.contract import Team
from epymarl_fairtest.testing import (
    StepCase,
    StrategyCase,
    TaskCase,
    check_engine,
    check_index,
    check_step,
    check_strategy,
    check_task,
    engine_of,
    engines,
    indices,
    random_team,
    steps,
    strategies,
    tasks,
)

SPREAD = "epymarl_fairtest:mpe-spread-v0"
INSTALLED = [name for name, strategy in STRATEGIES.items() if not strategy.missing]
LEVEL = {"d": 0.5}  # of the abstraction: looking for the best one takes most of the time, and is tested elsewhere


class Nobody(gymnasium.Env):
    """An environment that no task but the last one takes: three agents, two of whom are paid what they ask for."""

    n_agents = 3
    action_space = Tuple([Discrete(3)] * 3)
    observation_space = Tuple([Box(0, 1, (2,), np.float32)] * 3)

    def __init__(self, remembers: bool = True) -> None:
        if remembers:
            self.last_obs: Any = None
        self._remembers = remembers

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        return self._seen(), {}

    def step(self, actions: Any) -> Any:
        paid = [float(action) for action in actions[:-1]]
        return self._seen(), [*paid, self.np_random.random()], False, False, {}

    def _seen(self) -> Any:
        seen = tuple(self.np_random.random(2).astype(np.float32) for _ in range(3))
        if self._remembers:
            self.last_obs = seen
        return seen


class Vectorised(gymnasium.Env):
    """A VMAS scenario as EPyMARL shows it."""

    def __init__(self, scenario: str = "navigation") -> None:
        import vmas

        settings = {"num_envs": 1, "continuous_actions": False, "dict_spaces": False, "terminated_truncated": True}
        self._env = vmas.make_env(scenario, wrapper="gymnasium", **settings)
        self.n_agents = self._env.unwrapped.n_agents
        self.action_space, self.observation_space = self._env.action_space, self._env.observation_space

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return self._env.reset(seed=seed)

    def step(self, actions: Any) -> Any:
        return self._env.step(actions)


gymnasium.register("Nobody-v0", Nobody, disable_env_checker=True)
gymnasium.register("Vectorised-v0", Vectorised, disable_env_checker=True)
ELSEWHERE = {  # key: the package that it comes from
    "rware:rware-tiny-2ag-v2": "rware",
    "matrixgames:conflict-3-nostate-v0": "matrixgames",
    "Vectorised-v0": "vmas",
}


def environments() -> list[tuple[str, str, dict[str, Any]]]:
    """A task, an environment of its family and its arguments: one for every registered task at least."""
    others = zip(("warehouse", "matrix", "vmas"), ELSEWHERE, ({}, {}, {}), strict=True)
    variants = [
        ("foraging", "lbforaging:Foraging-2s-8x8-3p-3f-v3", {}),
        ("foraging", "lbforaging:Foraging-8x8-3p-3f-v3", {"penalty": 0.1}),
        ("adversary", "epymarl_fairtest:mpe-adversary-v0", {"N": 4}),
        ("matrix", "epymarl_fairtest:matrix-v0", {"payoff": np.arange(54).reshape(3, 2, 3, 3).tolist()}),
    ]
    own = [(name, f"epymarl_fairtest:{key}", {}) for name, task in TASKS.items() for key in task.environments]
    last = list(TASKS)[-1]
    return [*others, *variants, *own, *((last, "Nobody-v0", {"remembers": remembers}) for remembers in (True, False))]


# Searches, engines and steps are tried in one environment of each of these. The others are made of the same parts:
# particles, a grid, or what nobody knows.
KEYS = {name: key for name, key, _ in environments() if name in ("spread", "tag", "foraging", "generic")}
pytestmark = pytest.mark.filterwarnings("ignore")


def names(contracts: Any) -> list[str]:
    return [contract.__name__ for contract in contracts]


@cache
def team_in(key: str, recurrent: bool = False, **given: Any) -> Team:
    return random_team(key, recurrent=recurrent, **given)


# --- strategies ---------------------------------------------------------------------------------------


@cache
def strategy_case(name: str, key: str = SPREAD, recurrent: bool = False) -> StrategyCase:
    strategy = STRATEGIES[name]
    options = {option: value for option, value in LEVEL.items() if option in fields_of(strategy.options)}
    return StrategyCase(strategy, team_in(key, recurrent), options)


AT_ONCE = [contract for contract in strategies.CONTRACTS if contract is not strategies.resumes]


@pytest.mark.parametrize("contract", AT_ONCE, ids=names(AT_ONCE))
@pytest.mark.parametrize("name", every_method())
def test_a_strategy_keeps_its_contract(name: str, contract: Callable[[StrategyCase], None]) -> None:
    contract(strategy_case(name))


@pytest.mark.parametrize(
    "name",
    [
        one if one.values[0] in ("random", "scout") else pytest.param(*one.values, marks=[*one.marks, pytest.mark.slow])
        for one in every_method()
    ],
)
def test_a_search_that_is_interrupted_ends_as_if_nothing_had_happened(name: str) -> None:
    strategies.resumes(strategy_case(name))


@pytest.mark.slow
@pytest.mark.parametrize("key", [key for key in KEYS.values() if key != SPREAD])
@pytest.mark.parametrize("name", every_method())
def test_a_strategy_keeps_its_contract_in_every_task(name: str, key: str) -> None:
    case = strategy_case(name, key, recurrent=True)
    strategies.repeats(case)
    if not (case.team.task.restorable and case.team.task.proposable):  # one with all abilities was asked already
        strategies.honours_its_needs(case)


def digest_of(name: str) -> str:
    """Of all episodes that a strategy executed."""
    sha = hashlib.sha256()
    for batch in strategy_case(name).first.batches:
        for array in strategies.arrays_of(batch.judged.episodes).values():
            sha.update(array.tobytes())
    return sha.hexdigest()


@pytest.mark.fresh
def test_every_strategy_repeats_in_a_fresh_process_whatever_the_hash_seed_and_the_threads() -> None:
    """Sets and dictionaries must not decide what is executed."""
    program = (
        "import support, test_contracts as t\n"
        "support.in_small()\n"
        "for name in t.INSTALLED: print(name, t.digest_of(name))"
    )
    path = os.pathsep.join([os.path.dirname(__file__), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONHASHSEED": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": path}
    command = [sys.executable, "-W", "ignore", "-c", program]
    there = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    assert there.splitlines() == [f"{name} {digest_of(name)}" for name in INSTALLED]


# --- tasks --------------------------------------------------------------------------------------------


@cache
def task_case(number: int) -> TaskCase:
    name, key, env_args = environments()[number]
    if key in ELSEWHERE:
        pytest.importorskip(ELSEWHERE[key])
    return TaskCase(TASKS[name], key, env_args)


def test_every_task_has_an_environment_to_be_tested_in() -> None:
    assert {name for name, _, _ in environments()} == set(TASKS)


@pytest.mark.parametrize("contract", tasks.CONTRACTS, ids=names(tasks.CONTRACTS))
@pytest.mark.parametrize("number", range(len(environments())), ids=lambda number: environments()[number][1])
def test_a_task_keeps_its_contract(number: int, contract: Callable[[TaskCase], None]) -> None:
    contract(task_case(number))


# --- engines, indices and steps -----------------------------------------------------------------------

CHOICES = FIELDS["engine"].metadata["rule"].allowed.removeprefix("one of ").split(", ")
TEAMS = [(key, memory) for key, memory in zip(KEYS.values(), itertools.cycle([True, False]), strict=False)]


@cache
def engine_case(choice: str, key: str, recurrent: bool) -> Any:
    try:
        return engine_of(team_in(key, recurrent), choice), team_in(key, recurrent)
    except FairTestError as error:
        return str(error)


@pytest.mark.parametrize("contract", engines.CONTRACTS, ids=names(engines.CONTRACTS))
@pytest.mark.parametrize(("key", "recurrent"), TEAMS)
@pytest.mark.parametrize("choice", [choice for choice in CHOICES if choice != "auto"])
def test_an_engine_keeps_its_contract(choice: str, key: str, recurrent: bool, contract: Any) -> None:
    case = engine_case(choice, key, recurrent)
    if isinstance(case, str):
        assert "there is no twin" in case
        pytest.skip(case)
    contract(*case)


@pytest.mark.parametrize("contract", indices.CONTRACTS, ids=names(indices.CONTRACTS))
@pytest.mark.parametrize("name", INDICES)
def test_an_index_keeps_its_contract(name: str, contract: Callable[[Index], None]) -> None:
    contract(INDICES[name])


@cache
def step_case(name: str, key: str, recurrent: bool) -> StepCase:
    return StepCase(STEPS[name], team_in(key, recurrent, time_limit=20))


@pytest.mark.parametrize("contract", steps.CONTRACTS, ids=names(steps.CONTRACTS))
@pytest.mark.parametrize(
    ("key", "recurrent"),
    [team if team[0] == SPREAD else pytest.param(*team, marks=pytest.mark.slow) for team in TEAMS],
)
@pytest.mark.parametrize("name", STEPS)
def test_a_step_keeps_its_contract(name: str, key: str, recurrent: bool, contract: Callable[[StepCase], None]) -> None:
    contract(step_case(name, key, recurrent))


# --- contracts that cannot be broken are none ---------------------------------------------------------


def broken(check: Callable[..., None], *arguments: Any) -> str:
    """What a check says about a thing that does not keep to its contract."""
    with pytest.raises((AssertionError, ValueError)) as caught:
        check(*arguments)
    return str(caught.value)


@dataclass(frozen=True)
class Batch:
    batch: int = setting(whole(1), "executions at once", 16)


def asking(choose: Callable[[Context, int], Tests], reason: str = EXECUTION) -> Callable[[Context], Search]:
    """A search that asks for what `choose` makes of the context and the number of the batch."""

    def search(context: Context) -> Search:
        for number in itertools.count():
            yield Request(choose(context, number), reason)

    return search


def good(context: Context, number: int) -> Tests:
    return random_tests(context.options.batch, context.task.state_size, context.generator("tests", number))


def unseeded(context: Context, number: int) -> Tests:
    return random_tests(8, context.task.state_size, np.random.default_rng())


def always_the_same(context: Context, number: int) -> Tests:
    return random_tests(8, context.task.state_size, np.random.default_rng(number))


def empty(context: Context, number: int) -> Tests:
    return good(context, number).take(slice(0))


def forced(context: Context, number: int) -> Tests:
    tests = good(context, number)
    tests.forced = np.zeros((len(tests), 8, context.task.n_agents), np.int16)
    return tests


def repeated(context: Context, number: int) -> Tests:
    return good(context, 0)


def proposed(context: Context, number: int) -> Tests:
    tests = good(context, number)
    tests.start_state = context.initial_states(tests.root_seed)
    tests.operator = np.full(len(tests), operator_code("state"), np.int8)
    return tests


def perturbed(context: Context, number: int) -> Tests:
    tests = proposed(context, number)
    context.task.perturb(tests.start_state, context.generator("new"))
    return tests


def nothing_left(context: Context) -> Search:
    """Three fresh executions to begin with, and one that follows from the third."""
    judged = yield Request(good(context, 0).take(slice(3)), EXECUTION)
    yield Request(good(context, 1).take([int(judged.episodes.length[2] > 0)]), EXECUTION)


COUNTED = itertools.count()


def knows_how_often_it_began(context: Context) -> Search:
    begun = next(COUNTED)
    for number in itertools.count():
        yield Request(good(context, number + 1000 * begun), EXECUTION)


ANYTHING = Rule("anything", lambda value: True)


@dataclass(frozen=True)
class AnythingGoes:
    batch: int = setting(whole(1), "executions at once", 16)
    loose: int = setting(ANYTHING, "nobody knows", 1)


@dataclass(frozen=True)
class Wrong:
    batch: int = setting(whole(1), "executions at once", 0)


@dataclass(frozen=True)
class Raising:
    batch: int = setting(Rule("a number above 0", lambda value: value > 0), "executions at once", 16)


BROKEN_STRATEGIES = {
    "unseeded": (Strategy("x", "X", asking(unseeded), Batch), "the same seed gives another search"),
    "blind to its seed": (Strategy("x", "X", asking(always_the_same), Batch), "another seed gives the same search"),
    "unknown purpose": (Strategy("x", "X", asking(good, "fun"), Batch), "unknown purpose 'fun'"),
    "unknown random": (Strategy("x", "X", asking(good), Batch, random=("fun",)), "known purposes are"),
    "free of charge": (Strategy("x", "X", asking(good, "proof"), Batch), "nobody is charged"),
    "free as the paper counts": (Strategy("x", "X", asking(good, PREDICTOR), Batch), "nobody is charged"),
    "empty requests": (Strategy("x", "X", asking(empty), Batch), "held no test"),
    "random, but forced": (Strategy("x", "X", asking(forced), Batch, random=(EXECUTION,)), "forced actions"),
    "random, but again": (Strategy("x", "X", asking(repeated), Batch, random=(EXECUTION,)), "used before"),
    "random, but proposed": (
        Strategy("x", "X", asking(proposed), Batch, needs=("proposable",), random=(EXECUTION,)),
        "another operator than seed, a state that was given",
    ),
    "untold need of starts": (Strategy("x", "X", asking(proposed), Batch), "it needs `proposable`"),
    "untold need of states": (
        Strategy("x", "X", asking(perturbed), Batch, needs=("proposable",)),
        "name it in `needs`",
    ),
    "loose rule": (Strategy("x", "X", asking(good), AnythingGoes), "the rule of the option loose allows everything"),
    "wrong default": (Strategy("x", "X", asking(good), Wrong), "has the default 0; it must be a whole number"),
    "raising rule": (Strategy("x", "X", asking(good), Raising), "raises TypeError"),
    "no label": (Strategy("x", "", asking(good), Batch), "the strategy lacks label"),
    "state outside": (Strategy("x", "X", knows_how_often_it_began, Batch), "the same seed gives another search"),
}


@pytest.mark.parametrize("why", BROKEN_STRATEGIES)
def test_a_strategy_that_breaks_its_contract_is_told_how(why: str) -> None:
    strategy, message = BROKEN_STRATEGIES[why]
    assert message in broken(check_strategy, strategy, team_in(SPREAD))


def test_a_good_strategy_that_is_not_registered_is_checked() -> None:
    check_strategy(Strategy("x", "X", asking(good), Batch, random=(EXECUTION,)), team_in(SPREAD))
    assert "x" not in STRATEGIES


@pytest.mark.slow
def test_a_search_that_cannot_be_resumed_is_told() -> None:
    strategy = Strategy("x", "X", knows_how_often_it_began, Batch)
    assert "interruptions" in broken(strategies.resumes, StrategyCase(strategy, team_in(SPREAD)))


def test_a_search_that_one_episode_breaks_is_told() -> None:
    case = StrategyCase(Strategy("x", "X", nothing_left, Batch), team_in(SPREAD))
    strategies.repeats(case)
    with pytest.raises(IndexError):
        strategies.copes_with_one_episode(case)


# --- broken tasks


class Viewing(SPREAD_TASK):  # type: ignore[misc, valid-type]
    def read(self, env: Any) -> Any:
        state = super().read(env)
        kept = vars(env.unwrapped).setdefault("kept_state", state)
        kept[:] = state
        return kept


class Lazy(SPREAD_TASK):  # type: ignore[misc, valid-type]
    def reset(self, env: Any, seed: int) -> Any:
        return env.reset(seed=seed if vars(env.unwrapped).setdefault("first_seed", seed) == seed else seed + 1)


class Standing(SPREAD_TASK):  # type: ignore[misc, valid-type]
    def write(self, env: Any, state: Any, step: int) -> None:
        stopped = state.copy()
        self.everyone(stopped)[..., 2:] = 0
        super().write(env, stopped, step)


class Unmarked(SPREAD_TASK):  # type: ignore[misc, valid-type]
    def perturb(self, states: Any, rng: Any) -> Any:
        new, kept = super().perturb(states, rng)
        new[0] = states[0]
        return new, kept | True


class Unlawful(SPREAD_TASK):  # type: ignore[misc, valid-type]
    def perturb(self, states: Any, rng: Any) -> Any:
        new, kept = super().perturb(states, rng)
        return new * np.where(rng.random(new.shape) < 0.1, np.nan, 1), kept


class Rounded(SPREAD_TASK):  # type: ignore[misc, valid-type]
    def start_vectors(self, states: Any) -> Any:
        return np.round(super().start_vectors(states), 3)


class Welcoming(SPREAD_TASK):  # type: ignore[misc, valid-type]
    def starts_from(self, vectors: Any) -> Any:
        return super().starts_from(vectors)[0], np.ones(len(vectors), bool)


class Elsewhere(SPREAD_TASK):  # type: ignore[misc, valid-type]
    low, high = 5.0, 6.0


class Overflowing(SPREAD_TASK):  # type: ignore[misc, valid-type]
    def cells(self, states: Any, bins: int) -> Any:
        return super().cells(states, bins) + self.cell_count(bins)


class Unknowable(SPREAD_TASK):  # type: ignore[misc, valid-type]
    def features(self, starts: Any) -> Any:
        return np.full((len(starts), self.n_agents, 2), np.nan)


class Summary(SPREAD_TASK):  # type: ignore[misc, valid-type]
    def features(self, starts: Any) -> Any:
        return np.repeat((starts - starts.mean(axis=0))[:, None], self.n_agents, axis=1)


class Flat(SPREAD_TASK):  # type: ignore[misc, valid-type]
    def features(self, starts: Any) -> Any:
        return starts


class Nowhere(SPREAD_TASK):  # type: ignore[misc, valid-type]
    def start_places(self, starts: Any) -> Any:
        return np.full((len(starts), 3, 2), np.inf)


class Placeless(SPREAD_TASK):  # type: ignore[misc, valid-type]
    def start_places(self, starts: Any) -> Any:
        return starts


class Bodiless(SPREAD_TASK):  # type: ignore[misc, valid-type]
    def bodies_of_starts(self, size: int) -> Any:
        return np.zeros(size - 1, np.int64)


class Generous(SPREAD_TASK):  # type: ignore[misc, valid-type]
    allocations = {**SPREAD_TASK.allocations, "team": lambda state, reward: reward.sum(axis=-1)}  # noqa: RUF012


class Kernel:
    """The twin of spread, only that everybody is paid a little more."""

    def __init__(self, twin: Any) -> None:
        self._twin, self.reset, self.observe = twin, twin.reset, twin.observe

    def step(self, states: Any, running: Any, actions: Any, rewards: Any, *others: Any) -> None:
        self._twin.step(states, running, actions, rewards, *others)
        rewards += 1e-9


class Unequal(SPREAD_TASK):  # type: ignore[misc, valid-type]
    def twin(self, env: Any, allocation: str) -> Any:
        twin = super().twin(env, allocation)
        return twin and Kernel(twin)


class Cramped(SPREAD_TASK):  # type: ignore[misc, valid-type]
    def field(self, states: Any) -> Field:
        return replace(super().field(states), high=np.zeros(2))


class Alone(SPREAD_TASK):  # type: ignore[misc, valid-type]
    def field(self, states: Any) -> Field:
        return replace(super().field(states), kind="open")


class Different(SPREAD_TASK):  # type: ignore[misc, valid-type]
    @classmethod
    def rebuilt(cls, agents: int, key: str, env_args: Any) -> Task | None:
        return SPREAD_TASK.rebuilt(agents + 1, key, env_args)


class Greedy(SPREAD_TASK):  # type: ignore[misc, valid-type]
    @classmethod
    def recognises(cls, env: Any) -> bool:
        return True


class Late(SPREAD_TASK):  # type: ignore[misc, valid-type]
    name = "too_late"


BROKEN_TASKS: dict[type[Task], str] = {
    Viewing: "a state that was read changes when the environment goes on",
    Lazy: "after another episode",
    Standing: "a state that is written is not the state that is read then",
    Unmarked: "a state that did not change is not marked as refused",
    Unlawful: "perturbed state holds NaN",
    Rounded: "an initial state is not what it was",
    Welcoming: "they lie far outside [-1, 1]",
    Elsewhere: "outside of 5.0 to 6.0",
    Overflowing: "a cell lies outside",
    Unknowable: "a feature is NaN",
    Summary: "the features of a start change with the starts beside it",
    Flat: "features of 8 starts are (8, 18); they must be (8, 3, F)",
    Nowhere: "a place of a start is NaN or infinite",
    Placeless: "start_places of 8 starts are (8, 18)",
    Bodiless: "bodies_of_starts gives (11,) for 12 numbers",
    Generous: "the allocation team gives",
    Unequal: "the twin (allocation env) differs: rewards differs",
    Cramped: "leaves the window",
    Alone: "and field\n",
    Different: "n_agents is 3 in the environment and 4",
    Greedy: "takes environments that are not of its family",
    Late: "is taken by the task spread, which is asked before too_late",
}


@pytest.mark.parametrize("task", BROKEN_TASKS, ids=lambda task: task.__name__)
def test_a_task_that_breaks_its_contract_is_told_how(task: type[Task]) -> None:
    assert BROKEN_TASKS[task] in broken(check_task, task, SPREAD)


# --- broken engines


class Altered:
    """An engine whose episodes are changed by `change(tests, episodes)`."""

    def __init__(self, engine: Any, change: Callable[[Tests, Episodes], Any]) -> None:
        self.name, self._engine, self._change = "altered", engine, change
        self.initial_states = engine.initial_states

    def execute(self, tests: Tests) -> Episodes:
        return self._change(tests, self._engine.execute(tests))


def noisy(tests: Tests, episodes: Episodes) -> Episodes:
    return replace(episodes, rewards=episodes.rewards * np.random.default_rng().random())


def crowded(tests: Tests, episodes: Episodes) -> Episodes:
    return replace(episodes, rewards=episodes.rewards * (1 + 1e-15 * len(tests)))


def deep(tests: Tests, episodes: Episodes) -> Episodes:
    far = np.arange(len(tests)) >= 256
    return replace(episodes, q=np.where(far[:, None, None, None], episodes.q + 1, episodes.q))


def shapeless(tests: Tests, episodes: Episodes) -> Episodes:
    return episodes if len(tests) else replace(episodes, rewards=np.empty((0, 0, 0)))


def unruly(tests: Tests, episodes: Episodes) -> Episodes:
    actions = episodes.actions.copy()
    actions[:, 2:][episodes.running[:, 2:]] = 0
    return replace(episodes, actions=actions)


def forgetful(tests: Tests, episodes: Episodes) -> Episodes:
    return replace(episodes, parent=np.full_like(episodes.parent, -1))


def without_past(tests: Tests, episodes: Episodes) -> Episodes:
    past = np.arange(episodes.limit) < tests.start_step[:, None]
    return replace(episodes, q=np.where(past[..., None, None], 0, episodes.q).astype(np.float32))


def spoiling(tests: Tests, episodes: Episodes) -> Episodes:
    tests.stream += np.uint64(1)
    return episodes


def envious(tests: Tests, episodes: Episodes) -> Episodes:
    return episodes if tests.of is None else replace(episodes, rewards=2 * episodes.rewards)


BROKEN_ENGINES = {
    noisy: "other episodes the second time",
    crowded: "an episode changes with the tests beside it",
    deep: "an episode changes behind 256 others",
    shapeless: "rewards of 0 episodes has the shape (0, 0, 0)",
    unruly: "a forced action was not taken",
    forgetful: "parent is not that of the tests",
    without_past: "q before the start of a test are not those of its prefix",
    spoiling: "the second time",
    envious: "tests that share their pasts give other episodes",
}


@pytest.mark.parametrize("change", BROKEN_ENGINES, ids=lambda change: change.__name__)
def test_an_engine_that_breaks_its_contract_is_told_how(change: Any) -> None:
    team = team_in(SPREAD)
    assert BROKEN_ENGINES[change] in broken(check_engine, Altered(engine_of(team, "twin"), change), team)


# --- broken indices


def share_of_the_first(x: Any) -> Any:
    return np.abs(x[..., 0]) / np.maximum(np.abs(x).sum(axis=-1), 1e-300)


def jain(x: Any) -> Any:
    return INDICES["jfi"](np.asarray(x))


BROKEN_INDICES = {
    "above one": (lambda x: 2 * jain(x), "it must be in [0, 1]"),
    "one number": (lambda x: jain(x).mean(), "it must be one number per row"),
    "never one": (lambda x: 0.5 * jain(x), "not 1"),
    "zero for nothing": (lambda x: np.nan_to_num(jain(x)), "it must be NaN"),
    "scaled": (lambda x: np.where(jain(x) > 0.99, 1, jain(x) / (1 + np.abs(x).max(axis=-1))), "changes with its scale"),
    "of the first": (
        lambda x: np.where(jain(x) > 0.99, jain(x), share_of_the_first(x) * jain(x)),
        "changes with the order of the agents",
    ),
    "of the batch": (
        lambda x: np.where(jain(x) > 0.99, jain(x), jain(x) * (0.9 if np.ndim(x) > 1 else 1)),
        "changes with the rows beside it",
    ),
    "no label": (jain, "the index lacks label"),
    "too high": (jain, "below its lowest value 0.9"),
}


@pytest.mark.parametrize("why", BROKEN_INDICES)
def test_an_index_that_breaks_its_contract_is_told_how(why: str) -> None:
    function, message = BROKEN_INDICES[why]
    lowest = 0.9 if why == "too high" else 0.0
    index = Index("x", "" if why == "no label" else "X", function, lowest=lambda agents: lowest)
    assert message in broken(check_index, index)


# --- broken steps


@pytest.fixture
def purposes() -> Iterator[None]:
    assert [*STRATEGIES, *STEPS]  # all purposes of our own are known before they are remembered
    known = dict(PURPOSES)
    purpose("trial", "a step of the tests")
    yield
    PURPOSES.clear()
    PURPOSES.update(known)


def step_of(**left: Any) -> Callable[[Any], Any]:
    """A step that executes three random tests and leaves this; functions are called with the number of failures."""

    def run(context: Any) -> Any:
        yield Execute(random_tests(3, context.team.task.state_size, context.generator("trial")))
        count = context.recorded.failure_count()
        return Outcome(**{name: value(count) if callable(value) else value for name, value in left.items()})

    return run


def column(count: int) -> Any:
    return {"column": np.arange(count)}


def taken(name: str) -> Any:
    return {name: {"x": np.zeros(2)}}


BROKEN_STEPS: dict[str, tuple[Step, str]] = {
    "no purpose": (Step("x", "doing x", "fun", step_of()), "fun is not a known purpose"),
    "charged": (Step("x", "doing x", EXECUTION, step_of()), "a step must not spend the budget"),
    "taken purpose": (Step("x", "doing x", "replay", step_of()), "the purpose of replay already"),
    "no phase": (Step("x", "", "trial", step_of()), "the step lacks phase"),
    "one short": (
        Step("x", "doing x", "trial", step_of(columns=lambda count: column(count - 1 if count else 0))),
        "failures",
    ),
    "two values": (
        Step("x", "doing x", "trial", step_of(columns=lambda count: {"column": np.zeros((count, 2))})),
        "the column column has the shape",
    ),
    "nothing without failures": (
        Step("x", "doing x", "trial", step_of(columns=lambda count: column(count) if count else {})),
        "with failures and [] without",
    ),
    "taken key": (Step("x", "doing x", "trial", step_of(summary={"failures": 0})), "the summary has failures already"),
    "taken file": (Step("x", "doing x", "trial", step_of(files=taken("failures.npz"))), "which is a file of the run"),
    "text file": (Step("x", "doing x", "trial", step_of(files=taken("notes.txt"))), "only .npz files"),
    "unseeded": (
        Step("x", "doing x", "trial", step_of(columns=lambda count: {"column": np.random.default_rng().random(count)})),
        "the columns differ the second time",
    ),
    "no paragraphs": (
        Step("x", "doing x", "trial", step_of(), section=lambda summary: [1]),  # type: ignore[list-item]
        "not paragraphs",
    ),
}


@pytest.mark.parametrize("why", BROKEN_STEPS)
def test_a_step_that_breaks_its_contract_is_told_how(why: str, purposes: None) -> None:
    step, message = BROKEN_STEPS[why]
    assert message in broken(check_step, step, team_in(SPREAD))


def test_a_good_step_that_is_not_registered_is_checked(purposes: None) -> None:
    check_step(Step("x", "doing x", "trial", step_of(columns=column, summary={"x": 1})), team_in(SPREAD))
