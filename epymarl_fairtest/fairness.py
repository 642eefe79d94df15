"""Fairness indices and verdicts on what each agent received. Pure numpy; knows no environment."""

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray


class Verdict(IntEnum):
    FAIR = 0
    UNFAIR = 1
    UNDEFINED = 2  # no agent received anything: the index is 0/0, and nothing was divided


def totals(rewards: NDArray[np.float64]) -> NDArray[np.float64]:
    """x_i(e): rewards (..., steps, agents), zero after the end, to (..., agents).

    Added step by step: numpy's own sum may change its order, and so the last bit, with the batch.
    """
    return np.cumsum(rewards, axis=-2)[..., -1, :]


def jfi(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Jain's Fairness Index (Eq. jfi) over the last axis; NaN where nobody received anything."""
    x = np.asarray(x, dtype=np.float64)
    # The index does not change with scale; dividing by the largest keeps the squares finite.
    largest = np.abs(x).max(axis=-1, keepdims=True)
    x = np.divide(x, largest, out=np.zeros_like(x), where=largest > 0)
    squares = x.shape[-1] * (x * x).sum(axis=-1)
    return np.divide(x.sum(axis=-1) ** 2, squares, out=np.full_like(squares, np.nan), where=squares > 0)


def judge(index: NDArray[np.float64], theta: float) -> NDArray[np.int8]:
    """A verdict per episode: unfair if and only if the index does not exceed theta."""
    verdict = np.where(index <= theta, Verdict.UNFAIR, Verdict.FAIR)
    return np.where(np.isnan(index), Verdict.UNDEFINED, verdict).astype(np.int8)
