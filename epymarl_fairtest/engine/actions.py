"""From Q-values to actions. A choice depends on the test's own stream and step, never on the batch."""

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest import rng
from epymarl_fairtest.engine.contract import Execution


def choose(
    q: NDArray[np.float32], stream: NDArray[np.uint64], step: NDArray[np.integer], how: Execution
) -> NDArray[np.int16]:
    """q (B, N, A), one stream and one stream position per row, to actions (B, N)."""
    masked = np.where(how.available, q, -np.inf)
    greedy = masked.argmax(axis=-1)
    if how.kind == "greedy":
        return greedy.astype(np.int16)
    agents = q.shape[1]
    # Two numbers per agent and step: whether to explore, and where to.
    counter = 2 * (step.astype(np.int64)[:, None] * agents + np.arange(agents))
    first = rng.uniform(stream[:, None], counter)
    if how.kind == "softmax":
        return _inverse_cdf(_softmax(masked, how.temperature), first)
    second = rng.uniform(stream[:, None], counter + 1)
    allowed = np.broadcast_to(how.available / how.available.sum(axis=-1, keepdims=True), q.shape)
    return np.where(first < how.epsilon, _inverse_cdf(allowed, second), greedy).astype(np.int16)


def _softmax(masked: NDArray[np.float64], temperature: float) -> NDArray[np.float64]:
    """Probabilities with the temperature in units of the Q range of that agent at that step.

    Raw QMIX utilities differ by a few hundredths: an unscaled softmax over them is a coin toss.
    """
    masked = masked.astype(np.float64)
    top = masked.max(axis=-1, keepdims=True)
    spread = top - np.where(np.isinf(masked), np.inf, masked).min(axis=-1, keepdims=True)
    scale = temperature * np.where(spread > 0, spread, 1.0)
    weight = np.exp((masked - top) / scale)
    return weight / weight.sum(axis=-1, keepdims=True)


def _inverse_cdf(probability: NDArray[np.float64], u: NDArray[np.float64]) -> NDArray[np.int16]:
    """The action whose slice of [0, 1) holds u; never one of probability 0."""
    edges = np.cumsum(probability, axis=-1)
    edges /= edges[..., -1:]
    return (u[..., None] >= edges).sum(axis=-1).astype(np.int16)
