"""What if one agent had acted as the team's policy says all along: no exploration, and no fault of its own?

Asked for every agent as decisions are: once under the failure's own exploration, then under fresh one, beside the team
as it is. One decision puts a slip right; this finds an agent that goes wrong again and again. What it costs is not
asked: it is not chosen among hundreds for raising the index, and an agent that takes more than its share is to be found
even if nobody gains when it stops.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.campaign.steps.explain.arms import LEAST_DROP, Arms
from epymarl_fairtest.campaign.steps.explain.better import compared
from epymarl_fairtest.campaign.steps.explain.cases import Asking, Cases, Rows
from epymarl_fairtest.campaign.steps.explain.onward import NAME
from epymarl_fairtest.campaign.steps.explain.probability import STREAMS, Chance
from epymarl_fairtest.campaign.steps.explain.sharing import on_streams

ROUNDS = (8, 32)  # streams after each round; those that cannot be clear are left out of the next


@dataclass(frozen=True)
class Acting:
    """An agent that acts as the team's policy says, and by how much that lowers P(unfair)."""

    case: int
    agent: int  # from 0, among the environment's
    drop: float


def own_policy(cases: Cases, chance: Chance) -> Asking[dict[int, dict[int, Acting]]]:
    """By case and agent: those that lower P(unfair) clearly by acting as the team's policy says."""
    case, agent = (part.ravel() for part in np.meshgrid(np.arange(len(cases)), cases.agents, indexing="ij"))
    received = yield from cases.outcomes(case, cases.first[case], greedy=_alone(cases, agent))
    rows = np.flatnonzero(compared(cases.context.judge, cases.received[case], received).fair)
    known = Arms.none(cases, len(rows))
    drawn = cases.streams(NAME, STREAMS)  # on which the team as it is has been executed already
    for first, last in zip((0, *ROUNDS), ROUNDS, strict=False):
        more = yield from _beside(cases, case[rows], agent[rows], chance, drawn, slice(first, last))
        known = known + more
        may = np.flatnonzero(known.may_be_clear())
        rows, known = rows[may], known.take(may)
    found: dict[int, dict[int, Acting]] = {}
    clear = known.drop >= LEAST_DROP
    for row, drop in zip(rows[clear].tolist(), known.drop[clear].tolist(), strict=True):
        found.setdefault(int(case[row]), {})[int(agent[row])] = Acting(int(case[row]), int(agent[row]), drop)
    return found


def _beside(
    cases: Cases, case: Rows, agent: Rows, chance: Chance, drawn: NDArray[np.uint64], now: slice
) -> Asking[Arms]:
    """The team as it is, and with this agent acting so, on the same streams."""
    if not len(case):
        return Arms.none(cases, 0)
    received = yield from on_streams(cases, drawn[case, now], case, cases.first[case], greedy=_alone(cases, agent))
    unfair = np.stack([chance.unfair[case, now], cases.context.judge.unfair(received)])
    both = np.stack([chance.received[case, now], received])
    return Arms(received.shape[1], unfair.sum(axis=2), (unfair[0] != unfair[1]).sum(axis=1), both.sum(axis=2))


def _alone(cases: Cases, agent: Rows) -> NDArray[np.bool_]:
    """(tests, agents): which agent acts so in each test."""
    alone: NDArray[np.bool_] = agent[:, None] == np.arange(cases.episodes.actions.shape[-1])
    return alone
