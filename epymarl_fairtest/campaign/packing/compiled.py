"""The packing of paths, compiled; nearly all pairs are told apart by what their positions add up to."""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from epymarl_fairtest.campaign.packing.cells import BLOCK, GROUPS, SAFE, Cells, no_cells
from epymarl_fairtest.campaign.packing.paths import STRETCH, Near, Paths
from epymarl_fairtest.tasks.kernels.copies import fetch

Floats = NDArray[np.float64]
Shorts = NDArray[np.float32]
Rows = NDArray[np.int64]
EARLY = 256  # paths that ended early whose sums are compared at once, without a branch
ROUGH = 1e-5  # of what is added up: more than float32 can lose


def pack(stored: Paths, count: int, new: Paths, near: Near, numbers: Rows, cells: Cells | None) -> Cells:
    """Append each new path that is far from the first `count` and those appended before it.

    Each gets the number of a path that it is not far from, or its own. The cells, in which they are entered, are for
    the next call.
    """
    entered = count
    if cells is None or not cells.hold(stored, near.reach):
        cells, entered = no_cells(stored, near.reach), 0
    _pack(stored, entered, count, cells, new, near, numbers)
    return cells


@njit(cache=True, nogil=True)
def _pack(stored: Paths, entered: int, count: int, cells: Cells, new: Paths, near: Near, numbers: Rows) -> None:
    apart, until, roughly = np.empty(EARLY), np.empty(EARLY), np.empty(BLOCK, np.float32)
    sums, cell, gap = np.empty((GROUPS, 2)), np.empty((2, 4), np.int64), np.empty((2, 4))
    blocks = np.empty(16, np.int64)
    for path in range(entered, count):
        _place(stored.sums, path, cells.steps - stored.lengths[path], cells.width, sums, cell, gap)
        _enter(stored, path, cells, sums, cell)
    for one in range(len(numbers)):
        _place(new.sums, one, cells.steps - new.lengths[one], cells.width, sums, cell, gap)
        found = _in_cells(stored, count, cells, new, one, sums, cell, gap, near, roughly, blocks)
        if found == count or near.first:
            found = _of_early(stored, cells, new, one, near, apart, until, found)
        numbers[one] = found
        if found == count:
            _keep(stored, count, new, one)
            _enter(stored, count, cells, sums, cell)
            count += 1


@njit(cache=True, nogil=True)
def _place(all_sums: Floats, path: int, waits: float, width: float, sums: Floats, cell: Rows, gap: Floats) -> None:
    """What the positions of a path, which waits for so many steps, add up to in widths of a cell, by group of bodies.

    And the cell that this lies in, along each sum the neighbour that is closer, and the square of the way to it.
    """
    for group in range(GROUPS):
        sums[group, 0] = sums[group, 1] = 0.0
    for body in range(all_sums.shape[0]):
        for axis in range(2):
            sums[body % GROUPS, axis] += (all_sums[body, axis, path] + waits * all_sums[body, 2 + axis, path]) / width
    for axis in range(4):
        x, y, z = sums[0, axis % 2], sums[1, axis % 2], sums[2, axis % 2]
        point = x + y + z if axis < 2 else x - y + z
        cell[0, axis] = math.floor(point)
        inside = point - cell[0, axis]
        beside, way = (-1, inside) if inside < 0.5 else (1, 1.0 - inside)
        cell[1, axis] = cell[0, axis] + beside
        gap[0, axis], gap[1, axis] = 0.0, way * way


@njit(cache=True, nogil=True)
def _number(cells: Cells, a: int, b: int, c: int, d: int) -> int:
    """Cells that share a number cost time, and nothing else. Those beside each other along the last sum lie so, too."""
    mixed = ((a * 1_000_003 + b) * 1_000_003 + c) * 0x2545F4914F6CDD1D
    return ((mixed >> 20) + d) & (len(cells.newest) - 1)


@njit(cache=True, nogil=True)
def _enter(stored: Paths, path: int, cells: Cells, sums: Floats, cell: Rows) -> None:
    """A path that was kept, and is not entered yet."""
    if stored.lengths[path] < cells.steps:
        last = cells.ended[0]
        cells.early[last], cells.early_lengths[last] = path, stored.lengths[path]
        for body in range(stored.sums.shape[0]):
            for value in range(4):
                cells.early_sums[body, value, last] = stored.sums[body, value, path]
        cells.ended[0] += 1
        return
    number = _number(cells, cell[0, 0], cell[0, 1], cell[0, 2], cell[0, 3])
    block = cells.newest[number]
    if block < 0 or cells.filled[block] == BLOCK:
        cells.before[cells.begun[0]] = block
        block = cells.newest[number] = cells.begun[0]
        cells.begun[0] += 1
    place = cells.filled[block]
    cells.filled[block] += 1
    cells.paths[block, place] = path
    for group in range(GROUPS):
        for axis in range(2):
            cells.sums[block, group, axis, place] = sums[group, axis]


@njit(cache=True, nogil=True)
def _in_cells(
    stored: Paths,
    count: int,
    cells: Cells,
    new: Paths,
    one: int,
    sums: Floats,
    cell: Rows,
    gap: Floats,
    near: Near,
    roughly: Shorts,
    blocks: Rows,
) -> int:
    """A path of those in cells that is near, the first of them if it must be; `count` if there is none.

    Its own cell comes first, where a near path is most likely. Cells that are out of reach are left out. Of all others
    the memory is asked for at once, for most of it was in no cache.
    """
    found, steps, stretches = count, float(cells.steps), stored.stretches.shape[1]
    reach = near.reach * steps * SAFE / cells.width
    within = reach
    for group in range(GROUPS):
        within += ROUGH * (reach + abs(sums[group, 0]) + abs(sums[group, 1]))
    corners = 0
    for corner in range(16):
        a, b, c, d = corner >> 3, corner >> 2 & 1, corner >> 1 & 1, corner & 1
        if gap[a, 0] + gap[b, 1] > reach * reach or gap[c, 2] + gap[d, 3] > reach * reach:
            continue
        number = _number(cells, cell[a, 0], cell[b, 1], cell[c, 2], cell[d, 3])
        fetch(cells.newest, number, 1)
        blocks[corners] = number
        corners += 1
    for corner in range(corners):
        block = blocks[corner] = cells.newest[blocks[corner]]
        if block >= 0:
            fetch(cells.sums, block * GROUPS * 2 * BLOCK, GROUPS * 2 * BLOCK)
            fetch(cells.filled, block, 1)
            fetch(cells.before, block, 1)
    for corner in range(corners):
        block = blocks[corner]
        while block >= 0:
            if _within(cells.sums, block, sums, within, roughly):
                for place in range(cells.filled[block]):
                    path = cells.paths[block, place]
                    if (
                        not roughly[place] > within
                        and path < found
                        and _may_be_near(stored.stretches[path], new.stretches[one], stretches, near.reach * steps)
                        and _is_near(stored.places[path], new.places[one], steps, near.distance)
                    ):
                        found = int(path)
                        if not near.first:
                            return found
            block = cells.before[block]
    return found


@njit(cache=True, nogil=True)
def _within(kept: Shorts, block: int, own: Floats, reach: float, apart: Shorts) -> int:
    """How many paths of a block may be near, and how far apart the bodies of each are at least, added up roughly.

    Places that no path is in are compared, too: whoever asks looks at the others alone.
    """
    x, other_x, third_x = np.float32(own[0, 0]), np.float32(own[1, 0]), np.float32(own[2, 0])
    y, other_y, third_y = np.float32(own[0, 1]), np.float32(own[1, 1]), np.float32(own[2, 1])
    most, count = np.float32(reach), np.int32(0)
    for place in range(kept.shape[3]):
        dx, dy = kept[block, 0, 0, place] - x, kept[block, 0, 1, place] - y
        other_dx, other_dy = kept[block, 1, 0, place] - other_x, kept[block, 1, 1, place] - other_y
        third_dx, third_dy = kept[block, 2, 0, place] - third_x, kept[block, 2, 1, place] - third_y
        apart[place] = (
            math.sqrt(dx * dx + dy * dy)
            + math.sqrt(other_dx * other_dx + other_dy * other_dy)
            + math.sqrt(third_dx * third_dx + third_dy * third_dy)
        )
        count += np.int32(not apart[place] > most)
    return int(count)


@njit(cache=True, nogil=True)
def _of_early(
    stored: Paths, cells: Cells, new: Paths, one: int, near: Near, apart: Floats, until: Floats, found: int
) -> int:
    """The first path of those that ended early that is near, or `found` if that comes before it."""
    for first in range(0, cells.ended[0], EARLY):
        last = min(first + EARLY, cells.ended[0])
        _add_up(cells.early_sums, cells.early_lengths, first, last, new.sums[:, :, one], new.lengths[one], apart, until)
        for place in range(first, last):
            steps, path = until[place - first], cells.early[place]
            if (
                apart[place - first] <= near.reach * steps
                and path < found
                and _may_be_near(stored.stretches[path], new.stretches[one], int(steps) // STRETCH, near.reach * steps)
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
def _may_be_near(one: Floats, other: Floats, stretches: int, reach: float) -> bool:
    """The same stretch by stretch, over the first so many, which tells more paths apart."""
    apart = 0.0
    for stretch in range(stretches):
        for body in range(one.shape[1]):
            dx = one[stretch, body, 0] - other[stretch, body, 0]
            dy = one[stretch, body, 1] - other[stretch, body, 1]
            apart += math.sqrt(dx * dx + dy * dy)
        if apart > reach:  # it only grows
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
