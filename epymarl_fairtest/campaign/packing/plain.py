"""The packing of paths in plain numpy: the same sums in the same order, with nothing to compile.

For few paths, and where numba is missing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.campaign.packing.paths import Near, Paths

Rows = NDArray[np.int64]


def pack(stored: Paths, count: int, new: Paths, near: Near, numbers: Rows, cells: object = None) -> None:
    """Append each new path that is far from the first `count` and those appended before it.

    Each gets the number of the first path that it is not far from, or its own. Nothing is sorted into cells.
    """
    for one in range(len(numbers)):
        rows = _may_be_near(stored, count, new, one, near.reach)
        found = rows[_are_near(stored, rows, new, one, near.distance)] if len(rows) else rows
        numbers[one] = found[0] if len(found) else count
        if len(found):
            continue
        stored.places[count], stored.stretches[count] = new.places[one], new.stretches[one]
        stored.sums[..., count], stored.lengths[count] = new.sums[..., one], new.lengths[one]
        count += 1


def _may_be_near(stored: Paths, count: int, new: Paths, one: int, reach: float) -> Rows:
    """Sums of two bodies' positions are no further apart than the bodies are in all: most paths are far by that."""
    sums, own, length = stored.sums[..., :count], new.sums[..., one, None], new.lengths[one]
    until = np.maximum(stored.lengths[:count], length)
    gap = sums[:, :2] + (until - stored.lengths[:count]) * sums[:, 2:] - own[:, :2] - (until - length) * own[:, 2:]
    return np.flatnonzero(np.sqrt((gap * gap).sum(axis=1)).sum(axis=0) <= reach * until)


def _are_near(stored: Paths, rows: Rows, new: Paths, one: int, distance: float) -> NDArray[np.bool_]:
    gap = stored.places[rows].astype(np.float64) - new.places[one].astype(np.float64)
    between = np.sqrt(gap[..., 0] * gap[..., 0] + gap[..., 1] * gap[..., 1])
    apart = np.cumsum(between, axis=2)[..., -1] / new.places.shape[2]  # cumsum adds in order, sum need not
    until = np.maximum(stored.lengths[rows], new.lengths[one])
    total = np.cumsum(apart, axis=1)[np.arange(len(rows)), until.astype(np.int64) - 1]
    near: NDArray[np.bool_] = total <= distance * until
    return near
