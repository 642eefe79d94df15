"""Which promising starts keep their distance, from failing starts that are known and from one another. Compiled.

The distance of two starts is the mean distance of their bodies. Their centres are never further apart than that, so
most pairs are told apart by their centres alone.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

Places = NDArray[np.float64]  # (starts, bodies, 2)
Distances = NDArray[np.float64]
Rows = NDArray[np.int64]


@njit(cache=True, nogil=True)
def nearest(places: Places, known: Places, enough: float) -> Distances:
    """How far each start is from the nearest of `known`; `enough` if none is closer."""
    centres, others = _centres(places), _centres(known)
    order = np.argsort(others[:, 0])
    line = others[order, 0]
    distances = np.full(len(places), enough)
    for row in range(len(places)):
        best, x, y = enough, centres[row, 0], centres[row, 1]
        right = np.searchsorted(line, x)
        left = right - 1
        while True:  # outwards from where it stands on the line
            to_right = line[right] - x if right < len(line) else np.inf
            to_left = x - line[left] if left >= 0 else np.inf
            if min(to_right, to_left) >= best:
                break
            if to_right < to_left:
                other = order[right]
                right += 1
            else:
                other = order[left]
                left -= 1
            if abs(others[other, 1] - y) < best:
                best = _nearer(places, row, known, other, best)
        distances[row] = best
    return distances


@njit(cache=True, nogil=True)
def take_apart(
    places: Places, away: Distances, compared: Rows, kind: Rows, quota: Rows, distance: float, taken: Rows, count: int,
    wanted: int,
) -> int:  # fmt: skip
    """From the first start to the last, take those that are `distance` away from what they were compared with.

    That is what is known, and all that are taken: `taken` holds `count` rows, and more afterwards, until `wanted` in
    all, at most `quota` of each kind. `compared` remembers with how many of the taken ones each start was compared.
    """
    centres = _centres(places)
    held = np.zeros(len(places), np.bool_)
    held[taken[:count]] = True
    for row in range(len(places)):
        if count >= wanted:
            break
        if held[row] or quota[kind[row]] <= 0:
            continue
        while away[row] >= distance and compared[row] < count:
            other = taken[compared[row]]
            compared[row] += 1
            if (
                abs(centres[row, 0] - centres[other, 0]) < away[row]
                and abs(centres[row, 1] - centres[other, 1]) < away[row]
            ):
                away[row] = _nearer(places, row, places, other, away[row])
        if away[row] >= distance:
            taken[count] = row
            count += 1
            quota[kind[row]] -= 1
    return count


@njit(cache=True, nogil=True)
def classes(places: Places, radius: float) -> Rows:
    """The class of each start: that of the first centre within `radius`, or a new one in the middle of which it is."""
    label = np.empty(len(places), np.int64)
    middle = np.empty(len(places), np.int64)
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
    return label


@njit(cache=True, nogil=True, inline="always")
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


@njit(cache=True, nogil=True)
def _centres(places: Places) -> Distances:
    centres = np.zeros((len(places), 2))
    for row in range(len(places)):
        for body in range(places.shape[1]):
            centres[row, 0] += places[row, body, 0] / places.shape[1]
            centres[row, 1] += places[row, body, 1] / places.shape[1]
    return centres
