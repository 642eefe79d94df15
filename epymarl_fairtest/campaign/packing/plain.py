"""The packing of paths in plain numpy, where numba is missing: the same sums in the same order."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.campaign.packing.paths import Paths


def pack(stored: Paths, count: int, new: Paths, distance: float, largest: float, numbers: NDArray[np.int64]) -> None:
    """Append each new path that is further than `distance` from the first `count` and those appended before it.

    Each gets the number of the first path that it is not far from, or its own.
    """
    for one, length in enumerate(new.lengths):
        gap = stored.places[:count].astype(np.float64) - new.places[one].astype(np.float64)
        between = np.sqrt(gap[..., 0] * gap[..., 0] + gap[..., 1] * gap[..., 1])
        apart = np.cumsum(between, axis=2)[..., -1] / new.places.shape[2]  # cumsum adds in order, sum need not
        until = np.maximum(stored.lengths[:count], length)
        total = np.cumsum(apart, axis=1)[np.arange(count), until.astype(np.int64) - 1]
        near = np.flatnonzero(total <= distance * until)
        numbers[one] = near[0] if len(near) else count
        if len(near):
            continue
        stored.places[count], stored.lengths[count] = new.places[one], length
        count += 1
