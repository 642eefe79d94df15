"""Memory of arrays that nobody holds any more, kept for the next ones: the system clears fresh memory page by page.

An array knows its lease and every view knows its array, so a lease that is gone was the last that anybody knew.
"""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
LEAST = 2**18  # bytes: smaller arrays are left to numpy
LINE = 64  # arrays begin where a line of the cache does


class Pool:
    """Free memory for arrays, of at most this many bytes; what is returned beyond that is freed."""

    def __init__(self, most: int) -> None:
        self._most, self._free = most, list[Bytes]()
        self._lock = threading.Lock()

    def used(self, shape: tuple[int, ...], dtype: Any = np.float64) -> NDArray[Any]:
        """An array that holds anything; its memory comes back when it and all views of it are gone."""
        size = math.prod(shape) * np.dtype(dtype).itemsize
        if size < LEAST:
            return np.empty(shape, dtype)
        array = np.asarray(_Lease(self, self._take(size)))
        first = -array.ctypes.data % LINE
        room: NDArray[Any] = array[first : first + size].view(dtype)
        return room.reshape(shape)

    def _take(self, size: int) -> Bytes:
        """Free memory that fits and is at most twice as large, or fresh memory."""
        if self._lock.acquire(blocking=False):  # nobody waits: there is always fresh memory
            try:
                fitting = [at for at, memory in enumerate(self._free) if size + LINE <= len(memory) <= 2 * size + LINE]
                if fitting:
                    return self._free.pop(min(fitting, key=lambda at: len(self._free[at])))
            finally:
                self._lock.release()
        return np.empty(size + LINE, np.uint8)

    def give_back(self, memory: Bytes) -> None:
        # If the lock is taken, then maybe by this very thread, which was interrupted to collect garbage.
        if self._lock.acquire(blocking=False):
            try:
                self._free.append(memory)
                while sum(map(len, self._free)) > self._most:
                    del self._free[0]  # the one that was needed least lately
            finally:
                self._lock.release()


class _Lease:
    """What an array has instead of memory of its own."""

    def __init__(self, pool: Pool, memory: Bytes) -> None:
        self._pool, self._memory = pool, memory
        self.__array_interface__ = memory.__array_interface__

    def __del__(self) -> None:
        self._pool.give_back(self._memory)


BATCHES = Pool(96 * 2**20)
"""Of what is recorded in batches of episodes: about 4,096 of tag."""
