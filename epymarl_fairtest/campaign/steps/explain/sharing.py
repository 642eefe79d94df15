"""Continuations on several streams of exploration each, of which no step is executed twice.

Two streams give the same steps until somebody explores on one of them and not alike on the other. So a failure that
goes on does what it did until then. Of streams that begin alike the one that is quiet longest is executed first, and of
the others only what comes after they part from it. What comes out is the same as if each were executed by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.campaign.steps.contract import Execute
from epymarl_fairtest.campaign.steps.explain.cases import (
    AT_ONCE,
    Array,
    Asking,
    Cases,
    Decisions,
    Greedy,
    Plans,
    Rows,
    with_memory_of,
)
from epymarl_fairtest.core.episodes import Episodes
from epymarl_fairtest.core.scores import greedy as best_actions
from epymarl_fairtest.engine.action_rules import explored
from epymarl_fairtest.engine.selection import action_rule
from epymarl_fairtest.team.contract import CHUNK

Streams = NDArray[np.uint64]
Explored = NDArray[np.int16]  # (..., steps, agents): what an agent does at random; -1: it does not explore


@dataclass(frozen=True)
class Ways:
    """Continuations that begin differently, row by row."""

    case: Rows
    step: Rows
    decisions: Decisions | Plans | None = None
    greedy: Greedy = False

    def take(self, rows: Any) -> Ways:
        some = None if self.decisions is None else self.decisions.take(rows)
        own = self.greedy if isinstance(self.greedy, bool) else self.greedy[rows]
        return Ways(self.case[rows], self.step[rows], some, own)


@dataclass(frozen=True)
class Going:
    """The failures that go on from some of their steps on some streams, and what has to be executed to know how."""

    received: Array  # (rows, streams, judged agents) as if nobody ever did anything else
    row: Rows  # where somebody does, and which of the continuations that is
    stream: Rows
    of: Rows
    ways: Ways
    at: Rows  # of each continuation: its way, and what it draws from
    drawn: Streams

    def filled(self, executed: Array) -> Array:
        received = self.received.copy()
        received[self.row, self.stream] = executed[self.of]
        return received


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
    ways, of = Ways(case, np.asarray(step, np.int64), decisions, greedy), np.repeat(np.arange(rows), streams)
    received = yield from _on_some(cases, ways, of, drawn.ravel())
    return received.reshape(rows, streams, -1)


def going_on(cases: Cases, drawn: Streams, case: Rows, step: Rows) -> Asking[Array]:
    """What the judged agents receive (rows, streams, judged agents) from these steps on, on the streams that were
    `drawn` for each of all cases. It is known as long as everybody does what it did."""
    going = _going(cases, drawn, case, step)
    return going.filled((yield from _on_some(cases, going.ways, going.at, going.drawn)))


def both_ways(
    cases: Cases, drawn: Streams, case: Rows, step: Rows, of: Rows, decisions: Decisions
) -> Asking[tuple[Array, Array]]:
    """The failures that go on from these steps, and decisions in the cases `of` them, on the streams that were `drawn`
    for each of all cases. They are asked for together, for they may meet."""
    going = _going(cases, drawn, case, step)
    nobody = np.full(len(going.ways.case), -1)
    some = Decisions(*(np.concatenate([nobody, part]) for part in (decisions.step, decisions.agent, decisions.action)))
    ways = Ways(np.concatenate([going.ways.case, of]), np.concatenate([going.ways.step, decisions.step]), some)
    at = np.concatenate([going.at, len(nobody) + np.repeat(np.arange(len(of)), drawn.shape[1])])
    received = yield from _on_some(cases, ways, at, np.concatenate([going.drawn, drawn[of].ravel()]))
    begun = len(going.at)
    return going.filled(received[:begun]), received[begun:].reshape(len(of), drawn.shape[1], -1)


def _going(cases: Cases, drawn: Streams, case: Rows, step: Rows) -> Going:
    streams, steps = drawn.shape[1], cases.episodes.limit + 1
    received = np.repeat(cases.received[case][:, None], streams, axis=1)
    until = np.repeat(step[:, None], streams, axis=1)
    if len(case) and _explores_alone(cases):
        until = _as_before(cases, drawn, case, step)
    row, stream = np.nonzero(until < cases.episodes.length[case][:, None])
    different, of = np.unique((case[row] * steps + until[row, stream]) * streams + stream, return_inverse=True)
    places, stream_of = np.divmod(different, streams)
    begins, at = np.unique(places, return_inverse=True)
    ways = Ways(*np.divmod(begins, steps))
    return Going(received, row, stream, of.ravel(), ways, at.ravel(), drawn[ways.case[at.ravel()], stream_of])


def _as_before(cases: Cases, drawn: Streams, case: Rows, step: Rows) -> Rows:
    """(rows, streams): the first step from these on at which somebody does something else than it did."""
    which, of = np.unique(case, return_inverse=True)
    every = np.repeat(np.arange(len(which)), drawn.shape[1])
    ways = Ways(which, np.zeros(len(which), np.int64))
    random = _explored(cases, ways, every, drawn[which].ravel(), None).reshape(len(which), drawn.shape[1], -1, 1)
    episodes = cases.episodes.take(which)
    own = best_actions(episodes.q, cases.context.team.available).reshape(len(which), 1, -1, 1)
    other = np.where(random >= 0, random, own) != episodes.actions.reshape(own.shape)
    differs = other.reshape(*other.shape[:2], episodes.limit, -1).any(axis=-1)[of.ravel()]
    return _first((differs & (np.arange(episodes.limit) >= step[:, None, None]))[..., None])


def _on_some(cases: Cases, ways: Ways, of: Rows, stream: Streams) -> Asking[Array]:
    """What the judged agents receive (continuations, judged agents), each begun as the way `of` it on its stream."""
    received = np.empty((len(of), cases.received.shape[1]))
    order = np.lexsort((of, cases.together(ways.case, ways.step).argsort()[of]))
    for now in _requests(of[order], min(AT_ONCE, cases.can_remember) if cases.memory is not None else AT_ONCE):
        some = order[now]
        rows, mine = np.unique(of[some], return_inverse=True)
        begun = ways.take(rows)
        ask = _shared if can_share(cases) and _saves(cases, begun, len(some)) else _each
        received[some] = yield from ask(cases, begun, mine.ravel(), stream[some])
    return received


def _requests(of: Rows, most_ways: int) -> list[slice]:
    """Continuations that are executed together: all of a way, unless it has more than one request holds."""
    ends = [*(np.flatnonzero(of[1:] != of[:-1]) + 1).tolist(), len(of)]
    found, begun, ways, last = [], 0, 0, 0
    for end in ends:
        if ways and (end - begun > AT_ONCE or ways == most_ways):
            found.append(slice(begun, last))
            begun, ways = last, 0
        ways, last = ways + 1, end
    return [*found, slice(begun, last)] if last else []


def can_share(cases: Cases) -> bool:
    """With a memory that is known. Without one the engine itself sees who goes on alike, and asks the network once."""
    return cases.memory is not None and _explores_alone(cases)


def _explores_alone(cases: Cases) -> bool:
    """Only who explores by epsilon-greedy does mostly what it would do anyway; and where nothing can be restored all
    steps are executed anyway."""
    context = cases.context
    kind = action_rule(context.team, context.settings).kind
    return kind in ("epsilon_greedy", "greedy") and context.team.task.restorable


def _saves(cases: Cases, ways: Ways, count: int) -> bool:
    """Is it worth while to execute one continuation of each of these ways before the `count` that there are? With a
    memory the network's time is nearly all of it, and a forward pass has CHUNK rows however few are asked for."""
    rule = action_rule(cases.context.team, cases.context.settings)
    if rule.kind == "greedy" or not rule.epsilon:
        return True
    quiet, led = 1 / (rule.epsilon * len(rule.available)), len(ways.case)
    return (count - led) * quiet >= (-led % CHUNK) * float(cases.episodes.limit - ways.step.min())


def _each(cases: Cases, ways: Ways, of: Rows, stream: Streams) -> Asking[Array]:
    all_of_them = ways.take(of)
    return (
        yield from cases.outcomes(
            all_of_them.case, all_of_them.step, stream, all_of_them.decisions, greedy=all_of_them.greedy
        )
    )


def _shared(cases: Cases, ways: Ways, of: Rows, stream: Streams) -> Asking[Array]:
    forced = None
    if ways.decisions is not None:
        forced = ways.decisions.forced(cases, ways.case, np.arange(len(ways.case)))
    random = _explored(cases, ways, of, stream, forced)
    quiet = _quietest(_first(random >= 0), of)
    tests = cases.tests(ways.case, ways.step, stream[quiet], forced, greedy=ways.greedy)
    led = yield Execute(tests, memory=cases.memory is not None)
    leaders = _cases_of(cases, ways.case, led)
    parting = _parting(random, random[quiet][of], led.actions[of])
    parting[quiet] = led.limit
    received = leaders.received[of]
    rows = np.flatnonzero(parting < led.length[of])
    later = ways.decisions if isinstance(ways.decisions, Plans) else None  # one decision is taken before they part
    parted = replace(ways, decisions=later).take(of[rows])
    received[rows] = yield from leaders.outcomes(
        of[rows], parting[rows], stream[rows], parted.decisions, greedy=parted.greedy
    )
    return received


def _quietest(first: Rows, of: Rows) -> Rows:
    """Of each way the continuation that explores last; there is at least one of each."""
    order = np.lexsort((np.arange(len(of)), -first, of))
    return order[np.unique(of[order], return_index=True)[1]]


def _explored(cases: Cases, ways: Ways, of: Rows, stream: Streams, forced: Explored | None) -> Explored:
    """(continuations, steps, agents), nothing where it does not count: before the continuation begins, where another
    action is forced, and of agents that do not explore."""
    context, begin = cases.context, int(np.min(ways.step, initial=cases.episodes.limit))
    steps, rule = np.arange(begin, cases.episodes.limit), action_rule(context.team, context.settings)
    random = np.full((len(of), *cases.episodes.actions.shape[1:]), -1, np.int16)
    if rule.kind == "greedy" or ways.greedy is True:
        return random
    at = steps + cases.episodes.shift[ways.case[of]][:, None]
    drawn = np.broadcast_to(stream[:, None], at.shape)
    random[:, begin:] = explored(drawn.ravel(), at.ravel(), rule).reshape(*at.shape, -1)
    never = (np.arange(random.shape[1]) < ways.step[:, None])[:, :, None]
    if forced is not None:
        never = never | (forced >= 0)
    if not isinstance(ways.greedy, bool):
        never = never | ways.greedy[:, None]
    return np.where(never[of], -1, random).astype(np.int16)


def _first(holds: NDArray[np.bool_]) -> Rows:
    """The first step at which it holds of some agent (..., steps, agents); the number of steps where it never does."""
    some: NDArray[np.bool_] = np.asarray(holds.any(axis=-1))
    first: Rows = np.where(some.any(axis=-1), some.argmax(axis=-1), some.shape[-1])
    return first


def _parting(random: Explored, leader: Explored, does: NDArray[np.int16]) -> Rows:
    """The first step at which a stream may give another joint action than its leader did."""
    return _first(np.where(random >= 0, random != does, leader >= 0))


def _cases_of(cases: Cases, case: Rows, led: Episodes) -> Cases:
    """These episodes, as something that can be continued: the failures' own where they ask who they are."""
    led = replace(led, id=cases.episodes.id[case])
    nothing = np.empty((*led.actions.shape, 0), np.float32)
    past = replace(led.take(slice(None)), q=nothing, obs=nothing, states=led.states[..., :0])
    return with_memory_of(led, Cases(cases.context, led, past, cases.context.judge.received(led.rewards)))
