"""What the predictor sees of episodes: the Q-values of every step and what each agent received."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.episode import Episodes
from epymarl_fairtest.fairness import totals
from epymarl_fairtest.pool import TrainingEpisode


@dataclass(frozen=True)
class Traces:
    """Steps of all episodes one after the other; `episode` says whose a step is."""

    q: NDArray[np.float32]  # (steps, agents, actions)
    episode: NDArray[np.int64]  # (steps,)
    received: NDArray[np.float64]  # (episodes, agents)

    def __len__(self) -> int:
        return len(self.received)

    @staticmethod
    def concatenate(parts: Sequence[Traces]) -> Traces:
        parts = [part for part in parts if len(part)]
        first = np.cumsum([0, *(len(part) for part in parts)])
        return Traces(
            np.concatenate([part.q for part in parts]),
            np.concatenate([part.episode + at for part, at in zip(parts, first[:-1], strict=True)]),
            np.concatenate([part.received for part in parts]),
        )

    def take(self, rows: NDArray[np.int64]) -> Traces:
        """The episodes at `rows` (ascending, no duplicates)."""
        place = np.full(len(self), -1, np.int64)
        place[rows] = np.arange(len(rows))
        kept = place[self.episode] >= 0
        return Traces(self.q[kept], place[self.episode[kept]], self.received[rows])


def traces_of(episodes: Episodes) -> Traces:
    running = np.arange(episodes.limit) < episodes.length[:, None]
    return Traces(episodes.q[running], np.nonzero(running)[0], totals(episodes.rewards))


def traces_of_pool(pool: Sequence[TrainingEpisode]) -> Traces:
    agents, actions = pool[0].q.shape[1:] if pool else (0, 0)
    if not pool:
        return Traces(np.empty((0, agents, actions), np.float32), np.empty(0, np.int64), np.empty((0, agents)))
    return Traces(
        np.concatenate([episode.q for episode in pool]),
        np.repeat(np.arange(len(pool)), [len(episode.actions) for episode in pool]),
        np.stack([totals(episode.rewards) for episode in pool]),
    )
