"""Kept paths sorted by where they went on the whole, so that a new one is compared with those near by.

What the bodies' positions add up to differs between two near paths by no more than the bodies do in all. So do their
sums with every other body taken negative. Both are points of a plane, and near paths lie in cells next to each other.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.campaign.packing.paths import Paths

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]
MOST_CELLS = 16  # along each of the four sums
SAFE = 1 + 1e-6  # cells are wider than they need be by more than any rounding


class Cells(NamedTuple):
    """The first paths that were kept, cell by cell; at the end those that ended early, which are in no cell."""

    rows: Rows  # which path of those kept
    sums: Floats  # (bodies, 4, paths), as in Paths
    lengths: Floats
    begins: Rows  # of the paths of each cell, and of those in none
    counts: Rows  # (4,) cells along each sum
    low: Floats  # (4,) where the cells begin
    width: float  # of a cell


def cells_of(stored: Paths, count: int, reach: float) -> Cells:
    """The first `count` paths of those kept."""
    steps = stored.places.shape[1]
    lengths = stored.lengths[:count]
    where = added_up(stored.sums[:, :2, :count])
    whole = lengths == steps
    placed = where[:, whole] if whole.any() else np.zeros((4, 1))
    low, high = placed.min(axis=1), placed.max(axis=1)
    width = max(reach * steps, float((high - low).max()) / MOST_CELLS) * SAFE or 1.0
    counts = ((high - low) / width).astype(np.int64) + 1
    place = ((where - low[:, None]) / width).astype(np.int64)
    cell = np.where(whole, np.ravel_multi_index(tuple(place), tuple(counts), mode="clip"), counts.prod())
    rows = np.argsort(cell, kind="stable")
    begins = np.cumsum(np.bincount(cell + 1, minlength=counts.prod() + 2))[:-1]
    sums = np.ascontiguousarray(stored.sums[:, :, rows])
    return Cells(rows, sums, lengths[rows], begins, counts, low, width)


def added_up(sums: Floats) -> Floats:
    """Sums (bodies, 2, paths) of all bodies, and with every other one negative: (4, paths)."""
    sign = np.where(np.arange(len(sums)) % 2, -1.0, 1.0)
    return np.concatenate([sums.sum(axis=0), (sums * sign[:, None, None]).sum(axis=0)])
