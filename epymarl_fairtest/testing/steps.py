"""What every step after the search keeps to: `check_step(STEP, team)`."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from epymarl_fairtest.campaign.steps import STEPS
from epymarl_fairtest.campaign.steps.contract import Outcome, Step, complaint
from epymarl_fairtest.campaign.summary import summarise
from epymarl_fairtest.core.ledger import ACCOUNTINGS, PURPOSES, is_charged
from epymarl_fairtest.engine.selection import twin_of
from epymarl_fairtest.store.run import RESULTS
from epymarl_fairtest.strategies import configure
from epymarl_fairtest.team.contract import Team
from epymarl_fairtest.testing.comparing import difference
from epymarl_fairtest.testing.running import Searched, searched

BUDGET = 40
FEW = 2  # failures that are explained
ALL, NONE = 1.0, 1e-9  # thresholds: every episode whose index is defined is unfair, or (almost) none is


@dataclass
class StepCase:
    """A step, and searches that it may follow: one that found many failures, and one that found none."""

    step: Step
    team: Team

    @cached_property
    def many(self) -> Searched:
        done = self._searched(ALL)
        count = done.run.folder.failure_count()
        assert count, "no agent of this team ever receives anything: choose another team, or a longer time limit"
        return done

    @cached_property
    def none(self) -> Searched:
        return self._searched(NONE)

    def _searched(self, theta: float) -> Searched:
        engine = "lockstep" if twin_of(self.team) is None else "twin"
        given = {
            "method": "random",
            "batch": 16,
            "budget": BUDGET,
            "replay": 10,
            "explain": FEW,
            "engine": engine,
            "workers": 1,
        }
        return searched(self.team, configure({**given, "theta": theta}))

    @cached_property
    def outcome(self) -> Outcome:
        return self.many.run.take(self.step)


def check_step(step: Step, team: Team) -> None:
    """All of the contract; an AssertionError says what is not kept."""
    case = StepCase(step, team)
    for contract in CONTRACTS:
        contract(case)


# --- the contracts ------------------------------------------------------------------------------------


def is_complete(case: StepCase) -> None:
    """It has all its parts, and a purpose of its own that no budget is charged for."""
    lacking = complaint(case.step)
    assert lacking is None, f"the step {lacking}"
    purpose = case.step.purpose
    assert purpose in PURPOSES, f"{purpose} is not a known purpose: make it known with core.ledger.purpose"
    charged = [accounting for accounting in ACCOUNTINGS if is_charged(purpose, accounting)]
    assert not charged, f"{purpose} is charged ({', '.join(charged)}): a step must not spend the budget of the search"
    others = [step.name for step in STEPS.values() if step.purpose == purpose and step.name != case.step.name]
    assert not others, f"{purpose} is the purpose of {', '.join(others)} already"


def repeats(case: StepCase) -> None:
    """The same failures give the same outcome: a resumed run simply takes its steps again."""
    again = case.many.run.take(case.step)
    assert again.summary == case.outcome.summary, f"summary {case.outcome.summary} and then {again.summary}"
    unlike = difference(dict(case.outcome.columns), dict(again.columns))
    assert unlike is None, f"the columns differ the second time: {unlike}"
    assert case.outcome.files.keys() == again.files.keys(), "other files the second time"
    for name, arrays in case.outcome.files.items():
        unlike = difference(dict(arrays), dict(again.files[name]))
        assert unlike is None, f"{name} differs the second time: {unlike}"
    assert case.outcome.documents == again.documents, "its documents say something else the second time"


def charges_its_purpose_alone(case: StepCase) -> None:
    """Everything it executes is on its own account, and nothing else is."""
    run = case.many.run
    before, executed = run.ledger.as_dict(), _executed(case)
    run.take(case.step)
    after = run.ledger.as_dict()
    changed = {purpose for purpose in after if after[purpose] != before.get(purpose)}
    assert changed <= {case.step.purpose}, f"it is charged to {', '.join(sorted(changed - {case.step.purpose}))}"
    nothing = {"episodes": 0, "steps": 0}
    old, new = (account.get(case.step.purpose, nothing) for account in (before, after))
    charged = new["episodes"] - old["episodes"], new["steps"] - old["steps"]
    done = tuple(now - then for now, then in zip(_executed(case), executed, strict=True))
    assert charged == done, f"{charged} episodes and steps are charged, {done} were executed"


def _executed(case: StepCase) -> tuple[int, int]:
    """Episodes and steps so far, of the run's engine and of the real environment."""
    recorder, real = case.many.engine, case.many.run.real
    if recorder.around(real):  # the real environment is the run's engine itself
        return real.episodes, real.steps
    return recorder.episodes + real.episodes, recorder.steps + real.steps


def adds_one_value_per_failure(case: StepCase) -> None:
    """To every column, also where there is no failure."""
    for done, outcome in ((case.many, case.outcome), (case.none, case.none.run.take(case.step))):
        count = done.run.folder.failure_count()
        for name, column in outcome.columns.items():
            assert column.shape == (count,), f"the column {name} has the shape {column.shape} for {count} failures"
            assert column.dtype.kind in "biufU", f"the column {name} holds {column.dtype}: numbers or text are allowed"
    wanted, there = case.outcome.columns.keys(), case.none.run.take(case.step).columns.keys()
    assert wanted == there, f"the columns are {sorted(wanted)} with failures and {sorted(there)} without"


def adds_to_the_summary(case: StepCase) -> None:
    """Keys of its own, that JSON can hold; the page's words follow from the summary."""
    run = case.many.run
    plain = summarise(run.context, run.engine, run.tally, run.ledger, run.clock, {})
    taken = sorted(plain.keys() & case.outcome.summary.keys())
    assert not taken, f"the summary has {', '.join(taken)} already"
    json.dumps(dict(case.outcome.summary), allow_nan=False)
    words = case.step.section({**plain, **case.outcome.summary})
    assert all(isinstance(word, str) for word in words), f"the section of the page is {words!r}, not paragraphs"


def leaves_files_of_its_own(case: StepCase) -> None:
    for name, arrays in case.outcome.files.items():
        assert name.endswith(".npz"), f"it writes {name}; only .npz files are written"
        assert name not in RESULTS, f"it writes {name}, which is a file of the run"
        held = [key for key, array in arrays.items() if np.asarray(array).dtype.kind == "O"]
        assert not held, f"{name} holds objects in {', '.join(held)}: they cannot be read without pickle"
    for name, content in case.outcome.documents.items():
        assert name.endswith(".json"), f"it writes the document {name}; only .json files are written"
        json.dumps(dict(content), allow_nan=False)


CONTRACTS: tuple[Callable[[StepCase], None], ...] = (
    is_complete,
    repeats,
    charges_its_purpose_alone,
    adds_one_value_per_failure,
    adds_to_the_summary,
    leaves_files_of_its_own,
)
