"""The threshold of a run: given, the task's own, or calibrated on random executions (theta=auto)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from epymarl_fairtest.core import rng
from epymarl_fairtest.core.episodes import random_tests
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.indices import INDICES
from epymarl_fairtest.core.judged import of_agents, totals
from epymarl_fairtest.core.ledger import CALIBRATION, Ledger
from epymarl_fairtest.engine.contract import Engine
from epymarl_fairtest.settings import Settings
from epymarl_fairtest.tasks.contract import Task
from epymarl_fairtest.team.contract import Team


def given_theta(settings: Settings, task: Task) -> float:
    """The threshold, where it need not be calibrated."""
    return task.theta if settings.theta is None else float(settings.theta)


@dataclass(frozen=True)
class Calibration:
    theta: float
    share: float  # of the defined episodes that it calls unfair; above the quantile where many are equal
    defined: int
    episodes: int


def calibrate(team: Team, settings: Settings, engine: Engine, seed: int, ledger: Ledger) -> Calibration:
    """The threshold that calls `quantile` of random executions unfair (theta=auto)."""
    tests = random_tests(settings.calibration, team.task.state_size, rng.named(seed, "calibration"))
    episodes = engine.execute(tests)
    ledger.charge(CALIBRATION, len(episodes), episodes.executed_steps())
    index = INDICES[settings.index](totals(of_agents(episodes.rewards, settings.agents)))
    defined = index[~np.isnan(index)]
    if not len(defined):
        raise FairTestError(
            f"theta=auto cannot be calibrated: in none of {len(index)} random executions did any agent receive"
            " anything. Train the team further, or set theta to a number in (0, 1]."
        )
    theta = float(np.quantile(defined, settings.quantile))
    return Calibration(theta, float((defined <= theta).mean()), len(defined), len(index))
