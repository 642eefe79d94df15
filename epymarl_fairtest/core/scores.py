"""How a policy's scores are read: `q` (Q-values, of which the best is taken) or `logits` (of a policy that is sampled).

Episodes record Q-values as they are, and probabilities where the policy gives logits. The probability of an action is
computed here and nowhere else; an action that an agent does not have has probability 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core.errors import FairTestError

READINGS = ("q", "logits")
EXECUTIONS = {"q": ("epsilon_greedy", "softmax", "greedy"), "logits": ("policy", "epsilon_greedy", "greedy")}
"""How a team of each reading may pick its actions when it is tested; the first is what `auto` means for it."""
FEW = 8  # numbers: fewer are added one after the other, by numpy too
Array = NDArray[np.float64]


def execution_of(asked: str, reading: str) -> str:
    """How a team whose scores are read so picks its actions, where `asked` is what the user wants."""
    allowed = EXECUTIONS[reading]
    if asked == "auto":
        return allowed[0]
    if asked not in allowed:
        gives = "Q-values" if reading == "q" else "the probabilities of its actions"
        raise FairTestError(
            f"execution={asked} does not suit this team, which gives {gives}; allowed: auto ({allowed[0]}),"
            f" {', '.join(allowed)}."
        )
    return asked


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
    return weight / across(np.add, weight)


def weights(
    values: NDArray[np.float32], available: NDArray[np.bool_], reading: str = "q", temperature: Any = 1.0
) -> Array:
    """The same, not yet divided by their sum."""
    if reading != "q":
        return values.astype(np.float64)
    scaled = values.astype(np.float64) / temperature
    np.copyto(scaled, -np.inf, where=~available)
    weight: Array = np.exp(scaled - across(np.maximum, scaled))
    return weight


def across(operation: np.ufunc, values: Array) -> Array:
    """`operation.reduce` over the last axis, which stays with one column: numpy takes five times as long along rows
    of a few numbers. Longer ones are its own: it adds eight and more in another order."""
    if not 0 < values.shape[-1] < FEW:
        return np.asarray(operation.reduce(values, axis=-1, keepdims=True))
    result = values[..., :1]
    for column in range(1, values.shape[-1]):
        result = operation(result, values[..., column : column + 1])
    return result


def by_action(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """The same values (..., agents, actions) as they lie in memory action by action: what is computed `across` a few of
    them takes two thirds of the time. More stay as they are, for numpy's own sums depend on it."""
    return np.ascontiguousarray(values.T).T if 0 < values.shape[-1] < FEW else values


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


def as_recorded(answers: NDArray[np.float32], available: NDArray[np.bool_], reading: str) -> NDArray[np.float32]:
    """The same of what a host's controller answered: most that learn a policy answer with probabilities already."""
    if reading == "q" or are_probabilities(answers):
        return answers
    return recorded(answers, available, reading)


def are_probabilities(values: NDArray[np.float32]) -> bool:
    """Are all rows shares of one? Logits are not, but by an accident that a whole episode does not have."""
    return bool((values >= 0).all() and np.allclose(values.sum(axis=-1), 1.0, atol=1e-3))
