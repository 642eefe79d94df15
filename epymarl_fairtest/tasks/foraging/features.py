"""What a start of foraging means for each player: the food around it, who can load it, and who is nearer."""

from __future__ import annotations

import numpy as np

from epymarl_fairtest.tasks.views import Array, nearest_first, numbered, pick, without_oneself

FOOD, OTHERS = 4, 2  # the nearest ones that count
NOWHERE = 99.0  # steps to food that is not there


def features(players: Array, food: Array) -> Array:
    """row, col, level of players (B, N, 3) and of food slots (B, L, 3), level 0 for an empty one, to (B, N, F)."""
    there = food[:, None, :, 2] > 0  # (B, 1, L)
    arrows = food[:, None, :, :2] - players[:, :, None, :2]
    steps = np.where(there, np.abs(arrows).sum(axis=-1), NOWHERE)  # (B, N, L)
    level = np.broadcast_to(food[:, None, :, 2], steps.shape)
    alone = (players[:, :, None, 2] >= level) & there
    order = nearest_first(steps, FOOD)
    known = (steps, level, alone.astype(np.float64))
    parts = [players, pick(arrows, order), *(pick(values[..., None], order) for values in known)]
    if players.shape[1] > 1:
        towards = without_oneself(players[:, None] - players[:, :, None])
        towards[..., 2] += players[:, :, None, 2]  # their levels, not how much higher they are
        near = nearest_first(np.abs(towards[..., :2]).sum(axis=-1), OTHERS)
        theirs = without_oneself(steps[:, None].repeat(players.shape[1], axis=1))  # (B, N, N - 1, L)
        theirs.sort(axis=2)
        parts += [pick(towards, near)]
        parts += [pick(theirs[:, :, rank, :, None], order) for rank in range(min(OTHERS, theirs.shape[2]))]
    return numbered(parts)
