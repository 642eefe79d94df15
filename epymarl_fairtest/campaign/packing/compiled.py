"""The packing of paths, compiled; nearly all pairs are told apart by what their positions add up to."""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from epymarl_fairtest.campaign.packing.paths import ROUNDING, STRETCH, Paths

Floats = NDArray[np.float64]
BLOCK = 256  # paths whose sums are compared at once, without a branch


@njit(cache=True, nogil=True)
def pack(stored: Paths, count: int, new: Paths, distance: float, largest: float, numbers: NDArray[np.int64]) -> None:
    """Append each new path that is further than `distance` from the first `count` and those appended before it.

    Each gets the number of the first path that it is not far from, or its own.
    """
    bodies = new.places.shape[2]
    reach = bodies * (distance * (1 + ROUNDING) + 2 * ROUNDING * largest)  # per step; sums beyond it are surely far
    apart, until = np.empty(BLOCK), np.empty(BLOCK)
    for one in range(len(numbers)):
        near = -1
        for first in range(0, count, BLOCK):
            last = min(first + BLOCK, count)
            _add_up(stored, first, last, new.sums[:, :, one], new.lengths[one], apart, until)
            for other in range(first, last):
                steps = until[other - first]
                if (
                    apart[other - first] <= reach * steps
                    and _may_be_near(stored.stretches[other], new.stretches[one], steps, reach)
                    and _is_near(stored.places[other], new.places[one], steps, distance)
                ):
                    near = other
                    break
            if near >= 0:
                break
        numbers[one] = near if near >= 0 else count
        if near < 0:
            _keep(stored, count, new, one)
            count += 1


@njit(cache=True, nogil=True)
def _keep(stored: Paths, count: int, new: Paths, one: int) -> None:
    """Number by number: numba would compile its whole formatting of text, for the message that two slices differ."""
    steps, bodies = new.places.shape[1:3]
    for body in range(bodies):
        for axis in range(2):
            for step in range(steps):
                stored.places[count, step, body, axis] = new.places[one, step, body, axis]
            for stretch in range(new.stretches.shape[1]):
                stored.stretches[count, stretch, body, axis] = new.stretches[one, stretch, body, axis]
        for value in range(4):
            stored.sums[body, value, count] = new.sums[body, value, one]
    stored.lengths[count] = new.lengths[one]


@njit(cache=True, nogil=True)
def _add_up(stored: Paths, first: int, last: int, own: Floats, length: float, apart: Floats, until: Floats) -> None:
    """How far apart the bodies of these paths and of a new one are at least, added up until both have ended.

    The sums of two bodies' positions are no further apart than the bodies are in all.
    """
    lengths = stored.lengths[first:last]
    for path in range(last - first):
        until[path] = max(lengths[path], length)
        apart[path] = 0.0
    for body in range(own.shape[0]):
        x, y = stored.sums[body, 0, first:last], stored.sums[body, 1, first:last]
        last_x, last_y = stored.sums[body, 2, first:last], stored.sums[body, 3, first:last]
        own_x, own_y, own_last_x, own_last_y = own[body, 0], own[body, 1], own[body, 2], own[body, 3]
        for path in range(last - first):
            waits, own_waits = until[path] - lengths[path], until[path] - length
            dx = x[path] + waits * last_x[path] - own_x - own_waits * own_last_x
            dy = y[path] + waits * last_y[path] - own_y - own_waits * own_last_y
            apart[path] += math.sqrt(dx * dx + dy * dy)


@njit(cache=True, nogil=True)
def _may_be_near(one: Floats, other: Floats, steps: float, reach: float) -> bool:
    """The same stretch by stretch, which tells more paths apart."""
    apart = 0.0
    for stretch in range(int(steps) // STRETCH):
        for body in range(one.shape[1]):
            dx = one[stretch, body, 0] - other[stretch, body, 0]
            dy = one[stretch, body, 1] - other[stretch, body, 1]
            apart += math.sqrt(dx * dx + dy * dy)
        if apart > reach * steps:  # it only grows
            return False
    return True


@njit(cache=True, nogil=True)
def _is_near(one: NDArray[np.float32], other: NDArray[np.float32], steps: float, distance: float) -> bool:
    limit, total = distance * steps, 0.0
    for step in range(int(steps)):
        apart = 0.0
        for body in range(one.shape[1]):
            dx = np.float64(one[step, body, 0]) - np.float64(other[step, body, 0])
            dy = np.float64(one[step, body, 1]) - np.float64(other[step, body, 1])
            apart += math.sqrt(dx * dx + dy * dy)
        total += apart / one.shape[1]
        if total > limit:
            return False
    return total <= limit
