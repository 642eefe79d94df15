"""Choosing the fairest checkpoint that loses little return, and judging it on executions that did not choose it.

Three sets of executions, none of which shares a start: those of the curve say which teams come into question, the
second set chooses among them, the third judges the choice against the final team, start by start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from epymarl_fairtest.core.numbers import as_given, percent, with_interval
from epymarl_fairtest.core.statistics import sign_test
from epymarl_fairtest.curve.marks import best_return, fairest, least_return, loss_of
from epymarl_fairtest.curve.point import Played, Point, point_of

ALPHA = 0.05
SLACK = 2  # times the allowed loss: by few executions of the curve a team may look worse than it is
CHOOSING, JUDGING = "choosing", "judging"
Play = Callable[[int, str], Played]  # the executions of one set by the team of a step


@dataclass(frozen=True)
class Choice:
    """What came out; the points are those of the fresh executions."""

    chosen: Point
    final: Point
    best: Point  # of those that chose, the one with the best return
    candidates: int
    fairer: int  # starts at which the final team is unfair and the chosen one is not
    less_fair: int
    p: float  # exact, one-sided
    loss: float  # of the best return, in fresh executions
    max_loss: float

    @property
    def shown(self) -> bool:
        """Is the chosen team shown to be fairer than the final one, within the loss?"""
        return self.chosen.step != self.final.step and self.p < ALPHA and self.loss <= self.max_loss

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "shown": self.shown}


def in_question(points: Mapping[int, Point], steps: Sequence[int], max_loss: float) -> list[int]:
    """The saved steps that may be chosen, by the curve; a team without a point on it is given the chance, too."""
    known = [points[step] for step in steps if step in points]
    best = best_return(known)
    if best is None:
        return list(steps)
    least = least_return(best.team_return, SLACK * max_loss)
    return [step for step in steps if step not in points or points[step].team_return >= least]


def choose(steps: Sequence[int], points: Mapping[int, Point], play: Play, max_loss: float) -> Choice:
    """Among the saved `steps`, the last of which is the final team."""
    final = steps[-1]
    near = in_question(points, steps, max_loss)
    chosen_by = [point_of(step, play(step, CHOOSING)) for step in near]
    best = best_return(chosen_by)
    assert best is not None
    fair = fairest(chosen_by, max_loss) or best
    judged = {step: play(step, JUDGING) for step in {fair.step, final, best.step}}
    ours, theirs = judged[fair.step].unfair, judged[final].unfair
    fairer, less = int(np.sum(theirs & ~ours)), int(np.sum(ours & ~theirs))
    fresh = {step: point_of(step, played) for step, played in judged.items()}
    most = max(fresh[best.step].team_return, fresh[fair.step].team_return)
    return Choice(
        fresh[fair.step], fresh[final], fresh[best.step], len(near), fairer, less, sign_test(fairer, less),
        loss_of(fresh[fair.step].team_return, most), max_loss,
    )  # fmt: skip


def verdict(choice: Choice) -> str:
    """In a sentence or two."""
    chosen, final, best = choice.chosen, choice.final, choice.best
    count = f"{chosen.executions:,} fresh executions"

    def rate(point: Point) -> str:
        measured = point.rate
        return "undefined" if measured is None else with_interval(measured.estimate, measured.low, measured.high)

    if chosen.step == final.step:
        return (
            f"No checkpoint is shown to be fairer: of {choice.candidates} in question the final team, of step"
            f" {final.step:,}, is the fairest within {as_given(choice.max_loss)} of the best return; its natural rate"
            f" is {rate(final)} in {count}."
        )
    compared = (
        f"natural rate {rate(chosen)}, the final team's (step {final.step:,}) {rate(final)} in the same {count}; fairer"
        f" at {choice.fairer:,} starts, less fair at {choice.less_fair:,}, exact sign test p = {choice.p:.2g}. It loses"
        f" {percent(max(choice.loss, 0))} of the best return (step {best.step:,})"
    )
    if choice.shown:
        return f"The team of step {chosen.step:,} is fairer than the final one: {compared}."
    why = "it is not shown to be fairer" if choice.loss <= choice.max_loss else "in fresh executions it loses too much"
    return f"No checkpoint is shown to be fairer. The fairest, of step {chosen.step:,}: {compared}; {why}."
