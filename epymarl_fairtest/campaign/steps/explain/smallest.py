"""The smallest example of a failure, and the nearest start that is fair: two tests to put side by side.

Smaller means: without the parent's steps, without the perturbation, without what does not matter, in round numbers and
without exploration, as long as it stays unfair in at least three quarters of fresh executions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.campaign.steps.contract import Execute
from epymarl_fairtest.campaign.steps.explain.cases import AT_ONCE, Asking, Cases
from epymarl_fairtest.campaign.steps.replay import agrees
from epymarl_fairtest.core.episodes import Episodes, Tests, operator_code

MOSTLY = 0.75  # share of fresh executions that are unfair in a smallest example, and fair in the nearest fair start
STREAMS = 16
SURE = 32  # other streams, on which the result is measured
PASSES = 3  # of all simplifications
SCALES = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8)  # of moves towards a fair start, in units of what can be drawn
MOVES = 16  # of each scale
Array = NDArray[np.float64]


@dataclass
class Example:
    """A start that is still unfair, while it gets simpler."""

    case: int
    state: Array
    origin: str
    edits: list[str]
    p_unfair: float = 1.0
    greedy: bool = False  # is it unfair without exploration?
    stream: int = 0  # the exploration of the test where it needs some
    fair: Array | None = None  # the nearest start that is fair
    distance: float = 0.0
    p_fair_start: float = 0.0


def smallest_examples(cases: Cases, which: Sequence[int]) -> Asking[tuple[dict[int, dict[str, Any]], list[Episodes]]]:
    """By case, as explain.json tells it; and their episodes, each followed by that of its fair neighbour."""
    task = cases.context.team.task
    if not task.restorable or not len(which):
        return {}, []
    examples = yield from _beginnings(cases, which)
    for _ in range(PASSES):
        yield from _simplified(cases, examples)
    yield from _measured(cases, examples)
    examples = [one for one in examples if one.p_unfair >= MOSTLY]
    if task.proposable:
        yield from _nearest_fair(cases, examples)
    return (yield from _entries(cases, examples))


def tests_of(cases: Cases, states: Array, case: Any, stream: Any, *, greedy: Any = None) -> Tests:
    """Episodes that begin with these states, at step 0."""
    count = len(states)
    return Tests(
        root_seed=cases.episodes.root_seed[case],
        stream=np.asarray(stream, np.uint64),
        shift=np.zeros(count, np.int32),
        start_step=np.zeros(count, np.int32),
        start_state=cases.context.team.task.as_read(states),
        operator=np.full(count, operator_code("state"), np.int8),
        parent=cases.episodes.id[case],
        greedy=None if greedy is None else np.repeat(greedy[:, None], cases.episodes.actions.shape[-1], axis=1),
    )


def _unfair(cases: Cases, states: Array, case: NDArray[np.int64], what: str, streams: int) -> Asking[Array]:
    """P(unfair) of these starts, each of which belongs to a case; one that nothing can begin with is never unfair."""
    allowed = np.flatnonzero(cases.context.team.task.is_start(states)) if len(states) else np.empty(0, np.int64)
    share = np.zeros(len(states))
    drawn = cases.streams(what, streams)
    for first in range(0, len(allowed), AT_ONCE // streams):
        rows = allowed[first : first + AT_ONCE // streams]
        of = np.repeat(rows, streams)
        episodes = yield Execute(tests_of(cases, states[of], case[of], drawn[case[rows]].ravel()), course=False)
        unfair = cases.context.judge.unfair(cases.context.judge.received(episodes.rewards))
        share[rows] = unfair.reshape(-1, streams).mean(axis=1)
    return share


def _beginnings(cases: Cases, which: Sequence[int]) -> Asking[list[Example]]:
    """The simplest start of each case that is unfair often enough; a case without one has no smallest example."""
    episodes = cases.episodes
    case = np.array(which, np.int64)
    first, changed = episodes.states[case, 0], episodes.states[case, episodes.start_step[case]]
    p_first = yield from _unfair(cases, first, case, "shrink", STREAMS)
    p_changed = yield from _unfair(cases, changed, case, "shrink", STREAMS)
    examples = []
    for n, number in enumerate(which):
        later = int(episodes.start_step[number])
        if p_first[n] >= MOSTLY:
            examples.append(Example(number, first[n], "its first state, nothing changed" if later else "its start", []))
        elif later and p_changed[n] >= MOSTLY:
            examples.append(Example(number, changed[n], f"its state at step {later}, as a start", []))
    return examples


def _simplified(cases: Cases, examples: Sequence[Example]) -> Asking[None]:
    """Every simplification by itself; then as many together as leave it unfair, the least harmful first."""
    every = cases.context.team.task.simplifications()
    tried = [
        (example, edit, changed)
        for example in examples
        for edit in every
        if not np.array_equal(changed := edit.apply(example.state), example.state)
    ]
    p = yield from _of(cases, [(example, state) for example, _, state in tried])
    chains = []
    for example in examples:
        mine = [(n, tried[n][1]) for n in range(len(tried)) if tried[n][0] is example and p[n] >= MOSTLY]
        state, words = example.state, list(example.edits)
        for _, edit in sorted(mine, key=lambda one: (-p[one[0]], one[0])):
            changed = edit.apply(state)
            if not np.array_equal(changed, state):
                state, words = changed, [*words, edit.words]
                chains.append((example, state, words))
    p = yield from _of(cases, [(example, state) for example, state, _ in chains])
    for (example, state, words), share in zip(chains, p, strict=True):
        if share >= MOSTLY:  # a chain only grows: the last one that is unfair is the simplest
            example.state, example.edits = state, words


def _of(cases: Cases, starts: Sequence[tuple[Example, Array]]) -> Asking[Array]:
    if not starts:
        return np.empty(0)
    states = np.array([state for _, state in starts])
    return (yield from _unfair(cases, states, np.array([one.case for one, _ in starts]), "shrink", STREAMS))


def _measured(cases: Cases, examples: Sequence[Example]) -> Asking[None]:
    """On other streams than those that chose it; and once without exploration."""
    if not examples:
        return
    states, case = np.array([one.state for one in examples]), np.array([one.case for one in examples])
    share = yield from _unfair(cases, states, case, "smallest", SURE)
    judge, drawn = cases.context.judge, cases.streams("smallest", SURE)
    quiet = yield Execute(tests_of(cases, states, case, drawn[case, 0], greedy=np.ones(len(case), bool)))
    loud = yield Execute(tests_of(cases, states.repeat(SURE, axis=0), case.repeat(SURE), drawn[case].ravel()))
    unfair = judge.unfair(judge.received(loud.rewards)).reshape(-1, SURE)
    greedy = judge.unfair(judge.received(quiet.rewards))
    for n, example in enumerate(examples):
        example.p_unfair, example.greedy = float(share[n]), bool(greedy[n])
        example.stream = int(drawn[example.case, unfair[n].argmax()])


def _nearest_fair(cases: Cases, examples: Sequence[Example]) -> Asking[None]:
    """Among random moves of one body or of all, the shortest one to a start that is mostly fair."""
    moved = [_moves(cases, example) for example in examples]
    starts = [(example, state) for example, (states, _) in zip(examples, moved, strict=True) for state in states]
    p = yield from _of(cases, starts)
    close, first = [], 0
    for example, (states, far) in zip(examples, moved, strict=True):
        mine = p[first : first + len(states)]
        first += len(states)
        fair = [n for n in np.argsort(far, kind="stable") if mine[n] <= 1 - MOSTLY][:8]
        close += [(example, states[n], float(far[n])) for n in fair]
    if not close:
        return
    owner = np.array([one.case for one, _, _ in close])
    p = yield from _unfair(cases, np.array([state for _, state, _ in close]), owner, "fair", SURE)
    for (example, state, away), share in zip(close, p, strict=True):
        if share <= 1 - MOSTLY and example.fair is None:
            example.fair, example.distance, example.p_fair_start = state, away, float(share)


def _moves(cases: Cases, example: Example) -> tuple[Array, Array]:
    """Starts around an example, and how far each is from it."""
    task = cases.context.team.task
    generator = cases.context.generator("explain", "fair", int(cases.episodes.id[example.case]))
    vector = task.start_vectors(task.as_read(example.state[None]))
    noise = generator.normal(size=(len(SCALES) * MOVES, vector.shape[1])) * np.repeat(SCALES, MOVES)[:, None]
    pairs = (np.arange(vector.shape[1]) // 2)[None]
    alone = generator.integers(0, pairs.max() + 1, (len(noise), 1)) == pairs
    noise = np.where((np.arange(len(noise)) % 2 == 0)[:, None] & ~alone, 0.0, noise)
    states, _ = task.starts_from(vector + noise)  # an example need not keep a reset's rules, nor need its neighbour
    far = np.linalg.norm(task.start_vectors(states) - vector, axis=1)
    keeps = task.is_start(states) & (far > 0)
    return states[keeps], far[keeps]


def _entries(cases: Cases, examples: Sequence[Example]) -> Asking[tuple[dict[int, dict[str, Any]], list[Episodes]]]:
    """Executed by the run's engine and in the real environment: the same, or it is said."""
    entries: dict[int, dict[str, Any]] = {}
    shown: list[Episodes] = []
    for one in examples:
        states = np.array([one.state] + ([] if one.fair is None else [one.fair]))
        case, stream = np.full(len(states), one.case), np.full(len(states), one.stream, np.uint64)
        tests = tests_of(cases, states, case, stream, greedy=np.full(len(states), one.greedy))
        ours = yield Execute(tests)
        theirs = yield Execute(tests, real=True)
        shown.append(ours)
        entries[one.case] = {
            "origin": one.origin,
            "edits": one.edits,
            "p_unfair": one.p_unfair,
            "greedy": one.greedy,
            "stream": str(one.stream),
            "state": tests.start_state[0].tolist(),
            "confirmed": bool(agrees(ours, theirs).all()),
            "unfair": bool(cases.context.judge(theirs).unfair[0]),
            "nearest_fair": None
            if one.fair is None
            else {"state": tests.start_state[1].tolist(), "p_unfair": one.p_fair_start, "distance": one.distance},
        }
    return entries, shown
