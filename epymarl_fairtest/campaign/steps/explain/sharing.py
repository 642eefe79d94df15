"""Continuations on several streams of exploration each.

A failure that goes on does what it did until somebody explores, and not alike: only what comes after that is executed.
What continuations have in common otherwise the engine sees by itself. What comes out is the same as if each were
executed alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.campaign.steps.explain.cases import Array, Asking, Cases, Decisions, Greedy, Plans, Rows
from epymarl_fairtest.core.scores import greedy as best_actions
from epymarl_fairtest.engine.action_rules import explored
from epymarl_fairtest.engine.selection import action_rule

Streams = NDArray[np.uint64]


def on_streams(
    cases: Cases,
    drawn: Streams,
    case: Rows,
    step: NDArray[np.integer],
    decisions: Decisions | Plans | None = None,
    *,
    greedy: Greedy = False,
) -> Asking[Array]:
    """What the judged agents receive (rows, streams, judged agents) in these continuations, each on the streams that
    were `drawn` for its row."""
    of = np.repeat(np.arange(len(drawn)), drawn.shape[1])
    some = None if decisions is None else decisions.take(of)
    own = greedy if isinstance(greedy, bool) else greedy[of]
    received = yield from cases.outcomes(case[of], np.asarray(step)[of], drawn.ravel(), some, greedy=own)
    return received.reshape(*drawn.shape, received.shape[1])


@dataclass(frozen=True)
class Going:
    """Failures that go on from some of their steps (rows) on some streams, and what must be executed to know how."""

    received: Array  # (rows, streams, judged agents) if nobody does anything else
    row: Rows  # where somebody does: the row, the stream, and which of the continuations it is
    stream: Rows
    of: Rows
    case: Rows  # of each continuation, from which step, and what it draws from
    step: Rows
    drawn: Streams

    def filled(self, executed: Array) -> Array:
        received = self.received.copy()
        received[self.row, self.stream] = executed[self.of]
        return received


def going_on(cases: Cases, drawn: Streams, case: Rows, step: Rows) -> Asking[Array]:
    """What the judged agents receive (rows, streams, judged agents) from these steps on, on the streams that were
    `drawn` for each of all cases."""
    going = _going(cases, drawn, case, step)
    return going.filled((yield from cases.outcomes(going.case, going.step, going.drawn)))


def both_ways(
    cases: Cases, drawn: Streams, case: Rows, step: Rows, of: Rows, decisions: Decisions
) -> Asking[tuple[Array, Array]]:
    """The failures that go on from these steps, and decisions in the cases `of` them, on the streams that were `drawn`
    for each of all cases. They are asked for together, for they may meet."""
    going, streams = _going(cases, drawn, case, step), drawn.shape[1]
    begun, each = len(going.case), np.repeat(np.arange(len(of)), streams)
    nobody, some = np.full(begun, -1), decisions.take(each)
    parts = [(nobody, some.step), (nobody, some.agent), (nobody, some.action), (going.case, of[each])]
    parts += [(going.step, some.step)]
    *named, cases_of, steps = (np.concatenate(both) for both in parts)
    stream = np.concatenate([going.drawn, drawn[of].ravel()])
    received = yield from cases.outcomes(cases_of, steps, stream, Decisions(*named))
    return going.filled(received[:begun]), received[begun:].reshape(len(of), streams, received.shape[1])


def _going(cases: Cases, drawn: Streams, case: Rows, step: Rows) -> Going:
    streams, steps = drawn.shape[1], cases.episodes.limit + 1
    received = np.repeat(cases.received[case][:, None], streams, axis=1)
    until = np.repeat(step[:, None], streams, axis=1)
    if len(case) and _explores_alone(cases):
        until = _as_before(cases, drawn, case, step)
    row, stream = np.nonzero(until < cases.episodes.length[case][:, None])
    different, of = np.unique((case[row] * steps + until[row, stream]) * streams + stream, return_inverse=True)
    places, number = np.divmod(different, streams)
    owner, begin = np.divmod(places, steps)
    return Going(received, row, stream, of.ravel(), owner, begin, drawn[owner, number])


def _explores_alone(cases: Cases) -> bool:
    """Only who explores by epsilon-greedy does mostly what it would do anyway; and where nothing can be restored all
    steps are executed anyway."""
    context = cases.context
    kind = action_rule(context.team, context.settings).kind
    return kind in ("epsilon_greedy", "greedy") and context.team.task.restorable


def _as_before(cases: Cases, drawn: Streams, case: Rows, step: Rows) -> Rows:
    """(rows, streams): the first step from these on at which somebody does something else than it did."""
    which, of = np.unique(case, return_inverse=True)
    episodes = cases.episodes.take(which)
    own = best_actions(episodes.q, cases.context.team.available)[:, None]
    random = _explored(cases, drawn[which], episodes.shift)
    other = np.where(random >= 0, random, own) != episodes.actions[:, None]
    differs = np.logical_or.reduce([other[..., agent] for agent in range(other.shape[-1])])[of.ravel()]
    differs &= np.arange(episodes.limit) >= step[:, None, None]
    first: Rows = np.where(differs.any(axis=-1), differs.argmax(axis=-1), episodes.limit)
    return first


def _explored(cases: Cases, drawn: Streams, shift: NDArray[np.int32]) -> NDArray[np.int16]:
    """(cases, streams, steps, agents): what agents do at random; -1 where they do not explore."""
    rule, steps = action_rule(cases.context.team, cases.context.settings), np.arange(cases.episodes.limit)
    shape = (*drawn.shape, len(steps))
    if rule.kind == "greedy":
        return np.full((*shape, len(rule.available)), -1, np.int16)
    at = np.broadcast_to((steps + shift[:, None])[:, None], shape)
    random = explored(np.broadcast_to(drawn[..., None], shape).ravel(), at.ravel(), rule)
    return random.reshape(*shape, -1)
