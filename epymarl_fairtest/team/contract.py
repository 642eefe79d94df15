"""What a trained team promises. Nothing here knows a training framework or an engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.tasks.contract import Task
from epymarl_fairtest.tasks.world import World
from epymarl_fairtest.team.sample import TrainingEpisodes

CHUNK = 256
"""Rows of one forward pass, always: shorter batches are padded. A matrix product may round a row
differently when the number of rows changes; with a fixed number it cannot (docs/decisions/001)."""


class Policy(Protocol):
    n_agents: int
    n_actions: int
    obs_size: int
    hidden_size: int  # 0: the agents have no memory
    reading: str  # how its scores are read: q or logits (core/scores.py)
    thread_safe: bool  # may several threads ask at once?

    def forward(
        self, obs: NDArray[np.float32], last: NDArray[np.int16], hidden: NDArray[np.float32]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """obs (B, N, D), last actions (B, N; -1 before the first), hidden (B, N, H) to scores (B, N, A), hidden."""
        ...


@dataclass(frozen=True)
class Team:
    """What is tested: a trained policy in its environment."""

    task: Task
    policy: Policy
    make_world: Callable[[], World]
    available: NDArray[np.bool_]  # (agents, actions)
    limit: int
    environment: Any = None  # one of the environments, for the engine to look at
    allocation: str = "env"
    caution: str = ""  # what its environment cannot do although one would hope so, in a sentence
    sample: TrainingEpisodes = field(default_factory=TrainingEpisodes.none)  # of its training
    origin: dict[str, Any] = field(default_factory=dict)  # where it comes from, for the manifest
    proven: set[Any] = field(default_factory=set)  # how it played when its twin proved itself, in this process
