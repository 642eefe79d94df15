"""Kept paths by where they went on the whole, so that a new one is compared with those near by.

What the bodies' positions add up to differs between two near paths by no more than the bodies do in all. So do their
sums with some bodies taken negative. Both are points of a plane, and near paths lie in cells next to each other. A cell
is twice as wide as near paths can be apart: along each sum, only the neighbour that is closer can hold one.
A path that ended early is in no cell: what its positions add up to depends on the path that it is compared with.

The paths of a cell lie in blocks, with their sums side by side: they are what is read most.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.campaign.packing.paths import Paths

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]
BLOCK = 16  # paths of a cell whose sums are compared at once, without a branch
GROUPS = 3  # of bodies, the sums of which are compared first; compiled in, like the block
WIDTH = 2.02  # of a cell, in reaches: 2 and a bit, so that coordinates that grow make little difference
SAFE = 1 + 1e-6  # more than any rounding


class Cells(NamedTuple):
    """Kept paths, each entered when it was kept, and room for as many as there is room for in all."""

    newest: NDArray[np.int32]  # by the number of a cell: its block begun last, or -1; few cells share a number
    before: NDArray[np.int32]  # by block: the one that was begun under this number before it, or -1
    filled: NDArray[np.int32]  # by block: how many paths are in it
    paths: NDArray[np.int32]  # (blocks, BLOCK): which
    sums: NDArray[np.float32]  # (blocks, groups, 2, BLOCK): x and y added up, in widths of a cell
    begun: Rows  # (1,) how many blocks
    early: Rows  # the paths that ended early, ascending
    early_sums: Floats  # (bodies, 4, paths), as in Paths: all of them are looked at, one after the other
    early_lengths: Floats
    ended: Rows  # (1,) how many ended early
    steps: int  # of a path that did not
    width: float  # of a cell

    def hold(self, stored: Paths, reach: float) -> bool:
        """Is there room for as many paths, are they as long, and do near ones lie in cells next to each other?"""
        room, steps = stored.places.shape[:2]
        return (len(self.before), self.steps) == (room, steps) and 2 * reach * steps * SAFE <= self.width


def no_cells(stored: Paths, reach: float) -> Cells:
    """For paths with so many steps, as many as there is room for."""
    room, steps, bodies = stored.places.shape[:3]
    return Cells(
        np.full(1 << (2 * room).bit_length(), -1, np.int32),  # a power of two: numbers are the last bits of a hash
        np.empty(room, np.int32),
        np.zeros(room, np.int32),
        np.empty((room, BLOCK), np.int32),  # touched where it is used, as the next
        np.zeros((room, GROUPS, 2, BLOCK), np.float32),
        np.zeros(1, np.int64),
        np.empty(room, np.int64),
        np.empty((bodies, 4, room)),
        np.empty(room),
        np.zeros(1, np.int64),
        steps,
        reach * steps * WIDTH or 1.0,
    )
