"""What a start in the warehouse means for each robot, and what a person would say of it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.tasks.mpe.situations import evenness, steps_where
from epymarl_fairtest.tasks.views import Array, nearest_first, numbered, pick, without_oneself

REQUESTS, OTHERS = 3, 2  # the nearest ones that count


def steps_between(one: Array, other: Array) -> Array:
    """Along rows and columns."""
    apart: Array = np.abs(one - other).sum(axis=-1)
    return apart


def features(robots: Array, requests: Array, goals: Array) -> Array:
    """row, col, direction and more of robots (B, N, 6), places of requested shelves (B, Q, 2) and goals (G, 2)."""
    at = robots[..., :2]
    facing = (robots[..., 2:3] == np.arange(4)) * 1.0
    loaded = (robots[..., 3:4] > 0) * 1.0
    home = steps_between(at[:, :, None], goals).min(axis=-1)[..., None]
    parts = [at, facing, loaded, home]
    if requests.shape[1]:
        towards, way = requests[:, None] - at[:, :, None], steps_between(requests[:, None], at[:, :, None])
        order = nearest_first(way, REQUESTS)
        parts += [pick(towards, order), pick(way[..., None], order)]
    if at.shape[1] > 1:
        others = without_oneself(at[:, None] - at[:, :, None])
        parts.append(pick(others, nearest_first(np.abs(others).sum(axis=-1), OTHERS)))
        if requests.shape[1]:  # who else is near what is near
            rivals = without_oneself(way[:, None].repeat(at.shape[1], axis=1)).min(axis=2)
            parts.append(pick(rivals[..., None], order))
    return numbered(parts)


def situation(robots: Array, requests: Array, goals: Array) -> dict[str, Array]:
    at = robots[..., :2]
    said = {
        "the farthest robot's way to a goal": steps_between(at[:, :, None], goals).min(axis=-1).max(axis=-1),
        "the nearest robot's way to a goal": steps_between(at[:, :, None], goals).min(axis=-1).min(axis=-1),
    }
    if requests.shape[1]:
        way = steps_between(requests[:, None], at[:, :, None])
        nearest, served = way.min(axis=-1), np.sort(way.argmin(axis=1), axis=-1)
        said |= {
            "Jain's index of the ways to the nearest requested shelf": evenness(nearest),
            "the farthest robot's way to a requested shelf": nearest.max(axis=-1),
            "the nearest robot's way to a requested shelf": nearest.min(axis=-1),
            "the number of robots that are nearest to a requested shelf": 1.0
            + (np.diff(served, axis=-1) > 0).sum(axis=-1),
        }
    return said


def course(robots: Array, requests: NDArray[np.int64], length: NDArray[np.int32]) -> dict[str, Array]:
    """Robots (B, steps + 1, N, 6) and the numbers of the requested shelves (B, steps + 1, Q)."""
    steps = requests.shape[1]
    new = np.zeros((len(requests), steps))
    new[:, 1:] = (requests[:, 1:] != requests[:, :-1]).sum(axis=-1)
    within = np.arange(steps) <= length[:, None]
    still = np.zeros(robots.shape[:3], bool)
    still[:, 1:] = (robots[:, 1:, :, :3] == robots[:, :-1, :, :3]).all(axis=-1)
    waiting = (still & within[..., None]).sum(axis=1)
    loaded: NDArray[np.bool_] = np.all(robots[..., 3] > 0, axis=-1)
    return {
        "the number of deliveries": (new * within).sum(axis=1),
        "steps in which everybody carries a shelf": steps_where(loaded, length),
        "steps in which the robot that moves least stands still": waiting.max(axis=1) * 1.0,
    }
