"""Gradient boosting of regression trees on binned numbers, compiled: scikit-learn's, bit for bit (docs/decisions/083).

Knows rows and a target, with no number missing. A search fits dozens of small models, and scikit-learn spends most of
such a fit in Python.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

Array = NDArray[np.float64]
Whole = NDArray[np.int64]
Bins = NDArray[np.uint8]
BINS = 64
TINY = 1e-15  # added to a number of rows before it divides


class Boosting:
    """Squared error, the leaf that gains most first, nothing drawn and nothing held out."""

    def __init__(self, rows: Array, target: Array, *, rounds: int, rate: float, leaves: int, least: int) -> None:
        """At most `leaves` leaves of at least `least` rows."""
        (count, features), nodes, edges = rows.shape, 2 * leaves, edges_of(rows)
        binned, known = np.empty((count, features), np.uint8), np.zeros((features, BINS))
        for place, ends in enumerate(edges):
            binned[:, place] = np.searchsorted(ends, rows[:, place])
            known[place, : len(ends)] = ends
        counts = np.array([len(ends) for ends in edges])
        whole, real = np.zeros((6, rounds, nodes), np.int64), np.zeros((3, rounds, nodes))
        whole[1, :, 0] = count  # rows of the root
        whole[2, :, 1] = 1  # the root has no sibling: what it is taken from is overwritten before it is read
        sums, tallies = np.empty((leaves, features * BINS)), np.empty((leaves, features * BINS))
        gain, heap = np.full(nodes, np.inf), np.full(leaves + 2, nodes - 1)  # the last node is none: it gains most
        order, aside = np.empty(count, np.int64), np.empty(count, np.int64)
        self._base = float(np.average(target))
        expected, first = np.full(count, self._base), binned[:, 0].copy()
        for n in range(rounds):
            order[:] = np.arange(count)
            slope = (expected - target).astype(np.float32).astype(np.float64)
            real[0, n, 0] = np.bincount(first, slope, BINS + 1).sum()  # added up by bins, in numpy's order
            its = *whole[:, n], *real[:, n], gain, heap
            _grow(binned, slope, order, aside, sums, tallies, counts, least, leaves, rate, expected, *its)
        self._feature, self._below, self._value = whole[3], whole[5], real[2]
        self._edge = known[self._feature, whole[4]]

    def predict(self, rows: Array) -> Array:
        expected = np.full(len(rows), self._base)
        _add_up(np.ascontiguousarray(rows), self._feature, self._edge, self._below, self._value, expected)
        return expected


def edges_of(rows: Array) -> list[Array]:
    """Where the bins of each feature end: half way between its values, or where equally many values are in each."""
    ordered = np.sort(rows.T, axis=1)
    new = ordered[:, 1:] != ordered[:, :-1]
    many, shares = new.sum(axis=1) >= BINS, np.linspace(0, 100, BINS + 1)[1:-1]
    at = np.percentile(np.arange(len(rows)), shares, method="averaged_inverted_cdf")
    low, high = ordered[:, np.floor(at).astype(np.int64)], ordered[:, np.ceil(at).astype(np.int64)]
    parted = high - (high - low) * 0.5
    return [np.unique(parted[n] if many[n] else _middles(ordered[n], new[n])) for n in range(len(ordered))]


def _middles(row: Array, new: NDArray[np.bool_]) -> Array:
    """Half way between sorted values; `new` is where one differs from the one before."""
    values = np.concatenate([row[:1], row[1:][new]])
    middles: Array = (values[1:] + values[:-1]) / 2
    return middles


@njit(cache=True, nogil=True, error_model="numpy")
def _grow(
    binned: Bins, slope: Array, order: Whole, aside: Whole, sums: Array, tallies: Array, counts: Whole, least: int,
    leaves: int, rate: float, expected: Array, first: Whole, size: Whole, slot: Whole, feature: Whole, cut: Whole,
    below: Whole, total: Array, near: Array, value: Array, gain: Array, heap: Whole,
) -> None:  # fmt: skip
    """One tree, and what it adds to what is expected of each row.

    By node: its rows are `size` ones of `order` from `first` on; the sums of its bins are in a `slot`, and `total` in
    all. It is parted behind the bin `cut` of a `feature`, into the nodes `below` and the next; `near` is the first's
    total. Arrays come from outside, and conditions are numbers where they can be: both are compiled far sooner.
    """
    features = len(counts)
    fresh = 0  # the first of the `made` nodes that nobody has looked at
    made = 1
    waiting = 0  # nodes in the heap, from 1 on; at 0 is one that gains more than any
    small = 0
    while made < 2 * leaves - 1:
        # What the slopes of the smaller side add up to in each bin, and how many they are; the rest is the larger side.
        here = slot[small]
        there = slot[2 * fresh + 1 - small]
        for one in range(features * BINS):
            sums[here, one] = 0.0
            tallies[here, one] = 0.0
        for n in range(first[small], first[small] + size[small]):
            row = order[n]
            for place in range(features):
                one = place * BINS + binned[row, place]
                sums[here, one] += slope[row]
                tallies[here, one] += 1.0
        for one in range(features * BINS):
            sums[there, one] -= sums[here, one]
            tallies[there, one] -= tallies[here, one]
        for node in range(fresh, made):
            # The split that gains most, the first of equals.
            here = slot[node]
            now = total[node] * value[node]
            best = 0.0
            for place in range(features):
                left = 0.0
                few = 0.0
                for one in range(counts[place]):
                    left += sums[here, place * BINS + one]
                    few += tallies[here, place * BINS + one]
                    if few < least:
                        continue
                    many = size[node] - few
                    if many < least:
                        break
                    right = total[node] - left
                    found = now - left * (-left / (few + TINY)) - right * (-right / (many + TINY))
                    if found > best:
                        best = found
                        near[node] = left
                        feature[node] = place
                        cut[node] = one
            gain[node] = best
            # Into a heap as heapq has it, which decides among equals; so does taking out of it.
            if best > 0.0:
                waiting += 1
                at = waiting
                while best > gain[heap[at >> 1]]:
                    heap[at] = heap[at >> 1]
                    at >>= 1
                heap[at] = node
        if waiting == 0:
            break
        node = heap[1]
        last = heap[waiting]
        waiting -= 1
        at = 1
        child = 2
        while child <= waiting:
            child += (child < waiting) & (gain[heap[child]] <= gain[heap[child + 1]])
            heap[at] = heap[child]
            at = child
            child = 2 * at
        while gain[last] > gain[heap[at >> 1]]:
            heap[at] = heap[at >> 1]
            at >>= 1
        heap[at] = last
        # Rows of the left side first, each side in its order.
        middle = first[node]
        others = 0
        place = feature[node]
        for n in range(first[node], first[node] + size[node]):
            row = order[n]
            order[middle] = row
            aside[others] = row
            middle += binned[row, place] <= cut[node]
            others += binned[row, place] > cut[node]
        for n in range(others):
            order[middle + n] = aside[n]
        fresh = made
        made += 2
        below[node] = fresh
        first[fresh] = first[node]
        first[fresh + 1] = middle
        size[fresh] = middle - first[node]
        size[fresh + 1] = others
        total[fresh] = near[node]
        total[fresh + 1] = total[node] - near[node]
        value[fresh] = -total[fresh] / (size[fresh] + TINY)
        value[fresh + 1] = -total[fresh + 1] / (others + TINY)
        small = fresh + (size[fresh] >= others)
        slot[small] = (fresh >> 1) + 1
        slot[2 * fresh + 1 - small] = slot[node]
    for node in range(made):
        value[node] *= rate
        for n in range(first[node], first[node] + size[node] * (below[node] == 0)):
            expected[order[n]] += value[node]


@njit(cache=True, nogil=True, error_model="numpy")
def _add_up(rows: Array, feature: Whole, edge: Array, below: Whole, value: Array, expected: Array) -> None:
    """What the trees, one after the other, add to what is expected of each row."""
    for row in range(len(rows)):
        for tree in range(len(feature)):
            node = 0
            while below[tree, node]:
                node = below[tree, node] + (rows[row, feature[tree, node]] > edge[tree, node])
            expected[row] += value[tree, node]
