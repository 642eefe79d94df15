"""Tests that start from states of a strategy's own making. A start is its own root: its number is made of the state."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core import rng
from epymarl_fairtest.core.episodes import Tests, tests_from_seeds

Array = NDArray[np.float64]
FIRST_ROOT = 2**31  # seeds of random tests lie below


def starting_from(states: Array, generator: np.random.Generator) -> Tests:
    """Tests that start from given states; the root seed of each is a number made of the state itself."""
    streams = generator.integers(0, 2**64, len(states), dtype=np.uint64)
    tests = tests_from_seeds(roots(states), streams, states.shape[1], operator="state")
    tests.start_state = states
    return tests


def roots(states: Array) -> NDArray[np.int64]:
    """The same number for the same start, another for any other start, never the seed of a random test."""
    word = np.zeros(len(states), np.uint64)
    for column in np.ascontiguousarray(states.T).view(np.uint64):
        word = rng.mix(word ^ column)
    return (FIRST_ROOT + word % np.uint64(2**62)).astype(np.int64)
