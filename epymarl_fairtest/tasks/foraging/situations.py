"""What a person would say of a situation in foraging."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.tasks.contract import Array
from epymarl_fairtest.tasks.mpe.situations import evenness


def situation(players: Array, food: Array, size: tuple[int, int]) -> dict[str, Array]:
    """Of starts: row, col, level of players (B, N, 3) and of food (B, slots, 3; level 0: none)."""
    levels, there = players[..., 2], food[..., 2] > 0
    steps = np.abs(players[:, :, None, :2] - food[:, None, :, :2]).sum(axis=-1)
    nearest = np.where(there[:, None], steps, np.inf).min(axis=-1)
    nearest = np.where(np.isinf(nearest), 0.0, nearest)
    needs_all = there & (food[..., 2] > (levels.sum(axis=1) - levels.min(axis=1))[:, None])
    alone = there[:, None] & (food[:, None, :, 2] <= levels[..., None])  # (B, players, slots)
    weakest = np.take_along_axis(nearest, levels.argmin(axis=1)[:, None], axis=1)[:, 0]
    return {
        "the number of foods": there.sum(axis=1) * 1.0,
        "the number of foods that need everybody": needs_all.sum(axis=1) * 1.0,
        "the number of foods that one player can load alone": alone.any(axis=1).sum(axis=1) * 1.0,
        "the number of foods that every player can load alone": alone.all(axis=1).sum(axis=1) * 1.0,
        "the number of players that can load some food alone": alone.any(axis=2).sum(axis=1) * 1.0,
        "the highest level of food": food[..., 2].max(axis=1),
        "the farthest player's way to its nearest food": nearest.max(axis=1),
        "the nearest player's way to its nearest food": nearest.min(axis=1),
        "Jain's index of the ways to the nearest food": evenness(nearest),
        "the way of a player of the lowest level to its nearest food": weakest,
        "the fewest free cells around a player": _free_around(players, food, size).min(axis=1),
    }


def _free_around(players: Array, food: Array, size: tuple[int, int]) -> Array:
    """Of the four cells beside each player, how many are inside the field and empty (B, N)."""
    beside = players[:, :, None, :2] + np.array([[-1, 0], [1, 0], [0, -1], [0, 1]])  # (B, N, 4, 2)
    inside = ((beside >= 0) & (beside < np.array(size))).all(axis=-1)
    things = np.concatenate([players[..., :2], np.where(food[..., 2:] > 0, food[..., :2], -9)], axis=1)
    taken = (beside[:, :, :, None] == things[:, None, None]).all(axis=-1).any(axis=-1)
    free: Array = (inside & ~taken).sum(axis=-1).astype(np.float64)
    return free


def course(players: Array, food: Array, length: NDArray[np.int32]) -> dict[str, Array]:
    """Of episodes: (B, steps + 1, things, 3)."""
    rows, steps = np.arange(len(length)), np.arange(food.shape[1])
    left = (food[..., 2] > 0).sum(axis=-1)
    running = steps <= length[:, None]
    eaten = running & (left < left[:, :1])
    still = (players[:, 1:, :, :2] == players[:, :-1, :, :2]).all(axis=-1)  # (B, steps, players)
    waiting = (still & (steps[1:] <= length[:, None])[..., None]).sum(axis=1)
    return {
        "the number of foods that are left": left[rows, length] * 1.0,
        "the number of foods that are eaten": (left[:, 0] - left[rows, length]) * 1.0,
        "the step at which the first food is eaten": np.where(
            eaten.any(axis=1), eaten.argmax(axis=1), food.shape[1]
        ).astype(np.float64),
        "steps in which the player that moves least stands still": waiting.max(axis=1) * 1.0,
    }
