"""Arrays in memory that others have had before: what the system hands out anew is filled with zeros first.

Python knows when nobody has an array, or a view of it, any more. Its memory then waits, with that of a few others, for
an array of nearly the same size (docs/decisions/082).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

KEPT = 96 * 2**20  # bytes that wait at most; then what has waited longest goes back to the system
FEWEST = 2**18  # bytes of an array that has memory of an earlier one
SPARE = 8  # an array gets at most this part more than it needs


class _Block:
    """Memory that is lent to one array and, when that is gone, waits again."""

    def __init__(self, memory: NDArray[np.uint8]) -> None:
        self.memory = memory


class _Lease:
    """What numpy takes for the owner of an array's memory."""

    def __init__(self, block: _Block, shape: tuple[int, ...], kind: Any) -> None:
        self._block = block
        place = (block.memory.ctypes.data, False)
        self.__array_interface__ = {"shape": shape, "typestr": np.dtype(kind).str, "data": place, "version": 3}

    def __del__(self) -> None:
        _wait(self._block)


_waiting: list[_Block] = []


def _wait(block: _Block, waiting: list[_Block] = _waiting) -> None:
    """Called wherever an array ends, in any thread: every step is one operation on the list."""
    waiting.append(block)
    while sum(other.memory.nbytes for other in waiting.copy()) > KEPT:
        del waiting[:1]


def empty(shape: tuple[int, ...], kind: Any = np.float64) -> NDArray[Any]:
    """An array with anything in it, as numpy's."""
    size = math.prod(shape) * np.dtype(kind).itemsize
    if size < FEWEST:
        return np.empty(shape, kind)
    return np.asarray(_Lease(_fitting(size) or _Block(np.empty(size, np.uint8)), shape, kind))


def _fitting(size: int) -> _Block | None:
    for block in _waiting.copy():
        if size <= block.memory.nbytes <= size + size // SPARE:
            try:
                _waiting.remove(block)
            except ValueError:  # another thread was quicker
                continue
            return block
    return None
