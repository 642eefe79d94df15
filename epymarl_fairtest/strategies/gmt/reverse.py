"""A step of the reverse process, compiled: for few cases numpy would take longer than the network."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Array = NDArray[np.float64]


@njit(cache=True, nogil=True, error_model="numpy")
def step_back(
    x: Array, predicted: NDArray[Any], drawn: Array, noise: float, signal: float, clean: float, noisy: float, new: float
) -> None:
    """x_{t-1} in the place of x_t: x_0, kept within [-1, 1], x_t and new noise, each with its share."""
    for case in range(len(x)):
        for number in range(x.shape[1]):
            at = x[case, number]
            told = (at - noise * predicted[case, number]) / signal
            if told < -1:
                told = -1.0
            elif told > 1:
                told = 1.0
            x[case, number] = clean * told + noisy * at + new * drawn[case, number]
