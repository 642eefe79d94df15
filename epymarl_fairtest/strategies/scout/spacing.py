"""Which promising starts keep their distance, from failing starts that are known and from one another. Compiled.

The distance of two starts is the mean distance of their bodies. Their centres are never further apart than that, so
many pairs are told apart by their centres alone. Nobody asks how far the nearest start is, only whether one is too
near: a start is compared with others until one is, and goes on from there when the distance shrinks.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

Places = NDArray[np.float64]  # (starts, bodies, 2)
Distances = NDArray[np.float64]
Rows = NDArray[np.int64]


class Starts(NamedTuple):
    """Starts, where their centres are, and what each was compared with so far."""

    places: Places
    centres: Distances  # (starts, 2)
    near: Distances  # how far the one is that was too near; all others it was compared with are no nearer
    left: Rows  # the known starts beyond this one were compared, on the line of their centres
    right: Rows  # and those before this one
    taken: Rows  # how many of the taken starts were compared


def on_a_line(places: Places) -> tuple[Places, Distances]:
    """Starts in the order of their centres from left to right, and these centres."""
    centres = centres_of(places)
    order = np.argsort(centres[:, 0], kind="stable")
    return places[order], centres[order]


def compared_with_none(places: Places, known: Distances) -> Starts:
    """Starts that are to be compared with known ones, whose centres stand on a line."""
    centres = centres_of(places)
    right = np.searchsorted(known[:, 0], centres[:, 0])
    count = len(places)
    return Starts(places, centres, np.full(count, np.inf), right - 1, right, np.zeros(count, np.int64))


def take_apart(
    starts: Starts, known: Places, line: Distances, kind: Rows, quota: Rows, distance: float, taken: Rows, count: int,
    wanted: int,
) -> int:  # fmt: skip
    """From the first start to the last, take those that are `distance` away from all known ones and all taken ones.

    `taken` holds `count` rows, and more afterwards, until `wanted` in all, at most `quota` of each kind.
    """
    held = np.zeros(len(kind), np.bool_)
    held[taken[:count]] = True
    done: int = _take_apart(*starts, known, line, kind, quota, held, distance, taken, count, wanted)
    return done


@njit(cache=True, nogil=True)
def _take_apart(
    places: Places, centres: Distances, near: Distances, left: Rows, right: Rows, compared: Rows, known: Places,
    line: Distances, kind: Rows, quota: Rows, held: NDArray[np.bool_], distance: float, taken: Rows, count: int,
    wanted: int,
) -> int:  # fmt: skip
    for row in range(len(kind)):
        if count >= wanted:
            break
        if held[row] or quota[kind[row]] <= 0:
            continue
        _compare_with_known(places, centres, near, left, right, row, known, line, distance)
        _compare_with_taken(places, centres, near, compared, row, taken, count, distance)
        if near[row] >= distance:
            taken[count] = row
            count += 1
            quota[kind[row]] -= 1
    return count


@njit(cache=True, nogil=True, inline="always")
def _compare_with_known(
    places: Places, centres: Distances, near: Distances, left: Rows, right: Rows, row: int, known: Places,
    line: Distances, distance: float,
) -> None:  # fmt: skip
    """Outwards from where the start stands on the line, until one is nearer than `distance` or all others are not."""
    x, y = centres[row, 0], centres[row, 1]
    while near[row] >= distance:
        to_right = line[right[row], 0] - x if right[row] < len(line) else np.inf
        to_left = x - line[left[row], 0] if left[row] >= 0 else np.inf
        if to_right >= distance and to_left >= distance:
            break
        if to_right < to_left:
            other = right[row]
            right[row] += 1
        else:
            other = left[row]
            left[row] -= 1
        if abs(line[other, 1] - y) < distance:
            found = _nearer(places, row, known, other, distance)
            near[row] = found if found < near[row] else near[row]


@njit(cache=True, nogil=True, inline="always")
def _compare_with_taken(
    places: Places, centres: Distances, near: Distances, compared: Rows, row: int, taken: Rows, count: int,
    distance: float,
) -> None:  # fmt: skip
    """In the order in which they were taken, until one is nearer than `distance`."""
    x, y = centres[row, 0], centres[row, 1]
    while near[row] >= distance and compared[row] < count:
        other = taken[compared[row]]
        compared[row] += 1
        if abs(x - centres[other, 0]) < distance and abs(y - centres[other, 1]) < distance:
            found = _nearer(places, row, places, other, distance)
            near[row] = found if found < near[row] else near[row]


def classes(places: Places, radius: float) -> Rows:
    """The class of each start: that of the first centre within `radius`, or a new one in the middle of which it is."""
    label, middle = np.zeros(len(places), np.int64), np.zeros(len(places), np.int64)
    _classify(places, radius, label, middle)
    return label


@njit(cache=True, nogil=True)
def _classify(places: Places, radius: float, label: Rows, middle: Rows) -> None:
    count = 0
    for row in range(len(places)):
        label[row] = count
        for n in range(count):
            if _nearer(places, row, places, middle[n], radius) < radius:
                label[row] = n
                break
        if label[row] == count:
            middle[count] = row
            count += 1


@njit(cache=True, nogil=True)
def _nearer(places: Places, row: int, others: Places, other: int, best: float) -> float:
    """The distance of two starts if it is below `best`, otherwise `best`."""
    bodies = places.shape[1]
    total = 0.0
    for body in range(bodies):
        dx = places[row, body, 0] - others[other, body, 0]
        dy = places[row, body, 1] - others[other, body, 1]
        total += math.sqrt(dx * dx + dy * dy)
        if total >= best * bodies:
            return best
    mean: float = total / bodies
    return mean


def centres_of(places: Places) -> Distances:
    centres = np.zeros((len(places), 2))
    for body in range(places.shape[1]):
        centres += places[:, body] / places.shape[1]
    return centres
