"""What a campaign counts while it runs: failures, distinct failures, starts, coverage. Knows no engine."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core.episodes import OPERATORS
from epymarl_fairtest.core.indices.jain import jfi
from epymarl_fairtest.core.judged import Judge, Judged
from epymarl_fairtest.tasks.contract import Task

BLOCK = 5  # steps
ROUNDING = 1e-3  # more than single precision can lose over an episode
QUANTILES = (0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 1.0)


class Tally:
    """Takes judged batches one by one and keeps only what the summary needs."""

    def __init__(self, task: Task, judge: Judge, *, bins: int, distinct_distance: float) -> None:
        self._task, self._judge, self._bins, self._distance = task, judge, bins, distinct_distance
        self.evaluated = self.failures = self.undefined = self.distinct = self.suffix_only = 0
        self._executions: list[dict[str, NDArray[Any]]] = []
        self._jfi: list[NDArray[np.float64]] = []
        self._cells: set[int] = set()
        self._unique: set[bytes] = set()
        self._kept: dict[int, Trajectories] = {}  # root seed -> trajectories that differ

    def add(self, judged: Judged, purpose: str, *, random: bool = False) -> None:
        """A judged batch; `random` if nobody chose its starts, and the team was left as it is."""
        episodes = judged.episodes
        self.evaluated += len(judged)
        self.undefined += int(judged.undefined.sum())
        self._executions.append(
            {
                "id": episodes.id,
                "purpose": np.full(len(episodes), purpose),
                "random": np.full(len(episodes), random),
                "root_seed": episodes.root_seed,
                "operator": np.array(OPERATORS)[episodes.operator],
                "parent": episodes.parent,
                "start_step": episodes.start_step,
                "length": episodes.length,
                "index": judged.index,
                "received": judged.received,
            }
        )
        self._jfi.append(jfi(judged.received))
        failing = np.flatnonzero(judged.unfair)
        self.failures += len(failing)
        self.suffix_only += int(self._judge.unfair_after_prefix(episodes, failing).sum())
        for row in failing:  # one by one: each is compared with the failures of its own start
            length = int(episodes.length[row])
            states = episodes.states[row, : length + 1]
            self._cells.update(np.unique(self._task.cells(states, self._bins)).tolist())
            content = (states.tobytes(), episodes.actions[row, :length].tobytes())
            self._unique.add(hashlib.blake2b(b"".join(content), digest_size=16).digest())
            self._add_trajectory(int(episodes.root_seed[row]), states)

    def _add_trajectory(self, root_seed: int, states: NDArray[np.float64]) -> None:
        path = self._task.positions(states).astype(np.float32)
        kept = self._kept.setdefault(root_seed, Trajectories())
        if not kept.any_within(path, self._distance):
            kept.add(path)
            self.distinct += 1

    def executions(self) -> dict[str, NDArray[Any]]:
        """One row per judged episode, in the order of execution: executions.npz."""
        names = self._executions[0] if self._executions else ()
        return {name: np.concatenate([part[name] for part in self._executions]) for name in names}

    def cells(self) -> NDArray[np.int64]:
        """The coverage cells that failures went through, ascending."""
        return np.array(sorted(self._cells), np.int64)

    def summary(self) -> dict[str, Any]:
        return {
            "evaluated": self.evaluated,
            "failures": self.failures,
            "unique_failures": len(self._unique),
            "distinct_failures": self.distinct,
            "roots": len(self._kept),
            "suffix_failures": self.suffix_only,
            "undefined": self.undefined,
            "coverage": len(self._cells) / self._task.cell_count(self._bins),
            "index_quantiles": _quantiles([part["index"] for part in self._executions]),
            "jfi_quantiles": _quantiles(self._jfi),
        }


def _quantiles(parts: list[NDArray[np.float64]]) -> dict[str, float | None]:
    """Of the episodes whose index is defined."""
    values = np.concatenate([*parts, np.empty(0)])
    values = values[~np.isnan(values)]
    quantiles = np.quantile(values, QUANTILES).tolist() if len(values) else [None] * len(QUANTILES)
    return {f"{q:g}": value for q, value in zip(QUANTILES, quantiles, strict=True)}


class Trajectories:
    """Trajectories (steps, agents, 2) in one growing array; the shorter of two waits where it ended."""

    def __init__(self) -> None:
        self._paths = self._means = np.empty((0, 0, 0, 2), np.float32)
        self._lengths: list[int] = []

    def __len__(self) -> int:
        return len(self._lengths)

    def distances(self, path: NDArray[np.float32], rows: Any = slice(None)) -> NDArray[np.float64]:
        """Mean distance between the agents of `path` and those of each trajectory, while either moves."""
        self._lengthen(len(path))
        gaps = self._paths[: len(self)][rows] - _waiting(path, self._paths.shape[1])
        apart = np.sqrt((gaps * gaps).sum(axis=-1)).mean(axis=-1)
        until = np.maximum(np.array(self._lengths)[rows], len(path))
        mean: NDArray[np.float64] = np.cumsum(apart, axis=1, dtype=np.float64)[np.arange(len(until)), until - 1] / until
        return mean

    def any_within(self, path: NDArray[np.float32], distance: float) -> bool:
        """Is `path` at most `distance` from one of them?

        A strategy may find thousands of failures from one start. So the means of every BLOCK steps are compared first:
        the distance of two means is at most the mean of the distances, and most are too far apart even so.
        """
        if not len(self):
            return False
        self._lengthen(len(path))
        gaps = self._means[: len(self), : len(path) // BLOCK] - _block_means(path[None])
        least = BLOCK * np.sqrt((gaps * gaps).sum(axis=-1)).mean(axis=-1).sum(axis=1)
        close = np.flatnonzero(least <= (distance + ROUNDING) * np.maximum(self._lengths, len(path)))
        return bool(len(close) and self.distances(path, close).min() <= distance)

    def add(self, path: NDArray[np.float32]) -> None:
        self._lengthen(len(path))
        if len(self) == len(self._paths):  # room for twice as many
            grown = np.zeros((max(4, 2 * len(self)), self._paths.shape[1], *path.shape[1:]), np.float32)
            if len(self):
                grown[: len(self)] = self._paths
            self._paths = grown
            self._means = _block_means(grown)
        self._paths[len(self)] = _waiting(path, self._paths.shape[1])
        self._means[len(self)] = _block_means(self._paths[len(self)][None])[0]
        self._lengths.append(len(path))

    def _lengthen(self, steps: int) -> None:
        now = self._paths.shape[1]
        if steps > now:
            empty = np.empty((0, steps, 0, 2), np.float32)
            self._paths = self._paths[:, np.minimum(np.arange(steps), now - 1)] if len(self) else empty
            self._means = _block_means(self._paths)


def _waiting(path: NDArray[np.float32], steps: int) -> NDArray[np.float32]:
    return path[np.minimum(np.arange(steps), len(path) - 1)]


def _block_means(paths: NDArray[np.float32]) -> NDArray[np.float32]:
    """Of every BLOCK steps (..., steps, agents, 2); what does not fill a block is left out."""
    count, steps, agents, two = paths.shape
    blocks = steps // BLOCK
    means: NDArray[np.float32] = paths[:, : blocks * BLOCK].reshape(count, blocks, BLOCK, agents, two).mean(axis=2)
    return means
