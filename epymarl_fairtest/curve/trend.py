"""Did fairness get better or worse with training? A test on the starts that all points share.

Points are not independent: one team comes out of the other, and all of them play from the same starts. Starts are,
because each was drawn for itself. So every start votes once: over all pairs of points in which somebody received
something from it, was it unfair later and not before more often than the other way round (Mann and Kendall's count)?
Without a trend either direction is equally likely, which the exact sign test judges. With two points this is
McNemar's exact test. It speaks of the teams of this training, not of trainings in general.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from epymarl_fairtest.core.statistics import sign_test
from epymarl_fairtest.curve.point import Point

ALPHA = 0.05
BETTER, WORSE, NOT_SHOWN = "better", "worse", "not shown"


@dataclass(frozen=True)
class Trend:
    direction: str  # of fairness: better, worse or not shown
    worse: int  # starts that are unfair more often in later teams
    better: int  # less often
    p: float  # two-sided

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def trend_of(points: Sequence[Point]) -> Trend | None:
    """None where fewer than two points have a rate, or points were measured from different starts."""
    known = [point for point in points if point.rate is not None]
    if len(known) < 2 or len({point.executions for point in known}) > 1:
        return None
    votes = _mann_kendall(np.stack([point.verdicts() for point in known]))
    worse, better = int((votes > 0).sum()), int((votes < 0).sum())
    p = min(1.0, 2 * sign_test(max(worse, better), min(worse, better)))
    shown = WORSE if worse > better else BETTER
    return Trend(shown if p < ALPHA else NOT_SHOWN, worse, better, p)


def _mann_kendall(verdicts: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """By start (columns): later minus earlier, summed over the pairs of points (rows) where both are known."""
    unfair, fair = verdicts == 1, verdicts == 0
    fair_before = np.cumsum(fair, axis=0) - fair
    unfair_before = np.cumsum(unfair, axis=0) - unfair
    votes: np.ndarray[Any, np.dtype[np.float64]] = (unfair * fair_before - fair * unfair_before).sum(axis=0) * 1.0
    return votes
