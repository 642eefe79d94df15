"""Judging episodes, once: what each agent received, the fairness index of that, and whether it is unfair."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core.episodes import Episodes
from epymarl_fairtest.core.errors import FairTestError

Array = NDArray[np.float64]
Agents = str | Sequence[int]
"""The setting `agents`: "all", or those that form the judged team, counted from 1 as wherever a user sees agents."""


def places_of(agents: Agents, count: int) -> list[int]:
    """Where the judged agents stand among the environment's `count`, from 0."""
    if isinstance(agents, str):
        return list(range(count))
    if max(agents) > count:
        raise FairTestError(
            f"fairtest_args.agents={list(agents)} names agent {max(agents)}, but the environment has {count} agents;"
            f" name some of 1 to {count}, or all."
        )
    return [agent - 1 for agent in agents]


def numbers_of(agents: Agents, count: int) -> list[int]:
    """The judged agents as people count them, from 1."""
    return [place + 1 for place in places_of(agents, count)]


def of_agents(values: Array, agents: Agents) -> Array:
    """The part of values (..., agents of the environment) that belongs to the judged agents."""
    return values if isinstance(agents, str) else values[..., places_of(agents, values.shape[-1])]


def totals(rewards: Array) -> Array:
    """x_i(e): rewards (..., steps, agents), zero after the end, to (..., agents).

    Added step by step: numpy's own sum may change its order, and so the last bit, with the batch.
    """
    return np.cumsum(rewards, axis=-2)[..., -1, :]


@dataclass(frozen=True)
class Judged:
    """Episodes and what was made of them, row by row."""

    episodes: Episodes
    received: Array  # (B, N) by each judged agent in the whole episode
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
    """An episode is unfair if and only if the index of what the judged agents received does not exceed theta."""

    index: Callable[[Array], Array]
    theta: float
    agents: Agents = "all"

    def __call__(self, episodes: Episodes) -> Judged:
        received = self.received(episodes.rewards)
        index = self.index(received)
        return Judged(episodes, received, index, index <= self.theta)

    def received(self, rewards: Array) -> Array:
        """By each judged agent: rewards (..., steps, agents of the environment) to (..., judged agents)."""
        return totals(of_agents(rewards, self.agents))

    def unfair(self, received: Array) -> NDArray[np.bool_]:
        """The verdict on what judged agents received (B, N), where there is no episode to judge."""
        return self.index(received) <= self.theta

    def unfair_after_prefix(self, episodes: Episodes, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of these rows are unfair in what was executed alone, without what a parent left them."""
        executed = np.arange(episodes.limit)[None, :, None] >= episodes.start_step[rows, None, None]
        return self.unfair(self.received(np.where(executed, episodes.rewards[rows], 0.0)))
