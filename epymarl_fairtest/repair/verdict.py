"""What a repair was worth, seed by seed: repaired, levelled down or not repaired. Knows numbers alone.

On the same fresh starts, against the team before and against the control: the rate falls if the upper end of its
interval lies below both of theirs; the return counts against the team before; the worst-off agent gains if the mean
difference is above 0 at 95% (one-sided), start by start, against both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core.numbers import percent
from epymarl_fairtest.curve.marks import loss_of
from epymarl_fairtest.curve.point import Played, Point, point_of

VERDICTS = ("not repaired", "levelled down", "repaired")  # from the least to the most
ONE_SIDED = 1.6449  # standard errors, 95%


@dataclass(frozen=True)
class Judgement:
    """One seed."""

    verdict: str
    falls: bool
    loss: float  # of the return before, as a share; negative: a gain
    within: bool  # the loss that is allowed
    gains: bool  # the worst-off agent
    why: str


def ends(gain: NDArray[np.float64]) -> tuple[float, float]:
    """What the mean gain is at least and at most, each at 95% (one-sided); `gain` start by start."""
    mean, error = float(gain.mean()), float(gain.std(ddof=1) / np.sqrt(len(gain)))
    return mean - ONE_SIDED * error, mean + ONE_SIDED * error


def least_gain(now: Played, then: Played) -> float:
    """The worst-off agent's mean gain, less what chance may have given: both teams' own worst-off."""
    return ends(now.received.min(axis=1) - then.received.min(axis=1))[0]


def return_ends(now: Played, then: Played) -> tuple[float, float]:
    """What the return gained at least and at most, as shares of what it was."""
    was = abs(float(then.received.sum(axis=1).mean())) or 1.0
    low, high = ends(now.received.sum(axis=1) - then.received.sum(axis=1))
    return low / was, high / was


def judge(before: Played, control: Played, repaired: Played, max_loss: float) -> Judgement:
    was, beside, now = (point_of(0, played) for played in (before, control, repaired))
    falls = _below(now, was) and _below(now, beside)
    loss = loss_of(now.team_return, was.team_return)
    gains = least_gain(repaired, before) > 0 and least_gain(repaired, control) > 0
    within = loss <= max_loss
    if not falls:
        why = "its rate does not fall below that of the team before and that of the control, intervals apart"
        return Judgement(VERDICTS[0], falls, loss, within, gains, why)
    if not within:
        return Judgement(
            VERDICTS[0], falls, loss, within, gains, f"it loses {percent(loss)} of the return, more than allowed"
        )
    if not gains:
        why = "its rate falls, but the worst-off agent is not shown to gain: the better-off receive less"
        return Judgement(VERDICTS[1], falls, loss, within, gains, why)
    return Judgement(VERDICTS[2], falls, loss, within, gains, "its rate falls, and the worst-off agent gains")


def _below(now: Point, then: Point) -> bool:
    return now.rate is not None and then.rate is not None and now.rate.high < then.rate.low


def overall(verdicts: Sequence[str]) -> str:
    """What more than half of the seeds show at least."""
    best = VERDICTS[0]
    for level, verdict in enumerate(VERDICTS):
        if sum(VERDICTS.index(one) >= level for one in verdicts) * 2 > len(verdicts):
            best = verdict
    return best


def chosen(before: Point, points: Sequence[Point], max_loss: float) -> int:
    """Which of the weights, by validation: the lowest rate within the loss; without one, the smallest loss."""
    losses = [loss_of(point.team_return, before.team_return) for point in points]
    within = [number for number, loss in enumerate(losses) if loss <= max_loss and points[number].rate is not None]
    if within:
        return min(within, key=lambda number: (points[number].unfair / points[number].executions, losses[number]))
    return min(range(len(points)), key=lambda number: losses[number])
