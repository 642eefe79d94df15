"""What spread and tag say of a situation: distances, how even they are, and how long somebody is left behind."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core.indices.jain import jfi
from epymarl_fairtest.tasks.contract import Array

BEHIND = 0.5  # position units by which an agent is left behind the middle one


def between(one: Array, other: Array) -> Array:
    apart: Array = np.linalg.norm(one - other, axis=-1)
    return apart


def closest_pair(at: Array) -> Array:
    """(..., bodies, 2) to the least distance between two of them; infinite where there is but one."""
    first, second = np.triu_indices(at.shape[-2], k=1)
    apart: Array = between(at[..., first, :], at[..., second, :]).min(axis=-1, initial=np.inf)
    return apart


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
    farther = distances.max(axis=-1) - np.median(distances, axis=-1) > BEHIND
    return steps_where(farther, length)
