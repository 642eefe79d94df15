"""What an engine promises, and how a team picks its actions.

Engine    execute(tests) -> episodes, row by row; a row depends on its test alone.
          initial_states(seeds) -> what the resets give, without a step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core.episodes import Episodes, Tests


class Engine(Protocol):
    name: str
    keeps_obs: bool  # does it record what the agents see? Most of a large team's episodes is that.
    keeps_course: bool  # must it record every step? Else it may pay all that an agent receives in one.
    keeps_memory: bool  # should it record what the agents carry from step to step? It need not.
    needs_obs: bool  # can it continue the episodes of a team with a memory only from what the agents saw?

    def execute(self, tests: Tests) -> Episodes: ...
    def initial_states(self, seeds: NDArray[np.int64]) -> NDArray[np.float64]: ...


@dataclass(frozen=True)
class ActionRule:
    """How the trained team picks its actions, and which actions exist."""

    kind: str  # epsilon_greedy, softmax, policy or greedy
    epsilon: float
    temperature: float
    available: NDArray[np.bool_]  # (N, A)
