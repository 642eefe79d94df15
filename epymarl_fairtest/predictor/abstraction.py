"""Q*-irrelevance abstraction (Eq. abs): states with equal Q-values, rounded up to multiples of d, are one.

A joint abstract state is the tuple of all agents' rounded Q-vectors. It is named by a 64-bit hash of the
tuple: with 10,000 states the chance that any two share a name is about 1e-12.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core import rng
from epymarl_fairtest.core.blocks import in_blocks

FEWEST, MOST = 1_500, 10_000
"""Joint states in the training data between which the abstraction is neither blind nor pedantic."""

_MULTIPLIERS = rng.named(0, "joint states").integers(0, 2**63, 4096, dtype=np.uint64) * np.uint64(2) + np.uint64(1)


def joint_states(q: NDArray[np.float32], d: float) -> NDArray[np.uint64]:
    """The name of the joint abstract state of each step: q (steps, agents, actions) to (steps,)."""
    flat = q.reshape(len(q), q.shape[1] * q.shape[2])  # not -1: there may be no step at all
    multipliers = _MULTIPLIERS[: flat.shape[1]]

    def names(rows: NDArray[np.float32]) -> NDArray[np.uint64]:
        return np.ceil(rows / np.float64(d)).astype(np.int64).view(np.uint64) @ multipliers

    with np.errstate(over="ignore"):
        return rng.mix(in_blocks(names, flat, np.uint64))


@dataclass(frozen=True)
class Abstraction:
    d: float
    vocabulary: NDArray[np.uint64]  # joint states observed in the training data, sorted

    def __len__(self) -> int:
        return len(self.vocabulary)

    def columns(self, q: NDArray[np.float32]) -> NDArray[np.int64]:
        """Position of each step's joint state in the vocabulary, -1 where it was never observed."""
        names = joint_states(q, self.d)
        at = np.minimum(np.searchsorted(self.vocabulary, names), len(self) - 1)
        return np.where(self.vocabulary[at] == names, at, -1)


def abstraction(q: NDArray[np.float32], d: float) -> Abstraction:
    """The abstraction at level d with the vocabulary of `q`."""
    return Abstraction(d, _different(joint_states(q, d)))


def _different(names: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Each name once, sorted. `np.unique` hashes whole numbers first, and takes six to twelve times as long."""
    ordered = np.sort(names)
    last: NDArray[np.bool_] = np.append(ordered[1:] != ordered[:-1], True)[: len(names)]
    return ordered[last]


def candidate_levels(q: NDArray[np.float32]) -> list[float]:
    """Levels d that give the training data FEWEST to MOST joint states, from coarse to fine.

    d must follow the scale of the Q-values, which differs by orders of magnitude between teams: the two ends of the
    range are found by bisection, the third lies between them. All by square roots, which processors round alike.
    """
    scale = float(np.ptp(q))
    if scale == 0:
        return [1.0]  # a team that values everything alike has one state at every level
    most = min(MOST, max(1, len(q) // 2))  # little data cannot show many states twice
    fewest = min(FEWEST, max(1, most // 4))
    coarse = _level_with(q, fewest, fewest + fewest // 10, scale * 1e-6, scale * 2)
    fine = _level_with(q, most - most // 10, most, scale * 1e-6, coarse)
    return [coarse, math.sqrt(coarse * fine), fine]


def _level_with(q: NDArray[np.float32], fewest: int, most: int, low: float, high: float) -> float:
    """A level between `low` and `high` with `fewest` to `most` joint states (they get fewer as d grows)."""
    for _ in range(20):
        middle = math.sqrt(low * high)
        states = len(_different(joint_states(q, middle)))
        if fewest <= states <= most:
            break
        low, high = (middle, high) if states > most else (low, middle)
    return middle
