"""Which single decisions would have made a failure fair: every one is changed once, the best are checked.

Changed once means with common random numbers: the same exploration, one action of one agent at one step different.
What comes out fair there may only have been near the threshold. So the best are executed under fresh exploration, with
the action that was taken and with the other one, and only a clear difference is shown.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.campaign.steps.explain.better import MOST_COST, Compared, compared, team_change
from epymarl_fairtest.campaign.steps.explain.cases import Asking, Cases, Decisions, Rows
from epymarl_fairtest.core.scores import greedy

CHECKED = 8  # decisions of a case that are executed under fresh exploration
STREAMS = 12  # of that first look
AGAIN = 48  # other streams, on which those that passed are measured: they were chosen by the first ones
SHOWN = 3  # decisions of a case
LEAST_DROP = 0.25  # of P(unfair), for a decision to be shown
FIRST_DROP = 0.1  # at the first look, which is short
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Tried:
    """Every single decision of every case, changed once."""

    case: Rows
    decisions: Decisions
    compared: Compared
    slip: NDArray[np.bool_]  # does it put the team's own choice in place of an action that was explored or forced?

    def at(self, rows: Rows) -> tuple[Rows, Decisions, NDArray[np.bool_]]:
        """Cases and decisions at these rows, and which put a slip right."""
        return self.case[rows], self.decisions.take(rows), self.slip[rows]

    def count(self, cases: int) -> Rows:
        """How many were tried of each case."""
        return np.bincount(self.case, minlength=cases)

    def found(self, cases: int) -> NDArray[np.bool_]:
        """Which cases have a decision that makes them better?"""
        return np.bincount(self.case[self.compared.better], minlength=cases) > 0


@dataclass(frozen=True)
class Decision:
    """One that was checked under fresh exploration, from the state in which it is taken."""

    case: int
    step: int
    agent: int  # from 0, among the environment's
    action: int
    instead_of: int
    slip: bool
    p_before: float  # P(unfair) with the action that was taken
    p_unfair: float  # with the other one
    worst_off_gain: float  # mean difference to the agent that came off worst in the failure
    team_change: float

    @property
    def drop(self) -> float:
        return self.p_before - self.p_unfair

    @property
    def clear(self) -> bool:
        """Does it lower P(unfair) clearly?"""
        return self.drop >= LEAST_DROP and self.helps

    @property
    def helps(self) -> bool:
        """Does it lower P(unfair), help the worst-off, and hardly cost the team anything?"""
        return self.drop > 0 and self.worst_off_gain > 0 and self.team_change >= -MOST_COST


def every_decision(cases: Cases) -> Asking[Tried]:
    episodes, available = cases.episodes, cases.context.team.available
    others = (
        cases.decided[:, :, None, None] & available & (np.arange(available.shape[1]) != episodes.actions[..., None])
    )
    judged = np.isin(np.arange(len(available)), cases.agents)
    case, step, agent, action = np.nonzero(others & judged[:, None])
    decisions = Decisions(step, agent, action)
    received = yield from cases.outcomes(case, step, None, decisions)
    result = compared(cases.context.judge, cases.received[case], received)
    own = greedy(episodes.q[case, step], available)[np.arange(len(case)), agent]
    slip = (own == action) & (episodes.actions[case, step, agent] != own)
    return Tried(case, decisions, result, slip)


def promising(tried: Tried) -> Rows:
    """Rows of at most CHECKED decisions of each case: slips first, then those that make it most even."""
    rows = np.flatnonzero(tried.compared.better)
    rows = rows[np.lexsort((rows, -tried.compared.index[rows], ~tried.slip[rows], tried.case[rows]))]
    first = np.searchsorted(tried.case[rows], tried.case[rows])  # where the rows of this case begin
    return rows[np.arange(len(rows)) - first < CHECKED]


def checked_decisions(cases: Cases, tried: Tried) -> Asking[tuple[list[Decision], list[Decision]]]:
    """The promising ones under fresh exploration, and those of them that are shown: measured once more."""
    rows = promising(tried)
    first = yield from measured(cases, *tried.at(rows), STREAMS, "decisions")
    passed = [one for one in zip(rows.tolist(), first, strict=True) if one[1].drop >= FIRST_DROP]
    best: dict[int, list[tuple[int, Decision]]] = {}
    for row, decision in sorted(passed, key=lambda one: preference(one[1])):
        best.setdefault(decision.case, []).append((row, decision))
    again = np.array(sorted(row for some in best.values() for row, _ in some[:SHOWN]), np.int64)
    second = yield from measured(cases, *tried.at(again), AGAIN, "decisions again")
    shown = sorted((one for one in second if one.clear), key=preference)
    return first, shown


def preference(decision: Decision) -> tuple[object, ...]:
    """Case by case: slips first, for they change nothing that the team wanted; then the least P(unfair)."""
    return (
        decision.case,
        not decision.slip,
        decision.p_unfair,
        -decision.worst_off_gain,
        decision.step,
        decision.agent,
    )


def measured(
    cases: Cases, case: Rows, decisions: Decisions, slip: NDArray[np.bool_], streams: int, what: str
) -> Asking[list[Decision]]:
    """These decisions beside the actions that were taken, both from the state at their step and on the same streams."""
    if not len(case):
        return []
    rows = np.arange(len(case))
    taken = cases.episodes.actions[case, decisions.step, decisions.agent].astype(np.int64)
    both = Decisions(np.tile(decisions.step, 2), np.tile(decisions.agent, 2), np.concatenate([taken, decisions.action]))
    of = np.repeat(np.arange(2 * len(rows)), streams)
    drawn = np.tile(cases.streams(what, streams)[case], (2, 1)).ravel()
    received = yield from cases.outcomes(np.tile(case, 2)[of], both.step[of], drawn, both.take(of))
    unfair = cases.context.judge.unfair(received).reshape(2, len(rows), streams).mean(axis=2)
    before, now = received.reshape(2, len(rows), streams, -1)
    failed = cases.received[case]
    worst_off = failed == failed.min(axis=1, keepdims=True)
    gain = np.where(worst_off, (now - before).mean(axis=1), np.inf).min(axis=1)
    change = team_change(before.sum(axis=1), now.sum(axis=1))
    return [
        Decision(
            int(case[n]), int(decisions.step[n]), int(decisions.agent[n]), int(decisions.action[n]), int(taken[n]),
            bool(slip[n]), float(unfair[0, n]), float(unfair[1, n]), float(gain[n]), float(change[n]),
        )
        for n in range(len(rows))
    ]  # fmt: skip
