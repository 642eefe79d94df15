"""The packing of paths, compiled; nearly all pairs are told apart by what their positions add up to."""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from epymarl_fairtest.campaign.packing.cells import Cells, no_cells
from epymarl_fairtest.campaign.packing.paths import STRETCH, Near, Paths

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]
BLOCK = 256  # paths whose sums are compared at once, without a branch
BESIDE = np.array([0, -1, 1])  # of a cell along each sum: itself first, where a near path is most likely


def pack(stored: Paths, count: int, new: Paths, near: Near, numbers: Rows, cells: Cells | None) -> Cells:
    """Append each new path that is far from the first `count` and those appended before it.

    Each gets the number of a path that it is not far from, or its own. The cells, in which they are entered, are for
    the next call.
    """
    if cells is None or not cells.hold(stored, near.reach):
        cells = no_cells(stored, near.reach)
        _enter_all(stored, count, cells)
    _pack(stored, count, cells, new, near, numbers)
    return cells


@njit(cache=True, nogil=True)
def _pack(stored: Paths, count: int, cells: Cells, new: Paths, near: Near, numbers: Rows) -> None:
    apart, until = np.empty(BLOCK), np.empty(BLOCK)
    sums, cell = np.empty(new.sums.shape[:2]), np.empty(4, np.int64)
    for one in range(len(numbers)):
        _place(new.sums, one, cells.steps - new.lengths[one], cells.width, sums, cell)
        found = _in_cells(stored, count, cells, new, one, sums, cell, near)
        if found == count or near.first:
            found = _of_early(stored, cells, new, one, near, apart, until, found)
        numbers[one] = found
        if found == count:
            _keep(stored, count, new, one)
            _enter(stored, count, cells, sums, cell)
            count += 1


@njit(cache=True, nogil=True)
def _enter_all(stored: Paths, count: int, cells: Cells) -> None:
    sums, cell = np.empty(stored.sums.shape[:2]), np.empty(4, np.int64)
    for path in range(count):
        _place(stored.sums, path, cells.steps - stored.lengths[path], cells.width, sums, cell)
        _enter(stored, path, cells, sums, cell)


@njit(cache=True, nogil=True)
def _place(all_sums: Floats, path: int, waits: float, width: float, sums: Floats, cell: Rows) -> None:
    """What the positions of a path, which waits for so many steps, add up to, and the cell that this lies in."""
    x, y, other_x, other_y = 0.0, 0.0, 0.0, 0.0
    for body in range(sums.shape[0]):
        sums[body, 0] = all_sums[body, 0, path] + waits * all_sums[body, 2, path]
        sums[body, 1] = all_sums[body, 1, path] + waits * all_sums[body, 3, path]
        sign = -1.0 if body % 2 else 1.0
        x, y = x + sums[body, 0], y + sums[body, 1]
        other_x, other_y = other_x + sign * sums[body, 0], other_y + sign * sums[body, 1]
    cell[0], cell[1] = math.floor(x / width), math.floor(y / width)
    cell[2], cell[3] = math.floor(other_x / width), math.floor(other_y / width)


@njit(cache=True, nogil=True)
def _number(cells: Cells, a: int, b: int, c: int, d: int) -> int:
    """Cells that share a number cost time, and nothing else: whatever is found there is compared."""
    mixed = (((a * 1_000_003 + b) * 1_000_003 + c) * 1_000_003 + d) * 0x2545F4914F6CDD1D
    return (mixed >> 20) & (len(cells.newest) - 1)


@njit(cache=True, nogil=True)
def _enter(stored: Paths, path: int, cells: Cells, sums: Floats, cell: Rows) -> None:
    """A path that was kept, and is not entered yet."""
    if stored.lengths[path] < cells.steps:
        last = cells.ended[0]
        cells.early[last], cells.early_lengths[last] = path, stored.lengths[path]
        for body in range(sums.shape[0]):
            for value in range(4):
                cells.early_sums[body, value, last] = stored.sums[body, value, path]
        cells.ended[0] += 1
        return
    for body in range(sums.shape[0]):
        for axis in range(2):
            cells.sums[path, body, axis] = sums[body, axis]
    number = _number(cells, cell[0], cell[1], cell[2], cell[3])
    cells.before[path] = cells.newest[number]
    cells.newest[number] = path


@njit(cache=True, nogil=True)
def _in_cells(
    stored: Paths, count: int, cells: Cells, new: Paths, one: int, sums: Floats, cell: Rows, near: Near
) -> int:
    """A path of those in cells that is near, the first of them if it must be; `count` if there is none."""
    found, reach, steps = count, near.reach * cells.steps, float(cells.steps)
    for a in BESIDE:
        for b in BESIDE:
            for c in BESIDE:
                for d in BESIDE:
                    path = cells.newest[_number(cells, cell[0] + a, cell[1] + b, cell[2] + c, cell[3] + d)]
                    while path >= 0:
                        if (
                            path < found
                            and _adds_up_near(cells.sums, path, sums, reach)
                            and _may_be_near(stored.stretches[path], new.stretches[one], steps, near.reach)
                            and _is_near(stored.places[path], new.places[one], steps, near.distance)
                        ):
                            found = int(path)
                            if not near.first:
                                return found
                        path = cells.before[path]
    return found


@njit(cache=True, nogil=True)
def _adds_up_near(kept: Floats, path: int, own: Floats, reach: float) -> bool:
    """The sums of two bodies' positions are no further apart than the bodies are in all."""
    apart = 0.0
    for body in range(own.shape[0]):
        dx, dy = kept[path, body, 0] - own[body, 0], kept[path, body, 1] - own[body, 1]
        apart += math.sqrt(dx * dx + dy * dy)
        if apart > reach:
            return False
    return True


@njit(cache=True, nogil=True)
def _of_early(
    stored: Paths, cells: Cells, new: Paths, one: int, near: Near, apart: Floats, until: Floats, found: int
) -> int:
    """The first path of those that ended early that is near, or `found` if that comes before it."""
    for first in range(0, cells.ended[0], BLOCK):
        last = min(first + BLOCK, cells.ended[0])
        _add_up(cells.early_sums, cells.early_lengths, first, last, new.sums[:, :, one], new.lengths[one], apart, until)
        for place in range(first, last):
            steps, path = until[place - first], cells.early[place]
            if (
                apart[place - first] <= near.reach * steps
                and path < found
                and _may_be_near(stored.stretches[path], new.stretches[one], steps, near.reach)
                and _is_near(stored.places[path], new.places[one], steps, near.distance)
            ):
                return int(path)
    return found


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
