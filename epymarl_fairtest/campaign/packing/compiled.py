"""The packing of paths, compiled; nearly all pairs are told apart by what their positions add up to."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from epymarl_fairtest.campaign.packing.cells import Cells, cells_of
from epymarl_fairtest.campaign.packing.paths import ROUNDING, STRETCH, Paths

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]
MANY = 10_000  # kept paths that are worth sorting; up to there, comparing with each is as fast
BLOCK = 256  # paths whose sums are compared at once, without a branch


def pack(stored: Paths, count: int, new: Paths, distance: float, largest: float, numbers: Rows) -> None:
    """Append each new path that is further than `distance` from the first `count` and those appended before it.

    Each gets the number of the first path that it is not far from, or its own.
    """
    bodies = new.places.shape[2]
    reach = bodies * (distance * (1 + ROUNDING) + 2 * ROUNDING * largest)  # per step; sums beyond it are surely far
    cells = cells_of(stored, count if count > MANY else 0, reach)
    _pack(stored, count, cells, new, distance, reach, numbers)


@njit(cache=True, nogil=True)
def _pack(stored: Paths, count: int, cells: Cells, new: Paths, distance: float, reach: float, numbers: Rows) -> None:
    before, itself = len(cells.rows), np.arange(count + len(numbers))
    apart, until = np.empty(BLOCK), np.empty(BLOCK)
    first, last = np.empty(4, np.int64), np.empty(4, np.int64)
    own, steps = np.empty(4), stored.places.shape[1]
    for one in range(len(numbers)):
        sums, length = new.sums[:, :, one], new.lengths[one]
        how = (stored, new, one, distance, reach, apart, until)
        _beside(cells, sums, steps - length, own, first, last)
        near = _nearest(how, cells.sums, cells.lengths, cells.rows, cells.begins[-1], before, count, True)
        for a in range(first[0], last[0]):
            for b in range(first[1], last[1]):
                for c in range(first[2], last[2]):
                    row = ((a * cells.counts[1] + b) * cells.counts[2] + c) * cells.counts[3]
                    begin, end = cells.begins[row + first[3]], cells.begins[row + max(last[3], first[3])]
                    near = _nearest(how, cells.sums, cells.lengths, cells.rows, begin, end, near, False)
        if near == count:
            near = _nearest(how, stored.sums, stored.lengths, itself, before, count, count, True)
        numbers[one] = near
        if near == count:
            _keep(stored, count, new, one)
            count += 1


@njit(cache=True, nogil=True)
def _beside(cells: Cells, sums: Floats, waits: float, own: Floats, first: Rows, last: Rows) -> None:
    """The cells, from the first up to the last along each sum, that hold every path with a place that may be near."""
    own[:] = 0.0
    for body in range(sums.shape[0]):
        for axis in range(2):
            added = sums[body, axis] + waits * sums[body, 2 + axis]
            own[axis] += added
            own[2 + axis] += -added if body % 2 else added
    for axis in range(4):
        place = math.floor((own[axis] - cells.low[axis]) / cells.width)
        first[axis] = max(place - 1, 0)
        last[axis] = min(place + 2, cells.counts[axis])


@njit(cache=True, nogil=True)
def _nearest(
    how: Any, sums: Floats, lengths: Floats, rows: Rows, begin: int, end: int, near: int, ascending: bool
) -> int:
    """The first kept path that is near, of those listed from `begin` to `end`, or `near` if that comes before it."""
    stored, new, one, distance, reach, apart, until = how
    for first in range(begin, end, BLOCK):
        last = min(first + BLOCK, end)
        _add_up(sums, lengths, first, last, new.sums[:, :, one], new.lengths[one], apart, until)
        for path in range(first, last):
            steps, other = until[path - first], rows[path]
            if (
                apart[path - first] <= reach * steps
                and other < near
                and _may_be_near(stored.stretches[other], new.stretches[one], steps, reach)
                and _is_near(stored.places[other], new.places[one], steps, distance)
            ):
                near = other
                if ascending:
                    return near
    return near


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
def _add_up(
    kept: Floats, ended: Floats, first: int, last: int, own: Floats, length: float, apart: Floats, until: Floats
) -> None:
    """How far apart the bodies of these paths and of a new one are at least, added up until both have ended.

    The sums of two bodies' positions are no further apart than the bodies are in all.
    """
    lengths = ended[first:last]
    for path in range(last - first):
        until[path] = max(lengths[path], length)
        apart[path] = 0.0
    for body in range(own.shape[0]):
        x, y = kept[body, 0, first:last], kept[body, 1, first:last]
        last_x, last_y = kept[body, 2, first:last], kept[body, 3, first:last]
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
