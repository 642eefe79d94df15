"""What a campaign counts while it runs: failures, distinct failures, roots, coverage. Knows no engine."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.episode import Episodes
from epymarl_fairtest.fairness import Verdict
from epymarl_fairtest.tasks.base import Task

QUANTILES = (0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 1.0)


class Tally:
    """Takes judged batches one by one and keeps only what the summary needs."""

    def __init__(self, task: Task, theta: float, *, bins: int, distinct_distance: float) -> None:
        self._task, self._theta, self._bins, self._distance = task, theta, bins, distinct_distance
        self.evaluated = self.failures = self.undefined = self.distinct = self.suffix_only = 0
        self._indices: list[NDArray[np.float64]] = []
        self._cells: set[int] = set()
        self._unique: set[bytes] = set()
        self._kept: dict[int, list[NDArray[np.float32]]] = {}  # root -> trajectories that differ

    def add(
        self,
        episodes: Episodes,
        index: NDArray[np.float64],
        verdict: NDArray[np.int8],
        suffix_index: NDArray[np.float64],
    ) -> None:
        """A judged batch; `suffix_index` is the index of what was executed alone, without a kept prefix."""
        self.evaluated += len(episodes)
        self.undefined += int((verdict == Verdict.UNDEFINED).sum())
        self._indices.append(index[~np.isnan(index)])
        failing = np.flatnonzero(verdict == Verdict.UNFAIR)
        self.failures += len(failing)
        self.suffix_only += int((suffix_index[failing] <= self._theta).sum())
        for row in failing:  # one by one: each is compared with the failures of its own root
            length = int(episodes.length[row])
            states = episodes.states[row, : length + 1]
            self._cells.update(np.unique(self._task.cells(states, self._bins)).tolist())
            content = (states.tobytes(), episodes.actions[row, :length].tobytes())
            self._unique.add(hashlib.blake2b(b"".join(content), digest_size=16).digest())
            self._add_trajectory(int(episodes.root_seed[row]), states)

    def _add_trajectory(self, root: int, states: NDArray[np.float64]) -> None:
        path = self._task.positions(states).astype(np.float32)
        kept = self._kept.setdefault(root, [])
        if all(trajectory_distance(path, other) > self._distance for other in kept):
            kept.append(path)
            self.distinct += 1

    def summary(self) -> dict[str, Any]:
        indices = np.concatenate([*self._indices, np.empty(0)])
        quantiles = np.quantile(indices, QUANTILES).tolist() if len(indices) else [None] * len(QUANTILES)
        return {
            "evaluated": self.evaluated,
            "failures": self.failures,
            "unique_failures": len(self._unique),
            "distinct_failures": self.distinct,
            "roots": len(self._kept),
            "suffix_failures": self.suffix_only,
            "undefined": self.undefined,
            "coverage": len(self._cells) / self._task.cell_count(self._bins),
            "jfi_quantiles": {f"{q:g}": value for q, value in zip(QUANTILES, quantiles, strict=True)},
        }


def trajectory_distance(a: NDArray[np.float32], b: NDArray[np.float32]) -> float:
    """Mean distance between the agents of two trajectories (steps, agents, 2); the shorter one waits."""
    steps = max(len(a), len(b))
    a, b = (path[np.minimum(np.arange(steps), len(path) - 1)] for path in (a, b))
    return float(np.sqrt(((a - b) ** 2).sum(axis=-1)).mean())
