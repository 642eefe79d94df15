"""What the predictor sees of episodes: the policy's scores at every step and what each agent received."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core.judged import Judged
from epymarl_fairtest.team.sample import TrainingEpisodes


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

    def mean_over_steps(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """The mean of one value per step, for each episode."""
        steps = np.bincount(self.episode, minlength=len(self))
        return np.bincount(self.episode, values, minlength=len(self)) / np.maximum(steps, 1)


def traces_of(judged: Judged) -> Traces:
    episodes = judged.episodes
    q = episodes.q.reshape(-1, *episodes.q.shape[2:])  # of all steps, and a pool is too large to be copied in vain
    if (episodes.length < episodes.limit).any():
        q = np.take(q, np.flatnonzero(episodes.running), axis=0)
    return Traces(q, np.repeat(np.arange(len(episodes)), episodes.length), judged.received)


def traces_of_sample(sample: TrainingEpisodes) -> Traces:
    return Traces(sample.q, np.repeat(np.arange(len(sample)), sample.length), sample.received)
