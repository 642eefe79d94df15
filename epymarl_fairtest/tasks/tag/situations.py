"""What a person would say of a situation in tag."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.tasks.contract import Array
from epymarl_fairtest.tasks.mpe.situations import between, closest_pair, evenness, left_behind, steps_where

IN_THE_WAY = 0.25  # an obstacle's radius is 0.2, a predator's 0.075


def from_the_way(predators: Array, prey: Array, obstacles: Array) -> Array:
    """The least distance of an obstacle's centre from each predator's straight way to the prey (..., predators)."""
    (at_x, at_y), (to_x, to_y), (by_x, by_y) = (
        (part[..., 0], part[..., 1])
        for part in (predators[..., :, None, :], prey[..., None, None, :], obstacles[..., None, :, :])
    )
    way_x, way_y, off_x, off_y = to_x - at_x, to_y - at_y, by_x - at_x, by_y - at_y
    along = (off_x * way_x + off_y * way_y) / np.maximum(way_x * way_x + way_y * way_y, 1e-12)
    along = np.clip(along, 0.0, 1.0)
    off_x, off_y = off_x - along * way_x, off_y - along * way_y
    off: Array = np.sqrt(off_x * off_x + off_y * off_y).min(axis=-1, initial=np.inf)
    return off


def situation(predators: Array, prey: Array, obstacles: Array) -> dict[str, Array]:
    """Of starts: predators (B, N, 2), the prey (B, 2), obstacles (B, O, 2)."""
    distances = between(predators, prey[..., None, :])
    off = from_the_way(predators, prey, obstacles)
    farthest = np.take_along_axis(off, distances.argmax(axis=-1)[..., None], axis=-1)[..., 0]
    return {
        "the distance of an obstacle from a predator's straight way to the prey": off.min(axis=-1),
        "the distance of an obstacle from the farthest predator's straight way to the prey": farthest,
        "the number of predators with an obstacle on their straight way to the prey": (off < IN_THE_WAY).sum(axis=-1)
        * 1.0,
        "the farthest predator's distance to the prey": distances.max(axis=-1),
        "the nearest predator's distance to the prey": distances.min(axis=-1),
        "Jain's index of the distances to the prey": evenness(distances),
        "the prey's distance from the centre": np.linalg.norm(prey, axis=-1),
        "the distance between the two predators closest to each other": closest_pair(predators),
    }


def course(predators: Array, prey: Array, obstacles: Array, length: NDArray[np.int32]) -> dict[str, Array]:
    """Of episodes: (B, steps + 1, bodies, 2), the prey (B, steps + 1, 2)."""
    distances = between(predators, prey[..., None, :])
    one = np.take_along_axis(predators, distances.argmax(axis=-1)[..., None, None], axis=-2)
    farthest = from_the_way(one, prey, obstacles)[..., 0]
    return {
        "steps in which one predator is 0.5 farther from the prey than the middle one": left_behind(distances, length),
        "steps in which an obstacle is on the farthest predator's straight way to the prey": steps_where(
            farthest < IN_THE_WAY, length
        ),
        "steps in which two predators touch": steps_where(closest_pair(predators) < 0.15, length),
    }
