"""A decision beside the action that was taken, from one state and on the same fresh streams.

At that step everybody else does what it did. So the arm with the action that was taken is the failure itself, continued
from the step after; continued from the step itself an explored action would not be repeated, and a slip would look
harmless.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.campaign.steps.explain.better import MOST_COST, team_change
from epymarl_fairtest.campaign.steps.explain.cases import Asking, Cases, Decisions, Rows
from epymarl_fairtest.campaign.steps.explain.onward import Onward
from epymarl_fairtest.campaign.steps.explain.sharing import Streams, both_ways
from epymarl_fairtest.core.scores import greedy

LEAST_DROP = 0.25  # of P(unfair), for a decision to be shown
ERRORS = 2.0  # standard errors by which a measured drop may be below the true one
ERRORS_OF_SLIPS = 3.0  # the same where none may be lost, though it is asked after each of several rounds
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Decision:
    """One that was executed under fresh exploration, from the state in which it is taken."""

    case: int
    step: int
    agent: int  # from 0, among the environment's
    action: int
    instead_of: int
    slip: bool  # does it put the team's own choice in place of an action that was explored or forced?
    streams: int  # that it was measured on
    p_before: float  # P(unfair) with the action that was taken
    p_unfair: float  # with the other one
    worst_off_gain: float  # mean difference to the agent that came off worst in the failure
    team_change: float

    @property
    def drop(self) -> float:
        return self.p_before - self.p_unfair


@dataclass(frozen=True)
class Arms:
    """What came out, added up over streams; first with the action that was taken, then with the other one."""

    streams: int
    unfair: NDArray[np.int64]  # (2, rows)
    differ: NDArray[np.int64]  # (rows,) streams on which one arm is unfair and the other is not
    received: Array  # (2, rows, judged agents)

    @staticmethod
    def none(cases: Cases, rows: int) -> Arms:
        none = np.zeros((2, rows), np.int64)
        return Arms(0, none, none[0], np.zeros((2, rows, cases.received.shape[1])))

    def __add__(self, more: Arms) -> Arms:
        return Arms(
            self.streams + more.streams,
            self.unfair + more.unfair,
            self.differ + more.differ,
            self.received + more.received,
        )

    def take(self, rows: Rows) -> Arms:
        return Arms(self.streams, self.unfair[:, rows], self.differ[rows], self.received[:, rows])

    @property
    def p_unfair(self) -> Array:
        """(2, rows)"""
        share: Array = self.unfair / max(self.streams, 1)
        return share

    @property
    def drop(self) -> Array:
        before, now = self.p_unfair
        drop: Array = before - now
        return drop

    @property
    def error(self) -> Array:
        """Standard error of the drop, as if the arms differed on one more stream: where none does, few prove little."""
        streams = max(self.streams, 1)
        error: Array = np.sqrt(((self.differ + 1) / streams - self.drop**2).clip(0) / streams)
        return error

    def may_be_clear(self, errors: float | Array = ERRORS) -> NDArray[np.bool_]:
        """Which could turn out to be clear on more streams?"""
        may: NDArray[np.bool_] = self.drop + errors * self.error >= LEAST_DROP
        return may

    def clear(self, cases: Cases, case: Rows, errors: float = 0.0) -> NDArray[np.bool_]:
        """Which lower P(unfair) clearly, by so many standard errors more than needed, help the worst-off, and hardly
        cost the team anything?"""
        helps = (self.worst_off_gain(cases, case) > 0) & (self.team_change >= -MOST_COST)
        clear: NDArray[np.bool_] = helps & (self.drop - errors * self.error >= LEAST_DROP)
        return clear

    def worst_off_gain(self, cases: Cases, case: Rows) -> Array:
        """Mean difference to the agent that came off worst in the failure; of those that tie, the least."""
        failed = cases.received[case]
        worst_off = failed == failed.min(axis=1, keepdims=True)
        before, now = self.received / max(self.streams, 1)
        gain: Array = np.where(worst_off, now - before, np.inf).min(axis=1)
        return gain

    @property
    def team_change(self) -> Array:
        return team_change(self.received[0], self.received[1])

    def decisions(self, cases: Cases, case: Rows, decisions: Decisions) -> list[Decision]:
        if not len(case):
            return []
        taken, slip = _taken(cases, case, decisions), decisions.action == own_choice(cases, case, decisions)
        gain, change, (before, now) = self.worst_off_gain(cases, case), self.team_change, self.p_unfair
        return [
            Decision(
                int(case[n]), int(decisions.step[n]), int(decisions.agent[n]), int(decisions.action[n]), int(taken[n]),
                bool(slip[n]), self.streams, float(before[n]), float(now[n]), float(gain[n]), float(change[n]),
            )
            for n in range(len(case))
        ]  # fmt: skip


@dataclass(frozen=True)
class Both:
    """What came out stream by stream, in the same order."""

    unfair: NDArray[np.bool_]  # (2, rows, streams)
    received: Array  # (2, rows, streams, judged agents)

    @property
    def arms(self) -> Arms:
        """Added up over streams."""
        differ = (self.unfair[0] != self.unfair[1]).sum(axis=1)
        return Arms(self.unfair.shape[2], self.unfair.sum(axis=2), differ, self.received.sum(axis=2))

    def streams(self, some: slice) -> Both:
        return Both(self.unfair[:, :, some], self.received[:, :, some])

    def take(self, rows: Rows) -> Both:
        return Both(self.unfair[:, rows], self.received[:, rows])


def both_arms(
    cases: Cases, case: Rows, decisions: Decisions, drawn: Streams, onward: Onward | None = None
) -> Asking[Both]:
    """These decisions on the streams that were `drawn` for each of all cases; decisions at one step of a case share the
    arm with the action that was taken, which is kept `onward` if these are its streams."""
    steps = cases.episodes.limit + 1
    places, of = np.unique(case * steps + decisions.step + 1, return_inverse=True)
    owner, step = np.divmod(places, steps)
    before, now = yield from both_ways(cases, drawn, owner, step, case, decisions)
    if onward is not None:
        onward.keep(owner, step, before)
    received = np.stack([before[of.ravel()], now])
    return Both(cases.context.judge.unfair(received), received)


def _taken(cases: Cases, case: Rows, decisions: Decisions) -> Rows:
    taken: Rows = cases.episodes.actions[case, decisions.step, decisions.agent].astype(np.int64)
    return taken


def own_choice(cases: Cases, case: Rows, decisions: Decisions) -> Rows:
    """What the team's policy says where these decisions are taken."""
    chosen = greedy(cases.episodes.q[case, decisions.step], cases.context.team.available)
    own: Rows = chosen[np.arange(len(case)), decisions.agent].astype(np.int64)
    return own
