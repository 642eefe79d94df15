"""What every strategy keeps to: `check_strategy(STRATEGY, team)`, with any team that a search of it can test."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from epymarl_fairtest.campaign.observers import Observer
from epymarl_fairtest.campaign.run import run
from epymarl_fairtest.core.episodes import operator_code, random_tests
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.indices.jain import jfi
from epymarl_fairtest.core.judged import totals
from epymarl_fairtest.core.ledger import ACCOUNTINGS, PURPOSES
from epymarl_fairtest.engine.selection import twin_of
from epymarl_fairtest.settings import Settings, fields_of, is_whole
from epymarl_fairtest.store.run import RunFolder
from epymarl_fairtest.strategies import STRATEGIES, configure
from epymarl_fairtest.strategies.contract import Strategy, complaint
from epymarl_fairtest.tasks.contract import ABILITIES, Task
from epymarl_fairtest.team.contract import Team
from epymarl_fairtest.testing.comparing import arrays_of, difference
from epymarl_fairtest.testing.running import Searched, searched
from epymarl_fairtest.testing.teams import engine_of

SMALL = 8  # the most that a whole-number option is set to, so that a small budget sees every part of a search
BUDGETS = (48, 96, 192, 384, 768)  # the first that the strategy accepts is taken
FIRST = 3  # batches until the first interruption; the next comes after twice as many
NONSENSE: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    0.5,
    1.5,
    2**70,
    float("nan"),
    float("inf"),
    "nonsense",
    "",
    [],
    {},
    ["x"],
    object(),
)
OFFERED_BY = {"restorable": ("write", "perturb", "observe"), "proposable": ("start_vectors", "starts_from")}
FILES = ("failures.npz", "failures.csv", "executions.npz", "evidence.npz", "journal.jsonl")
TIMES = ("wall_seconds", "cpu_seconds", "phases")


@dataclass
class StrategyCase:
    """A strategy, a team for it to test, and settings with which a search of it is over in a moment.

    Whole-number options are set to 8 at most, unless they are among the given `options`; half of the team's random
    executions are called unfair.
    """

    strategy: Strategy
    team: Team
    options: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def settings(self) -> Settings:
        """With the smallest budget that the strategy accepts."""
        refusal: FairTestError | None = None
        for budget in BUDGETS:
            chosen = self.configured(budget=budget)
            try:
                self.strategy.check_settings(chosen)
                return chosen
            except FairTestError as error:
                refusal = error
        raise AssertionError(f"{self.strategy.name} refuses a budget of {BUDGETS[-1]} episodes: {refusal}")

    def configured(self, **given: Any) -> Settings:
        """The settings as a user would give them."""
        small = {"engine": self._engine, "theta": self._theta, "workers": 1, "replay": 5, "report": False}
        with STRATEGIES.having(self.strategy):
            options = {**small_options(self.strategy), **self.options}
            return configure({**small, "method": self.strategy.name, "options": options, **given})

    def searched(self, settings: Settings, seed: int = 0, team: Team | None = None) -> Searched:
        with STRATEGIES.having(self.strategy):
            return searched(team or self.team, settings, seed)

    @cached_property
    def first(self) -> Searched:
        """A search with seed 0; several contracts look at it."""
        return self.searched(self.settings)

    @cached_property
    def lacking(self) -> list[str]:
        """What the strategy needs and the team's task does not offer."""
        return [need for need in self.strategy.needs if not getattr(self.team.task, need)]

    @cached_property
    def _engine(self) -> str:
        return "lockstep" if twin_of(self.team) is None else "twin"

    @cached_property
    def _theta(self) -> float:
        """Half of the random executions do not exceed it."""
        tests = random_tests(64, self.team.task.state_size, np.random.default_rng(0))
        index = jfi(totals(engine_of(self.team, self._engine, epsilon=0.05).execute(tests).rewards))
        return self.team.task.theta if np.isnan(index).all() else float(np.nanmedian(index))


def small_options(strategy: Strategy) -> dict[str, Any]:
    """Options that are whole numbers, made small where their rules allow it."""
    defaults: dict[str, Any] = {name: one.default for name, one in fields_of(strategy.options).items()}
    rules = {name: one.metadata["rule"] for name, one in fields_of(strategy.options).items()}
    large = [name for name, value in defaults.items() if is_whole(value) and value > SMALL]
    return {name: SMALL for name in large if rules[name].holds(SMALL)}


def check_strategy(strategy: Strategy, team: Team, **options: Any) -> None:
    """All of the contract; an AssertionError says what is not kept. `options` are the strategy's own."""
    case = StrategyCase(strategy, team, options)
    for contract in CONTRACTS:
        contract(case)


# --- the contracts ------------------------------------------------------------------------------------


def is_complete(case: StrategyCase) -> None:
    """It has all its parts, and each option a rule, a meaning and a default that the rule allows."""
    lacking = complaint(case.strategy)
    assert lacking is None, f"the strategy {lacking}"
    for name, one in fields_of(case.strategy.options).items():
        rule = one.metadata["rule"]
        assert one.metadata["doc"], f"the option {name} does not say what it means"
        assert rule.holds(one.default), f"the option {name} has the default {one.default!r}; it must be {rule.allowed}"
    unknown = [purpose for purpose in case.strategy.random if purpose not in PURPOSES]
    assert not unknown, f"random executions under {', '.join(unknown)}: known purposes are {', '.join(PURPOSES)}"


def honours_its_needs(case: StrategyCase) -> None:
    """It is refused where a task lacks what it needs, and needs nothing else."""
    strategy, team = case.strategy, case.team
    for need in strategy.needs:
        message = _refusal(strategy.check_settings, case.settings, without(team.task, need))
        assert message, f"{strategy.name} needs `{need}` and is not refused by a task that lacks it"
        assert ABILITIES[need] in message, f"refused without saying that it needs {ABILITIES[need]}: {message}"
    if case.lacking:
        return
    others = [ability for ability in ABILITIES if ability not in strategy.needs]
    poorer = replace(team, task=without(team.task, *others))
    strategy.check_settings(case.settings, poorer.task)
    for batch in case.searched(case.settings, team=poorer).batches:
        given = ~batch.tests.from_seed
        if "restorable" not in strategy.needs:
            assert not batch.tests.start_step.any(), f"{strategy.name} starts in the middle; it needs `restorable`"
        if not strategy.needs:
            assert not given.any(), f"{strategy.name} starts from states of its own; it needs `proposable`"


def repeats(case: StrategyCase) -> None:
    """The same seed gives the same search, bit for bit; another seed gives another one."""
    if case.lacking:
        return
    again, other = case.searched(case.settings), case.searched(case.settings, seed=1)
    unlike = _search_difference(case.first, again)
    assert unlike is None, f"the same seed gives another search: {unlike}"
    assert _search_difference(case.first, other) is not None, "another seed gives the same search"


def keeps_its_accounts(case: StrategyCase) -> None:
    """In both accountings it stays within the budget, and what the ledger says is what was executed."""
    if case.lacking:
        return
    for accounting in ACCOUNTINGS:
        chosen = case.settings if accounting == case.settings.accounting else case.configured(
            budget=case.settings.budget, accounting=accounting
        )  # fmt: skip
        done = case.first if chosen is case.settings else case.searched(chosen)
        ledger, charged = done.ledger, done.ledger.charged(accounting)
        assert charged <= chosen.budget, f"{charged} episodes are charged ({accounting}), the budget is {chosen.budget}"
        assert done.engine.episodes > 0, f"nothing was executed ({accounting})"
        sums = {
            "episodes": (ledger.executed_episodes, done.engine.episodes),
            "steps": (ledger.executed_steps, done.engine.steps),
        }
        for what, (charged, executed) in sums.items():
            assert charged == executed, f"the ledger has {charged} executed {what}, the engine executed {executed}"
        for purpose in ledger.episodes:
            assert purpose in PURPOSES, f"{purpose} is not a known purpose"
            steps = sum(batch.judged.episodes.executed_steps() for batch in done.executed(purpose))
            assert ledger.steps[purpose] == steps, f"{ledger.steps[purpose]} steps under {purpose}, executed {steps}"


def random_executions_are_random(case: StrategyCase) -> None:
    """Under the purposes it calls random it executes the team as it is, from fresh seeds, and forces nothing."""
    if case.lacking:
        return
    streams: set[int] = set()
    for batch in case.first.batches:
        if batch.purpose not in case.strategy.random:
            continue
        tests, drawn = batch.tests, set(batch.tests.stream.tolist())
        wrong = {
            "another operator than seed": (tests.operator != operator_code("seed")).any(),
            "a state that was given": (~tests.from_seed).any(),
            "a start in the middle": tests.start_step.any(),
            "a stream that does not begin at its beginning": tests.shift.any(),
            "a stream that was used before": len(drawn) < len(tests) or drawn & streams,
            "forced actions": tests.forced is not None and (tests.forced >= 0).any(),
            "a parent": (tests.parent >= 0).any(),
        }
        broken = [name for name, holds in wrong.items() if holds]
        assert not broken, f"{batch.purpose} is called random, and its tests have {', '.join(broken)}"
        streams |= drawn


def resumes(case: StrategyCase) -> None:
    """Interrupted after 3, 6, 12, … batches and once between search and steps, it ends as if nothing had happened."""
    if case.lacking:
        return
    with tempfile.TemporaryDirectory(prefix="fairtest-contract-") as folder, STRATEGIES.having(case.strategy):
        whole, stopped = Path(folder) / "whole", Path(folder) / "stopped"
        expected, interruptions = _finished(case, whole, None), 0
        stop = Stop(FIRST)
        while (summary := _finished(case, stopped, stop)) is None:
            interruptions += 1
            stop = Stop(2 * stop.batches, steps=stop.steps)
        assert interruptions, "the search was never interrupted"
        assert expected is not None
        for name in expected.keys() - TIMES:
            assert summary[name] == expected[name], (
                f"{name} is {summary[name]} after {interruptions} interruptions and {expected[name]} without"
            )
        for name in FILES:
            same = (whole / name).read_bytes() == (stopped / name).read_bytes()
            assert same, f"{name} differs after {interruptions} interruptions"


class Stop(Observer):
    """Ctrl-C after so many batches, and once where the steps after the search begin."""

    def __init__(self, batches: int, *, steps: bool = True) -> None:
        self.batches, self.steps, self._seen = batches, steps, 0

    def executed(self, charged: int, failures: int) -> None:
        self._seen += 1
        if self._seen == self.batches:
            raise KeyboardInterrupt

    def doing(self, phase: str) -> None:
        if self.steps:
            self.steps = False
            raise KeyboardInterrupt


def _finished(case: StrategyCase, path: Path, stop: Stop | None) -> dict[str, Any] | None:
    """The run in `path`, begun or resumed; None where it was stopped."""
    folder = RunFolder.resume(path) if path.exists() else RunFolder(path)
    watching = [] if stop is None else [stop]
    try:
        return run(case.team, case.settings, folder, seed=0, command="", warn=_ignore, observers=watching)
    except KeyboardInterrupt:
        return None


def _ignore(message: str) -> None:
    pass


def refuses_wrong_options(case: StrategyCase) -> None:
    """A value that an option's rule does not allow is refused by name and rule, an unknown option with the nearest."""
    known = fields_of(case.strategy.options)
    for name, one in known.items():
        wrong = [value for value in NONSENSE if not _holds(one.metadata["rule"], name, value)]
        assert wrong, f"the rule of the option {name} allows everything"
        for value in wrong:
            message = _refusal(case.configured, options={name: value})
            assert message, f"the option {name} takes {value!r}, which its rule does not allow"
            assert name in message, f"options.{name}={value!r} is refused without its name: {message}"
            assert one.metadata["rule"].allowed in message, (
                f"options.{name} is refused without what is allowed: {message}"
            )
        message = _refusal(case.configured, options={f"{name}x": one.default})
        assert f"Did you mean {name}?" in message, f"options.{name}x is not answered with {name}: {message!r}"
    message = _refusal(case.configured, options={"certainly_unknown": 1})
    assert message, f"{case.strategy.name} takes an option that it does not have"


def _holds(rule: Any, name: str, value: Any) -> bool:
    try:
        return bool(rule.holds(value))
    except Exception as error:
        raise AssertionError(f"the rule of the option {name} raises {error!r} for {value!r}") from error


def _refusal(attempt: Callable[..., object], *arguments: Any, **named: Any) -> str:
    """What the user is told; empty where nothing is refused."""
    try:
        attempt(*arguments, **named)
    except FairTestError as error:
        return str(error)
    return ""


def copes_with_one_episode(case: StrategyCase) -> None:
    """A budget of one episode is refused with a word about the budget, or kept."""
    if case.lacking:
        return
    chosen = case.configured(budget=1)
    message = _refusal(case.strategy.check_settings, chosen, case.team.task)
    if message:
        assert "budget" in message, f"a budget of 1 is refused without saying so: {message}"
        return
    done = case.searched(chosen)
    assert done.ledger.charged("strict") <= 1, f"a budget of 1 is charged with {done.ledger.charged('strict')} episodes"


CONTRACTS = (
    is_complete,
    honours_its_needs,
    repeats,
    keeps_its_accounts,
    random_executions_are_random,
    resumes,
    refuses_wrong_options,
    copes_with_one_episode,
)


# --- what they share ----------------------------------------------------------------------------------


def without(task: Task, *abilities: str) -> Task:
    """The same task, only that it does not offer these abilities."""

    def refuse(self: Task, *arguments: Any) -> Any:
        raise AssertionError(f"a task is asked for what it does not offer ({', '.join(abilities)}): name it in `needs`")

    lost: dict[str, Any] = {name: refuse for ability in abilities for name in OFFERED_BY[ability]}
    poorer = copy.copy(task)
    poorer.__class__ = type(type(task).__name__, (type(task),), lost | dict.fromkeys(abilities, False))
    for ability in abilities:  # of a task that found out about itself
        poorer.__dict__.pop(ability, None)
    return poorer


def _search_difference(a: Searched, b: Searched) -> str | None:
    """Where two searches part; None where they are the same."""
    for number, (one, other) in enumerate(zip(a.batches, b.batches, strict=False)):
        if one.purpose != other.purpose:
            return f"batch {number} is for {one.purpose} and {other.purpose}"
        for left, right in ((one.tests, other.tests), (one.judged.episodes, other.judged.episodes)):
            unlike = difference(arrays_of(left), arrays_of(right))
            if unlike is not None:
                return f"batch {number}, {unlike}"
    if len(a.batches) != len(b.batches):
        return f"{len(a.batches)} and {len(b.batches)} batches"
    if a.ledger != b.ledger:
        return f"{a.ledger} and {b.ledger}"
    first, second = a.run.context, b.run.context
    if repr(first.notes) != repr(second.notes):
        return f"notes {first.notes} and {second.notes}"
    return difference(first.evidence, second.evidence)
