"""Long arrays worked through a block of rows at a time: the memory of what lies between is used again and again.

Made for all rows at once it would be fresh from the system, and clearing it takes longer than the work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROWS = 2048  # some hundred kilobytes of scores


def in_blocks(work: Callable[[NDArray[Any]], NDArray[Any]], values: NDArray[Any], kind: Any) -> NDArray[Any]:
    """What `work` makes of each row: one number of this kind, whatever the other rows are."""
    made = np.empty(len(values), kind)
    for first in range(0, len(values), ROWS):
        made[first : first + ROWS] = work(values[first : first + ROWS])
    return made
