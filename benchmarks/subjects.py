"""Shipped teams, ready to be explained: what executes one, and what a step after a search may know of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from epymarl_fairtest.campaign.steps.contract import Aftermath, Execute, taken
from epymarl_fairtest.core.episodes import Episodes
from epymarl_fairtest.core.indices import INDICES
from epymarl_fairtest.core.judged import Judge
from epymarl_fairtest.engine.contract import Engine
from epymarl_fairtest.engine.selection import make_engine, real_engine
from epymarl_fairtest.strategies import configure
from epymarl_fairtest.team.checkpoint import load_record
from epymarl_fairtest.team.saved import saved_team

ROOT = Path(__file__).resolve().parents[1]
TEAMS = ("mpe-qmix", "mpe-iql", "pp-qmix", "pp-iql", "lbf-qmix", "lbf-iql")
OTHER = 200  # streams that no explanation has seen
BATCH = 2000
TOGETHER = 256  # failures that are explained at once
MOST_TRIES = 100  # batches


@dataclass(frozen=True)
class Subject:
    """A team and what executes it."""

    name: str
    engine: Engine
    real: Engine
    context: Aftermath
    seed: int  # of the executions that are planted in, robbed or explained

    @property
    def judge(self) -> Judge:
        return self.context.judge

    def ask(self, asking: Any, execute: Callable[[Execute], Episodes] | None = None) -> Any:
        return taken(asking, execute or (lambda wanted: wanted.by(self.engine, self.real)))


def subject_of(name: str, seed: int) -> Subject:
    folder = ROOT / "policies" / name
    allocation = load_record(folder).allocation
    settings = configure({"allocation": allocation, "engine": "twin", "workers": 1})
    team = saved_team(folder, allocation)
    real = real_engine(team, settings)
    engine = make_engine(team, settings, print, real=real)
    engine.keeps_obs = False
    judge = Judge(INDICES["jfi"], team.task.theta)
    found: Any = None
    context = Aftermath(team, settings, 0, judge, found, (0, 0), {}, lambda episodes: episodes, print)
    return Subject(name, engine, real, context, seed)
