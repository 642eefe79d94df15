"""What a start of tag means for each predator: the way to the prey, the obstacles on it, and the others' ways."""

from __future__ import annotations

import numpy as np

from epymarl_fairtest.tasks.views import Array, nearest_first, numbered, pick, straight, without_oneself

OBSTACLES, OTHERS = 3, 2  # the nearest ones that count


def features(predators: Array, prey: Array, obstacles: Array) -> Array:
    """Positions (B, N, 2), of the (first) prey (B, 2) and of obstacles (B, O, 2) to (B, N, F)."""
    goal = np.broadcast_to(prey[:, None], predators.shape)
    way = goal - predators
    far = straight(goal, predators)[..., None]
    parts = [predators, goal, way, far]
    if obstacles.shape[1]:
        aside = from_the_way(predators[:, :, None], goal[:, :, None], obstacles[:, None])  # (B, N, O)
        order = nearest_first(aside, OBSTACLES)
        arrows = obstacles[:, None] - predators[:, :, None]
        beside_prey = np.broadcast_to(straight(obstacles, prey[:, None])[:, None, :, None], (*aside.shape, 1))
        parts += [pick(aside[..., None], order), pick(arrows, order), pick(beside_prey, order)]
    if predators.shape[1] > 1:
        towards = without_oneself(predators[:, None] - predators[:, :, None])
        near = nearest_first(straight(towards, 0 * towards), OTHERS)
        theirs = without_oneself(far[:, None].repeat(predators.shape[1], axis=1))
        parts += [pick(towards, near), np.sort(theirs[..., 0], axis=-1)[..., :OTHERS]]
    return numbered(parts)


def from_the_way(start: Array, end: Array, point: Array) -> Array:
    """How far a point is from the straight way between two others."""
    way = end - start
    along = ((point - start) * way).sum(axis=-1) / np.maximum((way * way).sum(axis=-1), 1e-12)
    return straight(point, start + np.clip(along, 0, 1)[..., None] * way)
