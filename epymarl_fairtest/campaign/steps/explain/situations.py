"""What failures have in common, in words: rules on named features of the start and of what happened.

Learned on some random executions and judged on others, so that precision, recall and base rate are those of the team
as it is. A rule that does not beat twice the base rate is not shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.campaign.steps.contract import Aftermath, Execute
from epymarl_fairtest.campaign.steps.explain.answers import number
from epymarl_fairtest.campaign.steps.explain.cases import Asking
from epymarl_fairtest.campaign.steps.explain.rules import Features, Mask, learned
from epymarl_fairtest.core.episodes import Episodes, random_tests
from epymarl_fairtest.core.statistics import rate_of

LEARN, JUDGE = 2000, 3000  # fresh random executions, where there is a compiled twin
AT_ONCE = 1000
RULES = 3  # of each kind
LEAST_LIFT = 2.0  # times the base rate
START, COURSE = "start", "course"


@dataclass
class Executions:
    """Random executions as features; `course` is empty where only their starts are known."""

    start: dict[str, NDArray[np.float64]]
    course: dict[str, NDArray[np.float64]]
    unfair: Mask


def situations(context: Aftermath, failures: Executions) -> Asking[list[dict[str, Any]]]:
    """Rules, the most telling first; `failures` are those that were explained, to count whom a rule covers."""
    known = _on_record(context)
    if context.engine == "twin":
        fresh = yield from _fresh(context, "learn", LEARN)
        judging = yield from _fresh(context, "judge", JUDGE)
        learning = joined(known, fresh)
    else:
        half = np.arange(len(known.unfair)) % 2 == 0
        learning, judging, fresh = taken(known, half), taken(known, ~half), taken(known, half)
    found = [
        *_telling(START, learning.start, learning.unfair, judging.start, judging.unfair, failures.start),
        *_telling(COURSE, fresh.course, fresh.unfair, judging.course, judging.unfair, failures.course),
    ]
    return sorted(found, key=lambda one: -one["precision"] * one["recall"])


def _telling(
    kind: str, learning: Features, unfair: Mask, judging: Features, judged: Mask, failures: Features
) -> list[dict[str, Any]]:
    """Rules for the unfair executions of `learning`, as entries of explain.json with what they are worth on `judging`;
    those only that tell them apart twice as well as chance."""
    if not learning or not judging or not unfair.any() or not judged.any():
        return []
    base, telling = float(judged.mean()), []
    for rule in learned(learning, unfair, RULES):
        covered = rule.holds(judging)
        hits, size = int((covered & judged).sum()), int(covered.sum())
        if hits and hits / size >= LEAST_LIFT * base:
            often = rate_of(hits, size)
            telling.append(
                {
                    "rule": str(rule),
                    "kind": kind,
                    "size": int(rule.holds(failures).sum()) if failures else 0,
                    "precision": often.estimate,
                    "precision_low": number(often.low),
                    "precision_high": number(often.high),
                    "recall": hits / int(judged.sum()),
                    "base_rate": base,
                    "covered": size,
                    "executions": len(judged),
                    "conditions": [
                        {"feature": one.feature, "above": one.above, "threshold": one.threshold}
                        for one in rule.conditions
                    ],
                }
            )
    return telling


def features_of(context: Aftermath, episodes: Episodes, unfair: Mask) -> Executions:
    task = context.team.task
    with np.errstate(all="ignore"):  # a stranger's feature may divide by nothing: no condition holds there
        start, course = task.situation(episodes.states[:, 0]), task.course(episodes.states, episodes.length)
    return Executions(start, course, unfair)


def joined(one: Executions, other: Executions) -> Executions:
    """The starts of both; what happened is not known of both."""
    if not len(one.unfair):
        return other
    start = {name: np.concatenate([one.start[name], values]) for name, values in other.start.items()}
    return Executions(start, {}, np.concatenate([one.unfair, other.unfair]))


def together(parts: list[Executions]) -> Executions:
    """All of these; they know the same features."""
    if not parts:
        return Executions({}, {}, np.empty(0, bool))
    return Executions(
        {name: np.concatenate([part.start[name] for part in parts]) for name in parts[0].start},
        {name: np.concatenate([part.course[name] for part in parts]) for name in parts[0].course},
        np.concatenate([part.unfair for part in parts]),
    )


def taken(some: Executions, rows: Mask) -> Executions:
    return Executions({name: values[rows] for name, values in some.start.items()}, {}, some.unfair[rows])


def _on_record(context: Aftermath) -> Executions:
    """The run's own random executions from starts that nobody chose: their starts, and which were unfair."""
    executions, nothing = context.executions, Executions({}, {}, np.empty(0, bool))
    if not executions or "initial_state" not in executions or not executions["initial_state"].shape[1]:
        return nothing
    rows = executions["random"] & (executions["operator"] == "seed") & ~np.isnan(executions["index"])
    if not rows.any():
        return nothing
    start = context.team.task.situation(executions["initial_state"][rows])
    return Executions(start, {}, executions["index"][rows] <= context.judge.theta)


def _fresh(context: Aftermath, what: str, count: int) -> Asking[Executions]:
    tests = random_tests(count, context.team.task.state_size, context.generator("explain", "situations", what))
    parts = []
    for first in range(0, count, AT_ONCE):
        judged = context.judge((yield Execute(tests.take(slice(first, first + AT_ONCE)))))
        parts.append(features_of(context, judged.episodes, judged.unfair))
    return together(parts)
