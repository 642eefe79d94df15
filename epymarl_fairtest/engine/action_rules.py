"""From scores to actions. A choice depends on the test's own stream and step, never on the batch."""

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core import rng
from epymarl_fairtest.core.scores import greedy, probabilities, ranges
from epymarl_fairtest.engine.contract import ActionRule


def choose(
    q: NDArray[np.float32], stream: NDArray[np.uint64], step: NDArray[np.integer], rule: ActionRule
) -> NDArray[np.int16]:
    """Recorded values (B, N, A), one stream and one stream position per row, to actions (B, N)."""
    best = greedy(q, rule.available)
    if rule.kind == "greedy":
        return best
    if rule.kind in ("softmax", "policy"):
        agents = q.shape[1]
        first = rng.uniform(stream[:, None], 2 * (step.astype(np.int64)[:, None] * agents + np.arange(agents)))
        if rule.kind == "softmax":
            return _inverse_cdf(probabilities(q, rule.available, temperature=_scale(q, rule)), first)
        return _inverse_cdf(q.astype(np.float64), first)  # the values are probabilities
    random = explored(stream, step, rule)
    return np.where(random >= 0, random, best)


def explored(stream: NDArray[np.uint64], step: NDArray[np.integer], rule: ActionRule) -> NDArray[np.int16]:
    """What epsilon-greedy agents do at random (B, N), one stream and one stream position per row; -1: they do not."""
    agents = len(rule.available)
    # Two numbers per agent and step: whether to explore, and where to.
    counter = 2 * (step.astype(np.int64)[:, None] * agents + np.arange(agents))
    row, agent = np.nonzero(rng.uniform(stream[:, None], counter) < rule.epsilon)
    second = rng.uniform(stream[row], counter[row, agent] + 1)
    allowed = (rule.available / rule.available.sum(axis=-1, keepdims=True))[agent]
    random = np.full(counter.shape, -1, np.int16)
    random[row, agent] = _inverse_cdf(allowed, second)
    return random


def _scale(q: NDArray[np.float32], rule: ActionRule) -> NDArray[np.float64]:
    """The temperature in units of the Q range of that agent at that step.

    Raw QMIX utilities differ by a few hundredths: an unscaled softmax over them is a coin toss.
    """
    spread = ranges(q, rule.available).astype(np.float64)[..., None]
    return rule.temperature * np.where(spread > 0, spread, 1.0)


def _inverse_cdf(probability: NDArray[np.float64], u: NDArray[np.float64]) -> NDArray[np.int16]:
    """The action whose slice of [0, 1) holds u; never one of probability 0."""
    edges = np.cumsum(probability, axis=-1)
    with np.errstate(invalid="ignore"):  # rows that do not run at this step are all 0, and nobody reads their action
        edges /= edges[..., -1:]
    action: NDArray[np.int16] = (u[..., None] >= edges).sum(axis=-1).astype(np.int16)
    return action
