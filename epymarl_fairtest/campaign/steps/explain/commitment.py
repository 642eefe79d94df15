"""When a failure was settled: P(unfair) continued from each of its steps, and where the gap between agents opens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.campaign.steps.explain.cases import Asking, Cases, Rows
from epymarl_fairtest.campaign.steps.explain.onward import Onward

SURE = 0.9  # P(unfair) from which a failure is settled
COARSE = 8  # steps at which it is looked at first; then every step around the last one that was not settled
OPEN = 0.1  # share of the final gap
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Commitment:
    """Case by case."""

    p_unfair: Array  # (cases, steps) of continuations from each step; NaN where nobody looked
    committed_at: Rows  # from here on P(unfair) stays at or above SURE; the episode's length where only the end does
    gap_opens_at: Rows


def commitment(cases: Cases, onward: Onward) -> Asking[Commitment]:
    episodes, steps = cases.episodes, np.arange(cases.episodes.limit)
    yield from onward.look(*np.nonzero(cases.decided & _evenly(cases)))
    # Between the last step that was not settled and the next one looked at, look at every step.
    curve = onward.p_unfair()
    after = _settled(curve, episodes.length)
    last = np.where(curve < SURE, steps, -1).max(axis=1)
    between = (steps < after[:, None]) & (steps > last[:, None])
    yield from onward.look(*np.nonzero(cases.decided & between))
    curve = onward.p_unfair()
    return Commitment(curve, _settled(curve, episodes.length), gap_opens(cases))


def _evenly(cases: Cases) -> NDArray[np.bool_]:
    """COARSE steps of each case, the first one among them."""
    steps = np.arange(cases.episodes.limit)
    apart = np.maximum((cases.episodes.length - cases.first + COARSE - 1) // COARSE, 1)
    evenly: NDArray[np.bool_] = (steps - cases.first[:, None]) % apart[:, None] == 0
    return evenly


def _settled(curve: Array, length: NDArray[np.int32]) -> Rows:
    """The first step looked at from which no later one is below SURE."""
    steps = np.arange(curve.shape[1])
    open_until = np.where(curve < SURE, steps, -1).max(axis=1)
    later = ~np.isnan(curve) & (steps > open_until[:, None])
    return np.where(later.any(axis=1), later.argmax(axis=1), length).astype(np.int64)


def gap_opens(cases: Cases) -> Rows:
    """The step from which the worst-off agent stays behind the mean of the others by a tenth of the final gap."""
    rewards = cases.episodes.rewards[:, :, cases.agents]
    so_far = np.cumsum(rewards, axis=1)
    worst = cases.received.argmin(axis=1)
    own = so_far[np.arange(len(cases)), :, worst]
    gap = (so_far.sum(axis=2) - own) / max(so_far.shape[2] - 1, 1) - own
    steps, length = np.arange(gap.shape[1]), cases.episodes.length
    final = gap[np.arange(len(cases)), length - 1]
    closed = (gap < OPEN * final[:, None]) & (steps < length[:, None])
    last = np.where(closed, steps, -1).max(axis=1)
    opens: Rows = np.minimum(last + 1, length - 1).astype(np.int64)
    return opens
