"""Starts that were fair and no longer are: several executions of each, so that exploration does not look like change.

A single execution of a start is fair or unfair by chance, too: of a team that did not change at all, many would be
"newly unfair". Knows numbers alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core.episodes import Tests
from epymarl_fairtest.curve.point import Played
from epymarl_fairtest.repair.verdict import ONE_SIDED

STREAMS = 10  # executions of each start, the same exploration for every team
FAIR = 0.1  # a start is formerly fair if at most this share of its executions was unfair
UNFAIR = 0.5  # and newly unfair if at least this share is now


@dataclass(frozen=True)
class Regressions:
    """Of the starts that were fair before, those that are unfair now."""

    formerly_fair: int
    newly_unfair: int
    beyond: float | None = None  # share of the formerly fair, less the control's share
    beyond_high: float | None = None  # one-sided 95%, start by start

    @property
    def share(self) -> float:
        return self.newly_unfair / self.formerly_fair if self.formerly_fair else 0.0


def repeated(tests: Tests, generator: np.random.Generator) -> Tests:
    """Each test STREAMS times, one after the other, with exploration of its own."""
    again = tests.take(np.repeat(np.arange(len(tests)), STREAMS))
    again.stream = generator.integers(0, 2**64, len(again), dtype=np.uint64)
    return again


def regressions(before: Played, now: Played, control: Played | None = None) -> Regressions:
    """All three of the same `repeated` tests."""
    fair = share_unfair(before) <= FAIR
    newly = share_unfair(now)[fair] >= UNFAIR
    if control is None or not len(newly):
        return Regressions(int(fair.sum()), int(newly.sum()))
    difference = newly.astype(np.float64) - (share_unfair(control)[fair] >= UNFAIR)
    error = difference.std() / np.sqrt(len(difference))
    mean = float(difference.mean())
    return Regressions(int(fair.sum()), int(newly.sum()), mean, mean + ONE_SIDED * float(error))


def share_unfair(played: Played) -> NDArray[np.float64]:
    """By start. An execution in which nobody receives anything is not unfair, as for the natural rate."""
    share: NDArray[np.float64] = played.unfair.reshape(-1, STREAMS).mean(axis=1)
    return share
