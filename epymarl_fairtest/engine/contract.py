"""What an engine, a world and a policy promise. Nothing here knows a training framework.

Engine    execute(tests) -> episodes, row by row; a row depends on its test alone.
          initial_states(seeds) -> what the resets give, without a step.
World     one environment: reset(seed), restore(state, step), step(actions); then obs, reward, done, state.
Policy    the trained team: forward(obs, last_actions, hidden) -> (q, hidden), row by row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.episode import Episodes, Tests

CHUNK = 256
"""Rows of one forward pass, always: shorter batches are padded. A matrix product may round a row
differently when the number of rows changes; with a fixed number it cannot (docs/decisions/001)."""


class Policy(Protocol):
    n_agents: int
    n_actions: int
    obs_size: int
    hidden_size: int  # 0: the agents have no memory
    thread_safe: bool  # may several threads ask at once?

    def forward(
        self, obs: NDArray[np.float32], last: NDArray[np.int16], hidden: NDArray[np.float32]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """obs (B, N, D), last actions (B, N; -1 before the first), hidden (B, N, H) to q (B, N, A), hidden."""
        ...


class World(Protocol):
    obs: NDArray[np.float32]  # (N, D) what the agents see now
    reward: NDArray[np.float64]  # (N,) allocation of the last step
    done: bool

    def reset(self, seed: int) -> None: ...
    def restore(self, state: NDArray[np.float64], step: int) -> None: ...
    def step(self, actions: NDArray[np.int16]) -> None: ...
    def state(self) -> NDArray[np.float64]: ...


class Engine(Protocol):
    name: str

    def execute(self, tests: Tests) -> Episodes: ...
    def initial_states(self, seeds: NDArray[np.int64]) -> NDArray[np.float64]: ...


@dataclass(frozen=True)
class Execution:
    """How the trained team picks its actions, and which actions exist."""

    kind: str  # epsilon_greedy, softmax or greedy
    epsilon: float
    temperature: float
    available: NDArray[np.bool_]  # (N, A)
