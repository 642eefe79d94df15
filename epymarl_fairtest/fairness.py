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
    x = _scaled(x)
    squares = x.shape[-1] * (x * x).sum(axis=-1)
    return np.divide(x.sum(axis=-1) ** 2, squares, out=np.full_like(squares, np.nan), where=squares > 0)


def judge(index: NDArray[np.float64], theta: float) -> NDArray[np.int8]:
    """A verdict per episode: unfair if and only if the index does not exceed theta."""
    verdict = np.where(index <= theta, Verdict.UNFAIR, Verdict.FAIR)
    return np.where(np.isnan(index), Verdict.UNDEFINED, verdict).astype(np.int8)


def gini_index(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """1 minus the Gini coefficient, scaled so that a single receiver gets 0."""
    x = _scaled(x)
    gaps = np.abs(x[..., :, None] - x[..., None, :]).sum(axis=(-2, -1))
    size = 2 * (x.shape[-1] - 1) * np.abs(x).sum(axis=-1)
    return np.clip(1 - _ratio(gaps, size), 0, 1)


def min_max_index(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """What the agent with least received over what the one with most did, in size; 0 for mixed signs."""
    x = _scaled(x)
    size = np.abs(x)
    mixed = (x > 0).any(axis=-1) & (x < 0).any(axis=-1)
    return np.where(mixed, 0.0, _ratio(size.min(axis=-1), size.max(axis=-1)))


def cv_index(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """1 minus the coefficient of variation over its largest value √(N-1) for rewards of one sign."""
    x = _scaled(x)
    nothing = (x == 0).all(axis=-1)
    mean = np.abs(x.mean(axis=-1))
    variation = np.divide(x.std(axis=-1), mean, out=np.full(mean.shape, np.inf), where=mean > 0)
    return np.where(nothing, np.nan, np.clip(1 - variation / np.sqrt(x.shape[-1] - 1), 0, 1))


def _scaled(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """No index changes with scale; dividing by the largest keeps squares and sums finite and above zero."""
    x = np.asarray(x, dtype=np.float64)
    largest = np.abs(x).max(axis=-1, keepdims=True)
    return np.divide(x, largest, out=np.zeros_like(x), where=largest > 0)


def _ratio(top: NDArray[np.float64], bottom: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.divide(top, bottom, out=np.full(bottom.shape, np.nan), where=bottom > 0)


INDICES = {"jfi": jfi, "gini": gini_index, "min_max": min_max_index, "cv": cv_index}
"""The oracles. All lie in [0, 1], 1 is perfectly even, and NaN means that nobody received anything."""
