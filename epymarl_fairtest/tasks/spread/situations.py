"""What a person would say of a situation in spread."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.tasks.contract import Array
from epymarl_fairtest.tasks.mpe.situations import between, closest_pair, evenness, left_behind, steps_where


def _to_landmarks(agents: Array, landmarks: Array) -> Array:
    """Distances (..., agents, landmarks)."""
    return between(agents[..., :, None, :], landmarks[..., None, :, :])


def situation(agents: Array, landmarks: Array) -> dict[str, Array]:
    """Of starts: agents (B, N, 2) and landmarks (B, L, 2)."""
    distances = _to_landmarks(agents, landmarks)
    nearest = distances.min(axis=-1)
    return {
        "Jain's index of the distances to the nearest landmark": evenness(nearest),
        "the farthest agent's distance to its nearest landmark": nearest.max(axis=-1),
        "the nearest agent's distance to its nearest landmark": nearest.min(axis=-1),
        "the mean distance to the nearest landmark": nearest.mean(axis=-1),
        "the distance between the two agents closest to each other": closest_pair(agents),
        "the distance between the two landmarks closest to each other": closest_pair(landmarks),
        "the number of landmarks that are nearest to somebody": _different(distances.argmin(axis=-1)),
    }


def course(agents: Array, landmarks: Array, length: NDArray[np.int32]) -> dict[str, Array]:
    """Of episodes: (B, steps + 1, bodies, 2)."""
    distances = _to_landmarks(agents, landmarks)
    nearest = distances.min(axis=-1)
    shared = _different(distances.argmin(axis=-1)) < agents.shape[-2]
    return {
        "steps in which one agent is 0.5 farther from a landmark than the middle one": left_behind(nearest, length),
        "steps in which two agents are nearest to the same landmark": steps_where(shared, length),
        "steps in which two agents touch": steps_where(closest_pair(agents) < 0.3, length),
    }


def _different(numbers: NDArray[np.int64]) -> Array:
    """How many different numbers there are in each row (..., N)."""
    count = np.ones(numbers.shape[:-1])
    for one in range(1, numbers.shape[-1]):
        count += np.logical_and.reduce([numbers[..., one] != numbers[..., before] for before in range(one)])
    return count
