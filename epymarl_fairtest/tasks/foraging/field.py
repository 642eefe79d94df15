"""lbforaging's field, as the task reads it and our environment shows it."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def forget(inner: Any) -> None:
    """Take the players off the field: upstream's reset does not spawn a player where one stood before,
    so the episode of a seed would depend on how the episode before it ended."""
    for player in inner.players:
        player.position = None


def food_slots(field: NDArray[np.int32], slots: int) -> list[int]:
    """row, col, level of the food in row-major order, then -1, -1, 0 for empty slots."""
    rows, cols = (where.tolist() for where in np.nonzero(field))
    values = [n for row, col in zip(rows, cols, strict=True) for n in (row, col, int(field[row, col]))]
    return values + [-1, -1, 0] * (slots - len(rows))
