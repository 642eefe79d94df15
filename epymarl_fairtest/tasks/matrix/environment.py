"""`epymarl_fairtest:matrix-v0`: a game given by its payoffs, played again and again; agents see the last actions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete, Tuple
from numpy.typing import NDArray

from epymarl_fairtest.core.errors import FairTestError

BOTH_WANT_TO_MEET = [[[3, 0], [0, 2]], [[2, 0], [0, 3]]]  # each at another place: to be fair is to take turns


class MatrixGame(gymnasium.Env[Any, Any]):
    """`payoff[i][a][b]…` is what agent i gets when the agents play a, b, …; the host's time_limit ends an episode."""

    def __init__(self, payoff: Sequence[Any] = BOTH_WANT_TO_MEET) -> None:
        self.payoff: NDArray[np.float64] = np.asarray(payoff, np.float64)
        self.n_agents = len(self.payoff)
        if self.payoff.ndim != self.n_agents + 1 or not np.isfinite(self.payoff).all():
            raise FairTestError(
                f"payoff has the shape {self.payoff.shape}; a game of {self.n_agents} agents needs one number for each"
                f" agent and joint action: {self.n_agents} tables of {self.n_agents} axes."
            )
        self.num_actions = list(self.payoff.shape[1:])
        self.last_actions: list[Any] = [-1] * self.n_agents
        self.t = 0
        self.action_space = Tuple([Discrete(count) for count in self.num_actions])
        self.observation_space = Tuple([Box(0, 1, (sum(self.num_actions),), np.float32)] * self.n_agents)

    def seed(self, seed: int | None = None) -> None:
        """Nothing in a game is random."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.last_actions, self.t = [-1] * self.n_agents, 0
        return self._make_obs(), {}

    def step(self, action: Sequence[int]) -> Any:
        self.t += 1
        self.last_actions = [np.eye(count)[one].tolist() for count, one in zip(self.num_actions, action, strict=True)]
        return self._make_obs(), [float(table[tuple(action)]) for table in self.payoff], False, False, {}

    def _make_obs(self) -> tuple[NDArray[np.float32], ...]:
        """What everybody played last, all zeros before the first step."""
        played = self.last_actions if self.t else [[0.0] * count for count in self.num_actions]
        return (np.concatenate(played).astype(np.float32),) * self.n_agents
