"""How many failures are different: a greedy packing of paths, in the order in which they were found.

A path is kept if it is further than a distance from every path kept before it, wherever either began. Counted so, a
proposer of near-copies gains nothing. Exact: the compiled packing and the plain one decide alike.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray


@cache
def fastest_pack() -> Any:
    """Looked up when something is to be packed: numba takes a while to import, and may be missing."""
    try:
        from epymarl_fairtest.campaign.packing import compiled
    except ImportError:
        from epymarl_fairtest.campaign.packing import plain

        return plain.pack
    return compiled.pack


class Packing:
    """Paths that keep their distance; the shorter of two waits where it ended.

    The distance of two paths is the mean over steps, while either moves, of the mean distance of their bodies.
    """

    def __init__(self, distance: float) -> None:
        self._distance, self._count = distance, 0
        self._paths = np.empty((0, 0, 0, 2), np.float32)  # (room, steps, bodies, 2)
        self._sums = np.empty((0, 0, 4))  # (room, bodies, 4): the positions added up over the steps, and the last ones
        self._lengths = np.empty(0, np.int64)

    def __len__(self) -> int:
        return self._count

    def add(self, paths: NDArray[np.float32], lengths: NDArray[np.integer]) -> NDArray[np.bool_]:
        """Which of these paths (B, positions, bodies, 2), one after the other, are far from all before them.

        `lengths`: how many positions each has.
        """
        kept = np.zeros(len(paths), np.bool_)
        if not len(paths):
            return kept
        lengths = lengths.astype(np.int64)
        self._make_room(paths)
        new = _waiting(paths, lengths, self._paths.shape[1])
        there = np.arange(new.shape[1])[None, :, None, None] < lengths[:, None, None, None]
        sums = np.concatenate([np.sum(new, axis=1, dtype=np.float64, where=there), new[:, -1]], axis=-1)
        stored = self._paths, self._sums, self._lengths
        fastest_pack()(*stored, self._count, new, sums, lengths, self._distance, kept)
        self._count += int(kept.sum())
        return kept

    def _make_room(self, paths: NDArray[np.float32]) -> None:
        """For as many more paths, and for as many steps as they have."""
        room, steps = self._paths.shape[:2]
        if not room:
            self._paths = np.empty((0, *paths.shape[1:]), np.float32)
            self._sums = np.empty((0, paths.shape[2], 4))
        elif paths.shape[1] > steps:
            self._paths = _waiting(self._paths, np.maximum(self._lengths, 1), paths.shape[1])
        if self._count + len(paths) > room:
            more = max(room, len(paths))
            self._paths = _grown(self._paths, more)
            self._sums = _grown(self._sums, more)
            self._lengths = _grown(self._lengths, more)


def distances(paths: NDArray[np.float32], lengths: NDArray[np.integer]) -> NDArray[np.float64]:
    """The distance of each two of these paths (n, n)."""
    lengths = lengths.astype(np.int64)
    waiting = _waiting(paths, lengths, paths.shape[1]).astype(np.float64)
    apart = np.empty((len(paths), len(paths)))
    for row, path in enumerate(waiting):  # one by one: all at once would need n x n paths
        between = np.linalg.norm(waiting - path, axis=-1).mean(axis=-1)
        until = np.maximum(lengths, lengths[row])
        apart[row] = np.cumsum(between, axis=1)[np.arange(len(paths)), until - 1] / until
    return apart


def _waiting(paths: NDArray[np.float32], lengths: NDArray[np.integer], steps: int) -> NDArray[np.float32]:
    """So many steps of each path, which stays where it was last."""
    step = np.minimum(np.arange(steps), lengths[:, None] - 1)
    return np.ascontiguousarray(paths[np.arange(len(paths))[:, None], step], np.float32)


def _grown(array: NDArray[Any], more: int) -> NDArray[Any]:
    return np.concatenate([array, np.zeros((more, *array.shape[1:]), array.dtype)])
