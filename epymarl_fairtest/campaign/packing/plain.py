"""The packing of paths in plain numpy, where numba is missing: the same sums in the same order."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def pack(
    paths: NDArray[np.float32], sums: Floats, lengths: NDArray[np.int64], count: int,
    new_paths: NDArray[np.float32], new_sums: Floats, new_lengths: NDArray[np.int64], distance: float,
    kept: NDArray[np.bool_],
) -> None:  # fmt: skip
    """Append each new path that is further than `distance` from the first `count` and those appended before it."""
    for new, length in enumerate(new_lengths):
        gap = paths[:count].astype(np.float64) - new_paths[new].astype(np.float64)
        between = np.sqrt(gap[..., 0] * gap[..., 0] + gap[..., 1] * gap[..., 1])
        apart = np.cumsum(between, axis=2)[..., -1] / new_paths.shape[2]  # cumsum adds in order, sum need not
        until = np.maximum(lengths[:count], length)
        total = np.cumsum(apart, axis=1)[np.arange(count), until - 1]
        if (total <= distance * until).any():
            continue
        paths[count], sums[count], lengths[count] = new_paths[new], new_sums[new], length
        kept[new] = True
        count += 1
