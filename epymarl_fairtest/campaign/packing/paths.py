"""Paths as arrays, and what is compared of them before they are compared step by step."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

STRETCH = (
    10  # steps that are added up to compare two paths roughly; compiled in: delete the compiled files to change it
)
ROUNDING = 1e-10  # of the largest coordinate: more than adding up an episode can lose per step; compiled in, too


class Near(NamedTuple):
    """When two paths are not far from each other."""

    distance: float  # up to which they are
    reach: float  # per step, of all bodies together: two paths whose sums differ by more are surely far
    first: bool  # must the first path be found that a new one is near to, or will any do?


class Paths(NamedTuple):
    """Paths side by side, those that are shorter waiting where they ended; or room for so many."""

    places: NDArray[np.float32]  # (paths, steps, bodies, 2)
    sums: NDArray[np.float64]  # (bodies, 4, paths): x and y added up while the path lasts, and the last ones
    stretches: NDArray[np.float64]  # (paths, stretches, bodies, 2): x and y added up over each; the last may be shorter
    lengths: NDArray[np.float64]  # how many positions each path has; multiplied far more often than counted

    def longer(self, steps: int) -> Paths:
        """The same with so many steps, no fewer than there are."""
        return paths_of(self.places, np.maximum(self.lengths, 1), steps)

    def roomier(self, more: int) -> Paths:
        """The same and room for so many more."""
        room = len(self.lengths)
        sums = np.zeros((*self.sums.shape[:-1], room + more))
        sums[..., :room] = self.sums
        others = (self.places, self.stretches, self.lengths)
        grown = [np.zeros((room + more, *array.shape[1:]), array.dtype) for array in others]  # touched where it is used
        for array, kept in zip(grown, others, strict=True):
            array[:room] = kept
        places, stretches, lengths = grown
        return Paths(places, sums, stretches, lengths)


def paths_of(positions: NDArray[np.float32], lengths: NDArray[np.integer | np.floating], steps: int) -> Paths:
    """Positions (paths, steps, bodies, 2), of which the first `lengths` count, as paths of so many steps."""
    places = waiting(positions, lengths.astype(np.int64), steps)
    count, whole = len(places), steps // STRETCH * STRETCH
    moving = np.arange(steps)[None, :, None, None] < lengths[:, None, None, None]
    added = np.sum(places, axis=1, dtype=np.float64, where=moving)
    sums = np.concatenate([added, places[:, -1]], axis=-1).transpose(1, 2, 0)
    stretches = np.zeros((count, -(-steps // STRETCH), *places.shape[2:]))
    cut = places[:, :whole].reshape(count, whole // STRETCH, STRETCH, *places.shape[2:])
    cut.sum(axis=2, out=stretches[:, : whole // STRETCH], dtype=np.float64)
    if whole < steps:
        places[:, whole:].sum(axis=1, out=stretches[:, -1], dtype=np.float64)
    return Paths(places, np.ascontiguousarray(sums), stretches, lengths.astype(np.float64))


def waiting(positions: NDArray[np.float32], lengths: NDArray[np.integer], steps: int) -> NDArray[np.float32]:
    """So many steps of each path, which stays where it was last."""
    step = np.minimum(np.arange(steps), lengths[:, None] - 1)
    return np.ascontiguousarray(positions[np.arange(len(positions))[:, None], step], np.float32)
