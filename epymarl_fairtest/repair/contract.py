"""What a trainer promises: a team, starts and a reward shaping in, a team out. Knows no training framework."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.repair.welfare import Shaping


class Diverged(FairTestError):
    """The weights are no longer numbers: this training is over, others may go on."""


@dataclass(frozen=True)
class Starts:
    """Where episodes of a training may begin besides where the environment lets them."""

    states: NDArray[np.float64]  # (n, S); no columns where the environment cannot be restored
    seeds: NDArray[np.int64]  # (n,) of the resets that they descend from

    def __len__(self) -> int:
        return len(self.seeds)


@dataclass(frozen=True)
class Lesson:
    """One training: everything that decides what comes out. The same lesson gives the same team, bit for bit."""

    policy: Path  # folder of the team to begin with
    steps: int  # of the environment
    seed: int
    shaping: Shaping | None = None  # None: what the environment pays
    starts: Starts | None = None
    share: float = 0.0  # of the episodes that begin at `starts`


@dataclass(frozen=True)
class Trained:
    """What came out."""

    steps: int  # that were trained
    notes: tuple[str, ...]  # what whoever reads the result should know


class Trainer(Protocol):
    """Must be picklable: trainings run in other processes."""

    def train(self, lesson: Lesson, out: Path) -> Trained:
        """Train, and write the team to the policy folder `out`. Raises Diverged where the weights do."""
        ...

    def check(self, policy: Path) -> dict[str, Any]:
        """Refuse a team that cannot be trained here, before anything is begun; what trains it, as text by name."""
        ...


Tell = Callable[[str], None]
