"""The packing of paths, compiled; most pairs are told apart by one comparison."""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]
ROUNDING = 1e-12  # more than adding up an episode can lose, for its size


@njit(cache=True, nogil=True)
def pack(
    paths: NDArray[np.float32], sums: Floats, lengths: NDArray[np.int64], count: int,
    new_paths: NDArray[np.float32], new_sums: Floats, new_lengths: NDArray[np.int64], distance: float,
    kept: NDArray[np.bool_],
) -> None:  # fmt: skip
    """Append each new path that is further than `distance` from the first `count` and those appended before it."""
    for new in range(len(new_lengths)):
        length = new_lengths[new]
        if _any_near(paths, sums, lengths, count, new_paths[new], new_sums[new], length, distance):
            continue
        paths[count] = new_paths[new]
        sums[count] = new_sums[new]
        lengths[count] = length
        kept[new] = True
        count += 1


@njit(cache=True, nogil=True)
def _any_near(
    paths: NDArray[np.float32], sums: Floats, lengths: NDArray[np.int64], count: int,
    path: NDArray[np.float32], own: Floats, length: int, distance: float,
) -> bool:  # fmt: skip
    for other in range(count):
        until = max(lengths[other], length)
        limit = distance * until
        if _surely_far(sums[other], until - lengths[other], own, until - length, limit):
            continue
        total = 0.0
        for step in range(until):
            apart = 0.0
            for body in range(path.shape[1]):
                gx = np.float64(paths[other, step, body, 0]) - np.float64(path[step, body, 0])
                gy = np.float64(paths[other, step, body, 1]) - np.float64(path[step, body, 1])
                apart += math.sqrt(gx * gx + gy * gy)
            total += apart / path.shape[1]
            if total > limit:  # it only grows
                break
        if total <= limit:
            return True
    return False


@njit(cache=True, nogil=True)
def _surely_far(sums: Floats, waits: int, own: Floats, own_waits: int, limit: float) -> bool:
    """The mean positions of two bodies are no further apart than the bodies are on average: where they are too far
    apart, nothing else need be added up."""
    bodies = own.shape[0]
    reach = bodies * limit * (1 + ROUNDING)
    least = 0.0
    for body in range(bodies):
        x = sums[body, 0] + waits * sums[body, 2]
        y = sums[body, 1] + waits * sums[body, 3]
        dx = x - own[body, 0] - own_waits * own[body, 2]
        dy = y - own[body, 1] - own_waits * own[body, 3]
        least += math.sqrt(dx * dx + dy * dy) - ROUNDING * (abs(x) + abs(y))
        if least > reach:
            return True
    return False
