"""A random team from the same starts: has the tested team learned enough for its unfairness to mean anything?

Its actions are drawn evenly from those that exist and forced upon the judged agents, so that any engine can execute
it; agents that are not judged play as they do.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.campaign.steps.contract import Aftermath, Execute, Outcome, Step, Steps
from epymarl_fairtest.core.chance import unfair_by_chance
from epymarl_fairtest.core.episodes import Tests, tests_from_seeds
from epymarl_fairtest.core.judged import numbers_of, places_of
from epymarl_fairtest.core.ledger import purpose
from epymarl_fairtest.core.statistics import sign_test
from epymarl_fairtest.tasks.layers import sides

RANDOM_TEAM = purpose("random_team", "a team that acts at random, to compare with (not charged)")
LEVEL = 0.01  # of the test whether the team does better


def compare_with_random_team(context: Aftermath) -> Steps:
    """What the team received in its random executions, beside what a random team receives from the same starts."""
    executions, judge = context.executions, context.judge
    random = executions["random"] if executions else np.empty(0, bool)
    team = context.team
    agents = numbers_of(judge.agents, team.task.n_agents)
    known: dict[str, Any] = {
        "agents": agents,
        "unfair_by_chance": unfair_by_chance(judge.index, judge.theta, len(agents)),
        "sides": sides(team.environment, team.task.n_agents) if judge.agents == "all" else None,
        "competence": None,
    }
    if not random.any():
        return Outcome(known)
    received = executions["received"][random]
    known["competence"] = competence = {
        "executions": len(received),
        "received": received.mean(axis=0).tolist(),
        "return": float(received.sum(axis=1).mean()),
        "undefined": float(np.isnan(executions["index"][random]).mean()),
        "opposite_signs": float(((received > 0).any(axis=1) & (received < 0).any(axis=1)).mean()),
        "least_return": least_return(context),
        "random_team": None,
    }
    starts = np.flatnonzero(random & (executions["operator"] == "seed"))[: context.settings.random_team]
    if len(starts):
        again = yield Execute(random_team(context, executions["root_seed"][starts]))
        theirs, ours = judge.received(again.rewards), executions["received"][starts]
        competence["random_team"] = compared(ours, theirs)
    return Outcome(known)


def random_team(context: Aftermath, seeds: NDArray[np.int64]) -> Tests:
    """Tests from these seeds in which every action of the judged agents is drawn at random."""
    team, generator = context.team, context.generator("random team")
    tests = tests_from_seeds(
        seeds, generator.integers(0, 2**64, len(seeds), dtype=np.uint64), team.task.state_size, "action"
    )
    tests.forced = np.full((len(seeds), team.limit, len(team.available)), -1, np.int16)
    for agent in places_of(context.judge.agents, len(team.available)):
        tests.forced[:, :, agent] = generator.choice(np.flatnonzero(team.available[agent]), (len(seeds), team.limit))
    return tests


def compared(ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> dict[str, Any]:
    """What both receive from the same starts, and whether the tested team receives more (exact sign test)."""
    gain = ours.sum(axis=1) - theirs.sum(axis=1)
    better, worse = int((gain > 0).sum()), int((gain < 0).sum())
    p = sign_test(better, worse)
    return {
        "starts": len(gain),
        "received": theirs.mean(axis=0).tolist(),
        "return": float(theirs.sum(axis=1).mean()),
        "team_received": ours.mean(axis=0).tolist(),
        "team_return": float(ours.sum(axis=1).mean()),
        "better": better,
        "worse": worse,
        "p": p,
        "beaten": p <= LEVEL,
    }


def least_return(context: Aftermath) -> float | None:
    """What the task asks of a competent team, where rewards are shares of all there is."""
    team = context.team
    if team.environment is None or team.allocation != "env" or context.judge.agents != "all":
        return None
    return team.task.competence(team.environment).least_share


STEP = Step("random_team", "executing a random team", RANDOM_TEAM, compare_with_random_team, order=3)
