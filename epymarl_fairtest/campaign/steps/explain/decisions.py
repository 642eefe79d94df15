"""Which single decisions would have made a failure fair: every one is changed once, the best are checked.

Changed once means with common random numbers: the same exploration, one action of one agent at one step different.
What comes out fair there may only have been near the threshold. So the best are executed under fresh exploration, with
the action that was taken and with the other one (arms.py), and only a clear difference is shown. A slip, an action that
was explored or forced, is never left out for being one of many, and is executed until it is clear or hopeless: nothing
else in an episode is so near to a fault.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.campaign.steps.explain.arms import (
    ERRORS,
    ERRORS_OF_SLIPS,
    Arms,
    Decision,
    both_arms,
    own_choice,
)
from epymarl_fairtest.campaign.steps.explain.better import Compared, compared
from epymarl_fairtest.campaign.steps.explain.cases import Asking, Cases, Decisions, Rows
from epymarl_fairtest.campaign.steps.explain.onward import NAME, STREAMS, Onward
from epymarl_fairtest.team.contract import CHUNK

CHECKED = 5  # decisions of a case, slips aside, that are looked at under fresh exploration
AGAIN = 2  # of them, that may be measured on other streams, one after the other until something is clear
SURE = 32  # other streams at least, on which what is shown was measured
ROUNDS: tuple[int, ...] = (16, *range(SURE, 257))
"""Streams after each round; beyond SURE for slips that may yet be clear."""
LIKELIER = 0.5  # P(unfair) below which fair is the likelier outcome
FEW = 4 * CHUNK  # continuations that are as well executed together
Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Tried:
    """Every single decision of every case, changed once."""

    case: Rows
    decisions: Decisions
    compared: Compared
    slip: Mask  # does it put an action right that was explored or forced?
    spare: Mask  # or may it, in case the team's own choice turns out not to be clear?

    def take(self, rows: Rows) -> Tried:
        decisions, compared = self.decisions.take(rows), self.compared.take(rows)
        return Tried(self.case[rows], decisions, compared, self.slip[rows], self.spare[rows])

    def count(self, cases: int) -> Rows:
        """How many were tried of each case."""
        return np.bincount(self.case, minlength=cases)

    def found(self, cases: int) -> NDArray[np.bool_]:
        """Which cases have a decision that makes them better?"""
        return np.bincount(self.case[self.compared.better], minlength=cases) > 0

    def judged(self, cases: Cases, arms: Arms) -> list[Decision]:
        return arms.decisions(cases, self.case, self.decisions)


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
    return Tried(case, decisions, result, *_slips(cases, case, decisions, result))


def _slips(cases: Cases, case: Rows, decisions: Decisions, result: Compared) -> tuple[Mask, Mask]:
    """Which put an action right that was explored or forced, and which are kept in case that is not clear. Of each such
    action one: the team's own choice, or where that is not better the one that makes the case most even, which is kept
    otherwise."""
    step, agent, own = decisions.step, decisions.agent, own_choice(cases, case, decisions)
    rows = np.flatnonzero((cases.episodes.actions[case, step, agent] != own) & result.better)
    other = own != decisions.action
    rows = rows[np.lexsort((-result.index[rows], other[rows], agent[rows], step[rows], case[rows]))]
    places = np.stack([case[rows], step[rows], agent[rows]], axis=1)
    first = np.append(True, (places[1:] != places[:-1]).any(axis=1))[: len(rows)]
    second = np.append(False, first[:-1])[: len(rows)] & ~first & ~np.append(True, other[rows][:-1])[: len(rows)]
    slip, spare = np.zeros(len(case), bool), np.zeros(len(case), bool)
    slip[rows[first]], spare[rows[second]] = True, True
    return slip, spare


def _most_even(cases: Cases, better: Tried) -> Rows:
    """At most CHECKED of each case, slips aside: those that are fair by most, in units of what the steps after them may
    change: noise adds up like the square root of their number."""
    left = cases.episodes.length[better.case] - better.decisions.step
    margin = (better.compared.index - cases.context.judge.theta) / np.sqrt(left)
    return np.flatnonzero(~better.slip & (_places(better, -margin) < CHECKED))


def _places(tried: Tried, least: Array) -> Rows:
    """The place of each among those of its case, slips aside: 0 has the least value."""
    order = np.lexsort((np.arange(len(least)), least, tried.slip, tried.case))
    begin = np.searchsorted(tried.case[order], tried.case[order])  # where the rows of this case begin
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order)) - begin
    return places


def checked_decisions(cases: Cases, tried: Tried, onward: Onward) -> Asking[tuple[list[Decision], list[Decision]]]:
    """Of the most even ones those that are clear at a first look, slips aside, for ten streams would leave none of them
    out; and of all of them those that are shown: measured on other streams, slips and the best of the others first.
    Then one more of the others where nothing is shown, and another way to put a slip right where the team's own choice
    is not."""
    found = tried.take(np.flatnonzero(tried.compared.better))
    slips, spares, others = np.flatnonzero(found.slip), np.flatnonzero(found.spare), _most_even(cases, found)
    looked = found.take(others)
    both = yield from both_arms(cases, looked.case, looked.decisions, cases.streams(NAME, STREAMS), onward)
    arms = both.arms
    clear, may = np.flatnonzero(arms.clear(cases, looked.case)), np.flatnonzero(arms.may_be_clear())
    places = _places(looked.take(may), -arms.drop[may])
    shown: list[Decision] = []
    for place in range(AGAIN):
        rows = others[may[places == place]]
        rows = rows[~np.isin(found.case[rows], [one.case for one in shown])]
        if place:
            slips = _not_yet(found, spares, shown)
            found.slip[slips] = True  # nor are they to be lost
        shown += yield from _measured(cases, found.take(np.union1d(rows, slips)))
    return looked.take(clear).judged(cases, arms.take(clear)), sorted(shown, key=preference)


def _not_yet(tried: Tried, rows: Rows, shown: Sequence[Decision]) -> Rows:
    """Those of these rows that change an action of which no change is shown."""
    known = {(one.case, one.step, one.agent) for one in shown}
    places = zip(tried.case[rows], tried.decisions.step[rows], tried.decisions.agent[rows], strict=True)
    left: Rows = rows[np.array([place not in known for place in places], bool)]
    return left


def _measured(cases: Cases, tried: Tried) -> Asking[list[Decision]]:
    """Those that are clear on streams that did not choose them."""
    drawn, clear, known = cases.streams("decisions again", ROUNDS[-1]), [], Arms.none(cases, len(tried.case))
    executed, both = 0, None
    for first, last in zip((0, *ROUNDS), ROUNDS, strict=False):
        if not len(tried.case):
            break
        if both is None or last > executed:
            begun, executed = first, _ahead(tried, first, last)
            both = yield from both_arms(cases, tried.case, tried.decisions, drawn[:, begun:executed])
        known = known + both.streams(slice(first - begun, last - begun)).arms
        may = known.may_be_clear(np.where(tried.slip, ERRORS_OF_SLIPS, ERRORS))
        if last >= SURE:
            now = known.clear(cases, tried.case)
            clear += tried.take(np.flatnonzero(now)).judged(cases, known.take(np.flatnonzero(now)))
            may &= tried.slip & ~now
        rows = np.flatnonzero(may)
        tried, known, both = tried.take(rows), known.take(rows), both.take(rows)
    return clear


def _ahead(tried: Tried, first: int, last: int) -> int:
    """How many streams are executed at once: of few decisions those of later rounds, too, for a request goes through
    an episode step by step however few they are."""
    most = ROUNDS[-1] if tried.slip.any() else SURE
    fit = [more for more in ROUNDS if more <= most and 2 * len(tried.case) * (more - first) <= FEW]
    return max([last, *fit])


def preference(decision: Decision) -> tuple[object, ...]:
    """Case by case: slips first that the team's own choice puts right, for that changes nothing that the team wanted;
    of them those that leave fair the likelier outcome, and of these the last, up to which everything could still be put
    right. Then what lowers P(unfair) most."""
    late = decision.step if decision.slip else 0
    likely = decision.slip and decision.p_unfair >= LIKELIER
    return (decision.case, not decision.slip, likely, -late, -decision.drop, -decision.worst_off_gain, decision.step,
            decision.agent)  # fmt: skip


def measured(cases: Cases, case: Rows, decisions: Decisions, streams: int, what: str) -> Asking[list[Decision]]:
    """These decisions on so many fresh streams."""
    both = yield from both_arms(cases, case, decisions, cases.streams(what, streams))
    return both.arms.decisions(cases, case, decisions)
