"""Who plays for a curve: one engine for a whole training, proved once, whose team changes from point to point."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core import rng
from epymarl_fairtest.core.episodes import Tests, random_tests
from epymarl_fairtest.core.judged import Judge
from epymarl_fairtest.curve.point import Played
from epymarl_fairtest.engine.selection import make_engine
from epymarl_fairtest.settings import Settings
from epymarl_fairtest.tasks.contract import Task
from epymarl_fairtest.team.contract import Policy, Team

WITH_TWIN = 500  # executions per point, unless another number is asked for; none without a twin
AT_ONCE = 1000


class Current:
    """The policy of the moment. All of them are of one shape: they come from one training."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.n_agents, self.n_actions, self.obs_size = policy.n_agents, policy.n_actions, policy.obs_size
        self.hidden_size, self.reading, self.thread_safe = policy.hidden_size, policy.reading, policy.thread_safe

    def forward(
        self, obs: NDArray[np.float32], last: NDArray[np.int16], hidden: NDArray[np.float32]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        return self.policy.forward(obs, last, hidden)


class Player:
    """Plays the same tests again and again, by the team that it is given."""

    def __init__(self, team: Team, settings: Settings, judge: Judge, warn: Callable[[str], None]) -> None:
        self._current, self._judge = Current(team.policy), judge
        self._engine: Any = make_engine(replace(team, policy=self._current), settings, warn)
        self._engine.keeps_obs = False  # nobody looks at it; most of a large team's episodes is that

    @property
    def engine(self) -> str:
        name: str = self._engine.name
        return name

    def play(self, policy: Policy, tests: Tests) -> Played:
        self._current.policy = policy
        parts = (tests.take(slice(first, first + AT_ONCE)) for first in range(0, len(tests), AT_ONCE))
        return Played.of(self._judge(self._engine.execute(part)) for part in parts)


def curve_tests(team: Team, episodes: int, seed: int, *names: str | int) -> Tests:
    """Random executions, the same for every point; `names` tell other sets apart."""
    return random_tests(episodes, team.task.state_size, rng.named(seed, "curve", *names))


def has_twin(task: Task, environment: Any, settings: Settings) -> bool:
    """May the settings use a twin of this environment, and is there one? Whether it is exact is proved later."""
    if settings.engine == "lockstep":
        return False
    try:
        return task.twin(environment, settings.allocation) is not None
    except (ImportError, ValueError, AttributeError):  # numba, or a variant that the twin does not know
        return False
