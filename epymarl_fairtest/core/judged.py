"""Judging episodes, once: what each agent received, the fairness index of that, and whether it is unfair."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core.episodes import Episodes

Array = NDArray[np.float64]


def totals(rewards: Array) -> Array:
    """x_i(e): rewards (..., steps, agents), zero after the end, to (..., agents).

    Added step by step: numpy's own sum may change its order, and so the last bit, with the batch.
    """
    return np.cumsum(rewards, axis=-2)[..., -1, :]


@dataclass(frozen=True)
class Judged:
    """Episodes and what was made of them, row by row."""

    episodes: Episodes
    received: Array  # (B, N) by each agent in the whole episode
    index: Array  # (B,) NaN where nobody received anything
    unfair: NDArray[np.bool_]  # (B,) the index does not exceed the threshold; never where it is undefined

    def __len__(self) -> int:
        return len(self.episodes)

    @property
    def undefined(self) -> NDArray[np.bool_]:
        """Nobody received anything: the index is 0/0, and nothing was divided."""
        return np.isnan(self.index)

    def take(self, rows: Any) -> Judged:
        return Judged(self.episodes.take(rows), self.received[rows], self.index[rows], self.unfair[rows])

    @staticmethod
    def concatenate(parts: Sequence[Judged]) -> Judged:
        return Judged(
            Episodes.concatenate([part.episodes for part in parts]),
            np.concatenate([part.received for part in parts]),
            np.concatenate([part.index for part in parts]),
            np.concatenate([part.unfair for part in parts]),
        )


@dataclass(frozen=True)
class Judge:
    """An episode is unfair if and only if the index of what its agents received does not exceed theta."""

    index: Callable[[Array], Array]
    theta: float

    def __call__(self, episodes: Episodes) -> Judged:
        received = totals(episodes.rewards)
        index = self.index(received)
        return Judged(episodes, received, index, index <= self.theta)

    def unfair(self, received: Array) -> NDArray[np.bool_]:
        """The verdict on what agents received (B, N), where there is no episode to judge."""
        return self.index(received) <= self.theta

    def unfair_after_prefix(self, episodes: Episodes, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of these rows are unfair in what was executed alone, without what a parent left them."""
        executed = np.arange(episodes.limit)[None, :, None] >= episodes.start_step[rows, None, None]
        return self.unfair(totals(np.where(executed, episodes.rewards[rows], 0.0)))
