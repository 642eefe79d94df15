"""Gradient boosting of regression trees on binned features, compiled: scikit-learn's, number for number.

Knows rows and targets. A search fits dozens of small models, and scikit-learn spends most of such a fit in Python.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bins = NDArray[np.uint8]
MOST_BINS = 64  # of known values; missing ones have one of their own behind them
LEAF = -1
TINY = 1e-15  # added to a count before it divides


class Room(NamedTuple):
    """What growing a tree writes to, by node; made once for all trees, and not in a kernel, which would compile it."""

    sums: Floats  # (nodes, features, bins): slopes of the rows in each bin
    tallies: NDArray[np.int64]  # and how many these are
    spans: NDArray[np.int64]  # (nodes, 2): the rows of a node among the ordered ones
    numbers: Floats  # (4, nodes): sum of the slopes, value, gain of the best split, sum of the slopes on its left
    plans: NDArray[np.int64]  # (nodes, 3): the best split's feature, bin, and whether missing values go to the left
    heap: NDArray[np.int64]  # nodes that may be split
    order: NDArray[np.int64]  # all rows
    aside: NDArray[np.int64]  # rows that move


def room_for(rows: int, features: int, nodes: int) -> Room:
    whole, bins = np.int64, (nodes, features, MOST_BINS + 1)
    return Room(
        np.zeros(bins), np.zeros(bins, whole), np.zeros((nodes, 2), whole), np.zeros((4, nodes)),
        np.zeros((nodes, 3), whole), np.zeros(nodes, whole), np.zeros(rows, whole), np.zeros(rows, whole),
    )  # fmt: skip


class Boosting:
    """Squared error, best leaf first, nothing drawn: `HistGradientBoostingRegressor` as the surrogate sets it."""

    def __init__(self, *, rounds: int, rate: float, leaves: int, least: int) -> None:
        """At least `least` rows in each of at most `leaves` leaves."""
        self._rounds, self._rate, self._leaves, self._least = rounds, rate, leaves, least

    def fit(self, rows: Floats, target: Floats) -> Boosting:
        rows = np.ascontiguousarray(rows)
        edges = [_edges(column) for column in rows.T]
        count, size, nodes = len(rows), len(edges), 2 * self._leaves - 1
        counts = np.array([len(one) + 1 for one in edges])
        known = np.full((size, MOST_BINS), np.inf)  # beyond the last edge: only missing values are further
        for place, one in enumerate(edges):
            known[place, : len(one)] = one
        binned = np.empty((size, count), np.uint8)
        _bin(rows, known, counts, binned)
        missing: NDArray[np.bool_] = np.asarray(np.isnan(rows).any(axis=0))
        self._base = float(np.average(target))
        expected = np.full(count, self._base)
        self._links = np.full((self._rounds, nodes, 3), LEAF)  # feature, left, right
        self._cuts = np.zeros((self._rounds, nodes, 2))  # threshold, value
        self._lost = np.zeros((self._rounds, nodes), bool)  # do missing values go to the left?
        room, whole = room_for(count, size, nodes), np.arange(count)
        for n in range(self._rounds):
            slope = (expected - target).astype(np.float32)
            room.order[:] = whole
            _tally(binned, slope, room, 0, 0, count)
            room.numbers[:, 0] = np.sum(room.sums[0, 0]), 0, 0, 0  # numpy's order of adding up
            tree = (self._links[n], self._cuts[n], self._lost[n])
            _grow(binned, slope, counts, missing, known, self._least, self._leaves, room, *tree)
            self._cuts[n, :, 1] *= self._rate
            _add_up(rows, self._links[n : n + 1], self._cuts[n : n + 1], self._lost[n : n + 1], expected)
        return self

    def predict(self, rows: Floats) -> Floats:
        expected = np.full(len(rows), self._base)
        _add_up(np.ascontiguousarray(rows), self._links, self._cuts, self._lost, expected)
        return expected


def _edges(column: Floats) -> Floats:
    """Where bins end: between all known values, or where the same share of them lies in each bin."""
    column = np.sort(column[~np.isnan(column)])
    distinct = np.unique(column)
    if len(distinct) <= MOST_BINS:
        edges: Floats = (distinct[:-1] + distinct[1:]) / 2
    else:
        shares = np.linspace(0, 100, num=MOST_BINS + 1)[1:-1]
        edges = np.percentile(column, shares, method="averaged_inverted_cdf")
    return np.minimum(np.unique(edges), np.finfo(np.float64).max)


@njit(cache=True, nogil=True)
def _bin(rows: Floats, edges: Floats, counts: NDArray[np.int64], binned: Bins) -> None:
    """The first bin whose edge is not below a value; the bin after all others where it is missing."""
    for place in range(binned.shape[0]):
        for row in range(binned.shape[1]):
            value = rows[row, place]
            low, high = 0, counts[place] - 1
            while low < high:
                middle = (low + high) // 2
                if value <= edges[place, middle]:
                    high = middle
                else:
                    low = middle + 1
            binned[place, row] = MOST_BINS if np.isnan(value) else low


@njit(cache=True, nogil=True)
def _tally(binned: Bins, slope: NDArray[np.float32], room: Room, node: int, first: int, last: int) -> None:
    """What the slopes of a node's rows add up to in each bin, in the order of the rows, and how many they are."""
    for place in range(binned.shape[0]):
        for one in range(MOST_BINS + 1):
            room.sums[node, place, one] = 0.0
            room.tallies[node, place, one] = 0
        for n in range(first, last):
            row = room.order[n]
            one = binned[place, row]
            room.sums[node, place, one] += np.float64(slope[row])
            room.tallies[node, place, one] += 1


@njit(cache=True, nogil=True)
def _value(total: float, size: int) -> float:
    return -total / (size + TINY)


@njit(cache=True, nogil=True)
def _plan(counts: NDArray[np.int64], missing: NDArray[np.bool_], least: int, room: Room, node: int) -> None:
    """The split of a node that gains most, the first of equals; its gain stays 0 where none gains anything."""
    total, size = room.numbers[0, node], room.spans[node, 1] - room.spans[node, 0]
    now, best = total * room.numbers[1, node], 0.0
    for place in range(len(counts)):
        for lost in range(1 + int(missing[place])):  # then the other way, with what is missing on the left
            near, rows, last = 0.0, 0, counts[place] - 1
            for n in range(last if lost else last + int(missing[place])):
                one = last - 1 - n if lost else n
                rows += room.tallies[node, place, one + lost]
                near += room.sums[node, place, one + lost]
                if rows < least:
                    continue
                if size - rows < least:
                    break
                left, right = (total - near, near) if lost else (near, total - near)
                few, many = (size - rows, rows) if lost else (rows, size - rows)
                gain = now - left * _value(left, few) - right * _value(right, many)
                if gain > best:
                    best = gain
                    room.numbers[3, node] = left
                    room.plans[node, 0], room.plans[node, 1], room.plans[node, 2] = place, one, lost
    room.numbers[2, node] = best


@njit(cache=True, nogil=True)
def _push(room: Room, node: int, at: int) -> None:
    """Put a node at a place of the heap, and let it rise above those that gain less; heapq's order among equals."""
    heap, gains = room.heap, room.numbers[2]
    while at > 0 and gains[node] > gains[heap[(at - 1) // 2]]:
        heap[at] = heap[(at - 1) // 2]
        at = (at - 1) // 2
    heap[at] = node


@njit(cache=True, nogil=True)
def _pop(room: Room, count: int) -> int:
    """Take the node that gains most out of the heap, which has so many afterwards."""
    heap, gains, at = room.heap, room.numbers[2], 0 * count  # for a literal, numba would compile once more
    first: int = heap[0]
    last: int = heap[count]
    while 2 * at + 1 < count:
        child = 2 * at + 1
        if child + 1 < count and not gains[heap[child]] > gains[heap[child + 1]]:
            child += 1
        heap[at] = heap[child]
        at = child
    _push(room, last, at)
    return first


@njit(cache=True, nogil=True)
def _part(binned: Bins, room: Room, node: int) -> int:
    """Rows of the left side first, each side in its order; where the right side begins."""
    place, cut, lost = room.plans[node, 0], room.plans[node, 1], room.plans[node, 2]
    left: int = room.spans[node, 0]
    right = 0
    for n in range(room.spans[node, 0], room.spans[node, 1]):
        row = room.order[n]
        one = binned[place, row]
        if one <= cut or (lost and one == MOST_BINS):
            room.order[left] = row
            left += 1
        else:
            room.aside[right] = row
            right += 1
    for n in range(right):
        room.order[left + n] = room.aside[n]
    return left


@njit(cache=True, nogil=True)
def _divide(binned: Bins, slope: NDArray[np.float32], least: int, room: Room, node: int, left: int) -> None:
    """Rows, sums and values of the two sides of a node, which are the nodes `left` and the one after it."""
    right, middle, spans, numbers = left + 1, _part(binned, room, node), room.spans, room.numbers
    spans[left, 0], spans[left, 1], spans[right, 0], spans[right, 1] = spans[node, 0], middle, middle, spans[node, 1]
    numbers[0, left], numbers[0, right] = numbers[3, node], numbers[0, node] - numbers[3, node]
    for side in (left, right):
        numbers[1, side] = _value(numbers[0, side], spans[side, 1] - spans[side, 0])
    small, large = left, right
    if middle - spans[left, 0] >= spans[right, 1] - middle:
        small, large = right, left
    if spans[large, 1] - spans[large, 0] >= 2 * least:
        _tally(binned, slope, room, small, spans[small, 0], spans[small, 1])
        for place in range(binned.shape[0]):  # loops: assigning slices would compile far more
            for one in range(MOST_BINS + 1):
                room.sums[large, place, one] = room.sums[node, place, one] - room.sums[small, place, one]
                room.tallies[large, place, one] = room.tallies[node, place, one] - room.tallies[small, place, one]


@njit(cache=True, nogil=True)
def _grow(
    binned: Bins, slope: NDArray[np.float32], counts: NDArray[np.int64], missing: NDArray[np.bool_], edges: Floats,
    least: int, leaves: int, room: Room, links: NDArray[np.int64], cuts: Floats, lost: NDArray[np.bool_],
) -> None:  # fmt: skip
    """One tree, best node first, from the sums and tallies of its root."""
    room.spans[0, 0], room.spans[0, 1] = 0, len(room.order)
    waiting = 0 * leaves  # nodes that may be split; for a literal, numba would compile once more
    fresh, made = waiting, waiting + 1  # the first new node, and how many there are
    while True:
        for node in range(fresh, made):
            room.numbers[2, node] = 0.0
            if room.spans[node, 1] - room.spans[node, 0] >= 2 * least:
                _plan(counts, missing, least, room, node)
            if room.numbers[2, node] > 0:
                _push(room, node, waiting)
                waiting += 1
        if not waiting or made == 2 * leaves - 1:
            break
        waiting -= 1
        node = _pop(room, waiting)
        place, cut = room.plans[node, 0], room.plans[node, 1]
        _divide(binned, slope, least, room, node, made)
        links[node, 0], links[node, 1], links[node, 2] = place, made, made + 1
        cuts[node, 0] = edges[place, cut]
        first, middle, last = room.spans[made, 0], room.spans[made, 1], room.spans[made + 1, 1]
        lost[node] = room.plans[node, 2] == 1 if missing[place] else middle - first > last - middle
        fresh, made = made, made + 2
    for node in range(made):
        cuts[node, 1] = room.numbers[1, node]


@njit(cache=True, nogil=True)
def _add_up(rows: Floats, links: NDArray[np.int64], cuts: Floats, lost: NDArray[np.bool_], expected: Floats) -> None:
    """What the trees, one after the other, add to what is expected of each row."""
    for tree in range(len(links)):
        for row in range(len(rows)):
            node = 0
            while links[tree, node, 1] != LEAF:
                value = rows[row, links[tree, node, 0]]
                left = lost[tree, node] if np.isnan(value) else value <= cuts[tree, node, 0]
                node = links[tree, node, 1] if left else links[tree, node, 2]
            expected[row] += cuts[tree, node, 1]
