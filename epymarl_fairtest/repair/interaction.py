"""Can the agents of a team affect one another's reward? Measured: one acts at random, and the others' totals change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from epymarl_fairtest.core import rng
from epymarl_fairtest.core.episodes import random_tests
from epymarl_fairtest.core.judged import Judge
from epymarl_fairtest.core.numbers import percent
from epymarl_fairtest.engine.selection import make_engine
from epymarl_fairtest.settings import Settings
from epymarl_fairtest.team.contract import Team

STARTS = 100
MUCH = 0.5  # of what an agent's acting changes for itself: above, the agents share what there is


@dataclass(frozen=True)
class Interaction:
    """By how much an agent that acts at random changes what it receives, and what each of the others does."""

    own: float
    others: float

    @property
    def share(self) -> float:
        return self.others / self.own if self.own else 0.0

    @property
    def welfare(self) -> str:
        return "gini" if self.share >= MUCH else "jain"

    def sentence(self) -> str:
        effect = (
            f"An agent that acts at random changes what each other agent receives by {percent(self.share)} of what it"
            " changes for itself"
        )
        if self.welfare == "gini":
            return (
                f"{effect}: the agents share what there is, so paying for the worst-off can move rewards from one to"
                " another (gini)."
            )
        return (
            f"{effect}: the agents hardly affect one another, so little can be moved, and the index itself is paid for"
            " (jain). Expect levelling down."
        )

    def as_dict(self) -> dict[str, Any]:
        return {"own": self.own, "others": self.others, "share": self.share}


def interaction_of(team: Team, settings: Settings, judge: Judge) -> Interaction:
    """From a hundred starts, each agent in turn."""
    engine = make_engine(team, settings, lambda message: None)
    generator = rng.named(settings.root_seed(), "interaction")
    tests = random_tests(STARTS, team.task.state_size, generator)
    usual = judge.received(engine.execute(tests).rewards)
    agents = usual.shape[1]
    change = np.empty((agents, agents))
    for agent in range(agents):
        allowed = np.flatnonzero(team.available[agent])
        tests.forced = np.full((STARTS, team.limit, team.task.n_agents), -1, np.int16)
        tests.forced[:, :, agent] = generator.choice(allowed, (STARTS, team.limit))
        change[agent] = np.abs(judge.received(engine.execute(tests).rewards) - usual).mean(axis=0)
    own = np.diag(change)
    others = change[~np.eye(agents, dtype=bool)]
    return Interaction(float(own.mean()), float(others.mean()))
