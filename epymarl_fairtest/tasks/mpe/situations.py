"""What spread and tag say of a situation: distances, how even they are, and how long somebody is left behind."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core.indices.jain import jfi
from epymarl_fairtest.tasks.contract import Array

BEHIND = 0.5  # position units by which an agent is left behind the middle one


def between(one: Array, other: Array) -> Array:
    """Written out: numpy adds up two numbers at a time slowly."""
    x, y = one[..., 0] - other[..., 0], one[..., 1] - other[..., 1]
    apart: Array = np.sqrt(x * x + y * y)
    return apart


def closest_pair(at: Array) -> Array:
    """(..., bodies, 2) to the least distance between two of them; infinite where there is but one."""
    least = np.full(at.shape[:-2], np.inf)
    for one, other in combinations(range(at.shape[-2]), 2):
        np.minimum(least, between(at[..., one, :], at[..., other, :]), out=least)
    return least


def evenness(distances: Array) -> Array:
    """Jain's index of distances (..., agents); 1 where all are 0."""
    index = jfi(distances.reshape(-1, distances.shape[-1])).reshape(distances.shape[:-1])
    return np.where(np.isnan(index), 1.0, index)


def steps_where(condition: NDArray[np.bool_], length: NDArray[np.int32]) -> Array:
    """How many steps of each episode: condition (B, steps + 1), the states after the first one."""
    there = (np.arange(condition.shape[1]) > 0) & (np.arange(condition.shape[1]) <= length[:, None])
    count: Array = (condition & there).sum(axis=1).astype(np.float64)
    return count


def left_behind(distances: Array, length: NDArray[np.int32]) -> Array:
    """Steps in which the farthest agent is BEHIND farther than the middle one: distances (B, steps + 1, agents)."""
    ordered, agents = np.sort(distances, axis=-1), distances.shape[-1]
    middle = (ordered[..., (agents - 1) // 2] + ordered[..., agents // 2]) / 2
    return steps_where(ordered[..., -1] - middle > BEHIND, length)
