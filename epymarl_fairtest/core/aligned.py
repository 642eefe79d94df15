"""Arrays that begin where a line of memory begins: what wide registers read then never lies in two lines."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

LINE = 64  # bytes that are read together


def zeros(shape: tuple[int, ...], kind: Any) -> NDArray[Any]:
    """As numpy's."""
    size = math.prod(shape) * np.dtype(kind).itemsize
    memory = np.zeros(size + LINE, np.uint8)
    first = -memory.ctypes.data % LINE
    made: NDArray[Any] = memory[first : first + size].view(kind).reshape(shape)
    return made
