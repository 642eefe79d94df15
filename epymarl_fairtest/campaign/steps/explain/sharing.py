"""Continuations on several streams of exploration each, of which no step is executed twice.

Two streams give the same steps until somebody explores on one of them and not alike on the other. So the stream that is
quiet longest is executed first, and of the others only what comes after they part from it. What comes out is the same
as if each were executed by itself.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.campaign.steps.contract import Execute
from epymarl_fairtest.campaign.steps.explain.cases import AT_ONCE, Array, Asking, Cases, Decisions, Greedy, Plans, Rows
from epymarl_fairtest.core.episodes import Episodes
from epymarl_fairtest.engine.action_rules import explored
from epymarl_fairtest.engine.selection import action_rule

Streams = NDArray[np.uint64]
Explored = NDArray[np.int16]  # (..., steps, agents): what an agent does at random; -1: it does not explore


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
    rows, streams = drawn.shape
    received = np.empty((rows, streams, cases.received.shape[1]))
    size = max(AT_ONCE // max(streams, 1), 1)
    order = np.argsort(step, kind="stable")  # of those that begin late nobody asks what is explored before
    for first in range(0, rows, size):
        now = order[first : first + size]
        some = None if decisions is None else decisions.take(now)
        own = greedy if isinstance(greedy, bool) else greedy[now]
        ask = _shared if can_share(cases) else _each
        received[now] = yield from ask(cases, drawn[now], case[now], step[now], some, own)
    return received


def can_share(cases: Cases) -> bool:
    """Only who explores by epsilon-greedy does mostly what it would do anyway; a memory would have to be computed again
    for every continuation that others part from, and where nothing can be restored all steps are executed anyway."""
    context = cases.context
    kind = action_rule(context.team, context.settings).kind
    return kind in ("epsilon_greedy", "greedy") and context.team.task.restorable and not context.team.policy.hidden_size


def _each(
    cases: Cases, drawn: Streams, case: Rows, step: NDArray[np.integer], decisions: Decisions | Plans | None,
    greedy: Greedy,
) -> Asking[Array]:  # fmt: skip
    rows, streams = drawn.shape
    of = np.repeat(np.arange(rows), streams)
    some = None if decisions is None else decisions.take(of)
    own = greedy if isinstance(greedy, bool) else greedy[of]
    received = yield from cases.outcomes(case[of], step[of], drawn.ravel(), some, greedy=own)
    return received.reshape(rows, streams, -1)


def _shared(
    cases: Cases, drawn: Streams, case: Rows, step: NDArray[np.integer], decisions: Decisions | Plans | None,
    greedy: Greedy,
) -> Asking[Array]:  # fmt: skip
    rows = np.arange(len(case))
    forced = None if decisions is None else decisions.forced(cases, case, rows)
    random = _explored(cases, drawn, case, step, forced, greedy)
    quiet = _first(random >= 0).argmax(axis=1)  # the stream that explores last
    led = yield Execute(cases.tests(case, step, drawn[rows, quiet], forced, greedy=greedy))
    leaders = _cases_of(cases, case, led)
    parting = _parting(random, random[rows, quiet], led)
    parting[rows, quiet] = led.limit
    received = np.repeat(leaders.received[:, None], drawn.shape[1], axis=1)
    row, stream = np.nonzero(parting < led.length[:, None])
    later = decisions.take(row) if isinstance(decisions, Plans) else None  # one decision is taken before they part
    own = greedy if isinstance(greedy, bool) else greedy[row]
    received[row, stream] = yield from leaders.outcomes(
        row, parting[row, stream], drawn[row, stream], later, greedy=own
    )
    return received


def _explored(
    cases: Cases, drawn: Streams, case: Rows, step: NDArray[np.integer], forced: Explored | None, greedy: Greedy
) -> Explored:
    """(rows, streams, steps, agents), nothing where it does not count: before the continuation begins, where another
    action is forced, and of agents that do not explore."""
    context, begin = cases.context, int(np.min(step, initial=cases.episodes.limit))
    steps, rule = np.arange(begin, cases.episodes.limit), action_rule(context.team, context.settings)
    random = np.full((*drawn.shape, *cases.episodes.actions.shape[1:]), -1, np.int16)
    if rule.kind == "greedy" or greedy is True:
        return random
    at = np.broadcast_to((steps + cases.episodes.shift[case][:, None])[:, None], (*drawn.shape, len(steps)))
    stream = np.broadcast_to(drawn[..., None], at.shape)
    random[:, :, begin:] = explored(stream.ravel(), at.ravel(), rule).reshape(*at.shape, -1)
    never = (np.arange(random.shape[2]) < np.asarray(step)[:, None])[:, :, None]
    if forced is not None:
        never = never | (forced >= 0)
    if not isinstance(greedy, bool):
        never = never | greedy[:, None]
    return np.where(never[:, None], -1, random).astype(np.int16)


def _first(holds: NDArray[np.bool_]) -> Rows:
    """The first step at which it holds of some agent (..., steps, agents); the number of steps where it never does."""
    some: NDArray[np.bool_] = np.asarray(holds.any(axis=-1))
    first: Rows = np.where(some.any(axis=-1), some.argmax(axis=-1), some.shape[-1])
    return first


def _parting(random: Explored, leader: Explored, led: Episodes) -> Rows:
    """(rows, streams): the first step at which a stream may give another joint action than the row's leader did."""
    acts, does = random >= 0, led.actions[:, None]
    return _first(np.where(acts, random != does, leader[:, None] >= 0))


def _cases_of(cases: Cases, case: Rows, led: Episodes) -> Cases:
    """These episodes, as something that can be continued: the failures' own where they ask who they are."""
    led = replace(led, id=cases.episodes.id[case])
    nothing = np.empty((*led.actions.shape, 0), np.float32)
    past = replace(led, q=nothing, obs=nothing, states=led.states[..., :0])
    return Cases(cases.context, led, past, cases.context.judge.received(led.rewards))
