"""How a policy's scores are read: `q` (Q-values, of which the best is taken) or `logits` (of a policy that is sampled).

Episodes record Q-values as they are, and probabilities where the policy gives logits. The probability of an action is
computed here and nowhere else; an action that an agent does not have has probability 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

READINGS = ("q", "logits")
Array = NDArray[np.float64]


def recorded(scores: NDArray[np.float32], available: NDArray[np.bool_], reading: str) -> NDArray[np.float32]:
    """What an episode keeps of the scores (..., agents, actions), and the state abstraction rounds."""
    return scores if reading == "q" else probabilities(scores, available).astype(np.float32)


def probabilities(
    values: NDArray[np.float32], available: NDArray[np.bool_], reading: str = "q", temperature: Any = 1.0
) -> Array:
    """Probabilities of actions from recorded values (..., agents, actions).

    Q-values are not probabilities: their softmax at `temperature` (a number, or one per agent and step) is taken.
    """
    weight = weights(values, available, reading, temperature)
    share: Array = weight / weight.sum(axis=-1, keepdims=True)
    return share


def weights(
    values: NDArray[np.float32], available: NDArray[np.bool_], reading: str = "q", temperature: Any = 1.0
) -> Array:
    """The same, not yet divided by their sum."""
    if reading != "q":
        return values.astype(np.float64)
    scaled = np.where(available, values.astype(np.float64) / temperature, -np.inf)
    weight: Array = np.exp(scaled - scaled.max(axis=-1, keepdims=True))
    return weight


def ranges(q: NDArray[np.float32], available: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Best minus worst of the actions an agent has: q (..., agents, actions) to (..., agents)."""
    best, worst = np.where(available, q, -np.inf), np.where(available, q, np.inf)
    spread: NDArray[np.float32] = best.max(axis=-1) - worst.min(axis=-1)
    return spread


def scaled_temperature(q: NDArray[np.float32], available: NDArray[np.bool_]) -> float:
    """The median range of an agent at a step: at temperature 1, QMIX's small utilities are all alike."""
    spread = ranges(q, available)
    median = float(np.median(spread)) if spread.size else 0.0
    return median if median > 0 else 1.0


def greedy(values: NDArray[np.float32], available: NDArray[np.bool_]) -> NDArray[np.int16]:
    """The best action that each agent has; of equal ones the first."""
    best: NDArray[np.int16] = np.where(available, values, -np.inf).argmax(axis=-1).astype(np.int16)
    return best
