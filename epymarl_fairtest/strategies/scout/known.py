"""What scout knows: executed starts, what each agent received from them, and which cells failures went through."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core.judged import Judged, places_of
from epymarl_fairtest.strategies.contract import Context

Array = NDArray[np.float64]
Rows = NDArray[np.int64]


class Known:
    """Arrays over all executed starts."""

    def __init__(self, context: Context) -> None:
        self._task, self._bins = context.task, context.settings.coverage_bins
        self._judged = places_of(context.settings.agents, self._task.n_agents)
        self.states = np.empty((0, self._task.state_size))
        self.received = np.empty((0, len(self._judged)))
        self.index = np.empty(0)  # 1 where nobody received anything: nobody was treated worse
        self.unfair = np.empty(0, bool)
        self.ids = np.empty(0, np.int64)
        self.covered = np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self.index)

    def add(self, judged: Judged) -> None:
        episodes = judged.episodes
        self.states = np.concatenate([self.states, episodes.states[:, 0]])
        self.received = np.concatenate([self.received, judged.received])
        self.index = np.concatenate([self.index, np.where(judged.undefined, 1.0, judged.index)])
        self.unfair = np.concatenate([self.unfair, judged.unfair])
        self.ids = np.concatenate([self.ids, episodes.id])
        there = np.arange(episodes.states.shape[1]) <= episodes.length[:, None]
        passed = episodes.states[there & judged.unfair[:, None]]
        if len(passed):  # tasks are never asked about no state at all
            self.covered = np.union1d(self.covered, self.cells(passed))

    def features(self, states: Array) -> Array:
        """What a start means for each judged agent (B, agents, F)."""
        return self._task.features(states)[:, self._judged]

    def cells(self, states: Array) -> Rows:
        return self._task.cells(states, self._bins)

    def places(self, states: Array) -> Array:
        """Where everything is; nowhere (NaN, infinity) is the origin, because distances must be numbers."""
        places = np.ascontiguousarray(self._task.start_places(states), np.float64)
        return np.where(np.isfinite(places), places, 0.0)

    def least_fair(self, fewest: int) -> Rows:
        """The starts that failed or, where these are fewer than `fewest`, so many with the lowest index."""
        failed = np.flatnonzero(self.unfair)
        return failed if len(failed) >= fewest else np.argsort(self.index, kind="stable")[:fewest]

    def worst_off(self, rows: Rows) -> Rows:
        """Which judged agent received least."""
        worst: Rows = self.received[rows].argmin(axis=1)
        return worst
