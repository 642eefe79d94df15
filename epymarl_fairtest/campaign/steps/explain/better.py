"""When a continuation is better than the failure: fair, hardly at the team's cost, and the worst-off agent gains.

Only what helps the worst-off counts. To take from the best-off is the easiest way to raise an index, and helps nobody.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core.judged import Judge

Array = NDArray[np.float64]
MOST_COST = 0.02  # share of what the team received that a better continuation may cost it


@dataclass(frozen=True)
class Compared:
    """Continuations beside the failures that they begin as, row by row."""

    index: Array  # NaN where nobody received anything
    fair: NDArray[np.bool_]
    worst_off_gain: Array  # of the agent that received least in the failure; of those that tie, the least gain
    team_change: Array  # as a share of what the team received in the failure

    @property
    def better(self) -> NDArray[np.bool_]:
        better: NDArray[np.bool_] = self.fair & (self.worst_off_gain > 0) & (self.team_change >= -MOST_COST)
        return better

    def take(self, rows: Any) -> Compared:
        return Compared(self.index[rows], self.fair[rows], self.worst_off_gain[rows], self.team_change[rows])


def compared(judge: Judge, before: Array, now: Array) -> Compared:
    """What agents received before and now, (rows, judged agents) each."""
    index = judge.index(now)
    worst_off = before == before.min(axis=1, keepdims=True)
    gain = np.where(worst_off, now - before, np.inf).min(axis=1)
    return Compared(index, ~np.isnan(index) & (index > judge.theta), gain, team_change(before, now))


def team_change(before: Array, now: Array) -> Array:
    """As a share of what it was; where that was nothing, nothing or all is lost or won."""
    was, become = before.sum(axis=-1), now.sum(axis=-1)
    size = np.where(was == 0, np.maximum(np.abs(become), 1e-300), np.abs(was))
    change: Array = (become - was) / size
    return change
