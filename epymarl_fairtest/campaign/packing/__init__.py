"""How many failures are different: a greedy packing of paths, in the order in which they were found.

A path is kept if it is further than a distance from every path kept before it, wherever either began. Counted so, a
proposer of near-copies gains nothing. Exact: the compiled packing and the plain one decide alike.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.campaign.packing import plain
from epymarl_fairtest.campaign.packing.paths import ROUNDING, Near, Paths, paths_of, waiting

FEW = 1000  # paths that are not worth compiling for: a first run would spend three seconds on it


@cache
def fastest_pack() -> Any:
    """Looked up when many are to be packed: numba takes a while to import, and may be missing."""
    try:
        from epymarl_fairtest.campaign.packing import compiled
    except ImportError:
        return plain.pack
    return compiled.pack


class Packing:
    """Paths that keep their distance; the shorter of two waits where it ended.

    The distance of two paths is the mean over steps, while either moves, of the mean distance of their bodies.
    """

    def __init__(self, distance: float) -> None:
        self._distance, self._count, self._seen = distance, 0, 0
        self._largest = 0.0  # of the coordinates: sums of them are exact to a share of it
        self._kept: Paths | None = None
        self._cells: Any = None  # what the compiled packing knows of those kept

    def __len__(self) -> int:
        return self._count

    def add(self, positions: NDArray[np.float32], lengths: NDArray[np.integer]) -> NDArray[np.bool_]:
        """Which of these paths (B, positions, bodies, 2), one after the other, are far from all before them.

        `lengths`: how many positions each has.
        """
        before = self._count
        numbers = self._numbers(positions, lengths, first=False)
        return numbers > np.maximum.accumulate(np.concatenate([[before - 1], numbers]))[:-1]

    def sort(self, positions: NDArray[np.float32], lengths: NDArray[np.integer]) -> NDArray[np.int64]:
        """The same, telling for each path the number of the first one kept that it is not far from, or its own."""
        return self._numbers(positions, lengths, first=True)

    def _numbers(
        self, positions: NDArray[np.float32], lengths: NDArray[np.integer], *, first: bool
    ) -> NDArray[np.int64]:
        """Of each path its own number if it is kept, or that of one kept before: of the first or of any near it."""
        numbers = np.empty(len(positions), np.int64)
        if not len(positions):
            return numbers
        stored = self._kept = self._with_room_for(positions)
        new = paths_of(positions, lengths, stored.places.shape[1])
        self._largest = max(self._largest, float(np.abs(new.places).max()))
        reach = positions.shape[2] * (self._distance * (1 + ROUNDING) + 2 * ROUNDING * self._largest)
        self._seen += len(positions)
        pack = plain.pack if self._seen <= FEW else fastest_pack()
        self._cells = pack(stored, self._count, new, Near(self._distance, reach, first), numbers, self._cells)
        self._count = max(self._count, int(numbers.max()) + 1)
        return numbers

    def _with_room_for(self, positions: NDArray[np.float32]) -> Paths:
        """What was kept, with room for as many more, and for as many steps as these have."""
        count, steps = positions.shape[:2]
        stored = self._kept or paths_of(positions[:0], np.empty(0), steps)
        room, known = stored.places.shape[:2]
        if steps > known:
            stored = stored.longer(steps)
        return stored if self._count + count <= room else stored.roomier(max(3 * room, count))


def distances(paths: NDArray[np.float32], lengths: NDArray[np.integer]) -> NDArray[np.float64]:
    """The distance of each two of these paths (n, n)."""
    lengths = lengths.astype(np.int64)
    placed = waiting(paths, lengths, paths.shape[1]).astype(np.float64)
    x, y = (np.ascontiguousarray(placed[..., axis].T) for axis in (0, 1))  # (bodies, steps, paths)
    apart = np.empty((len(paths), len(paths)))
    for one in range(len(paths)):  # one by one: all at once would need n x n paths
        dx, dy = x[..., one:] - x[..., one, None], y[..., one:] - y[..., one, None]
        between = np.sqrt(dx * dx + dy * dy).mean(axis=0)
        until = np.maximum(lengths[one:], lengths[one])
        apart[one, one:] = np.cumsum(between, axis=0)[until - 1, np.arange(len(until))] / until
        apart[one:, one] = apart[one, one:]
    return apart
