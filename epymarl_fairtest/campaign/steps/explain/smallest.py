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
from epymarl_fairtest.campaign.steps.explain.abreast import abreast
from epymarl_fairtest.campaign.steps.explain.cases import AT_ONCE, Asking, Cases
from epymarl_fairtest.campaign.steps.replay import agrees
from epymarl_fairtest.core.episodes import Episodes, Tests, operator_code
from epymarl_fairtest.team.contract import CHUNK

MOSTLY = 0.75  # share of fresh executions that are unfair in a smallest example, and fair in the nearest fair start
ROUNDS = (6, 10, 16)  # streams after each round; a start that cannot be what is wanted any more is left
SURE = (10, 18, 32)  # of other streams, on which the result is measured
PASSES = 3  # of all simplifications
SCALES = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8)  # of moves towards a fair start, in units of what can be drawn
MOVES = 16  # of each scale
NEAREST = 24  # moves of an example that are looked at together, the shortest first
FAIR = 8  # fair ones of them, on the streams that chose them, that may be the nearest
Array = NDArray[np.float64]
Start = tuple[int, Array]  # the case that it belongs to, and the state


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
    changed = examples
    for _ in range(PASSES):
        changed = yield from _simplified(cases, changed)
    examples = yield from _measured(cases, examples)
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


def _unfair(cases: Cases, starts: Sequence[Start], what: str, streams: range) -> Asking[NDArray[np.bool_]]:
    """(starts, streams) which executions are unfair; of a start that nothing can begin with none is."""
    case = np.array([number for number, _ in starts], np.int64)
    states = np.array([state for _, state in starts]).reshape(len(starts), -1)
    allowed = np.flatnonzero(cases.context.team.task.is_start(states)) if len(states) else np.empty(0, np.int64)
    found = np.zeros((len(states), len(streams)), bool)
    drawn = cases.streams(what, streams.stop)[:, streams.start :]
    for first in range(0, len(allowed), AT_ONCE // len(streams)):
        rows = allowed[first : first + AT_ONCE // len(streams)]
        of = np.repeat(rows, len(streams))
        episodes = yield Execute(tests_of(cases, states[of], case[of], drawn[case[rows]].ravel()), course=False)
        unfair = cases.context.judge.unfair(cases.context.judge.received(episodes.rewards))
        found[rows] = unfair.reshape(len(rows), -1)
    return found


def _mostly(
    cases: Cases, starts: Sequence[Start], what: str, rounds: Sequence[int] = ROUNDS, *, fair: bool = False
) -> Asking[NDArray[np.bool_]]:
    """(starts, streams) which executions are unfair, as long as most of a start's may be so or, if that is wanted,
    `fair`; where they cannot be all are the other way."""
    found = np.full((len(starts), rounds[-1]), fair)
    on, against = np.arange(len(starts)), np.zeros(len(starts), np.int64)
    most = int((1 - MOSTLY) * rounds[-1])
    first = 0
    for last in rounds:
        if _chunks(len(on) * (rounds[-1] - first)) <= _chunks(len(on) * (last - first)) + 1:
            last = rounds[-1]  # what is left for another round takes a chunk at least
        if len(on) and first < last:
            now = yield from _unfair(cases, [starts[n] for n in on.tolist()], what, range(first, last))
            found[on, first:last] = now
            against[on] += (now == fair).sum(axis=1)
            found[on[against[on] > most]] = fair
            on, first = on[against[on] <= most], last
    return found


def _chunks(executions: int) -> int:
    return -(-executions // CHUNK)


def _beginnings(cases: Cases, which: Sequence[int]) -> Asking[list[Example]]:
    """The simplest start of each case that is unfair often enough; a case without one has no smallest example."""
    episodes = cases.episodes
    case = np.array(which, np.int64)
    first, changed = episodes.states[case, 0], episodes.states[case, episodes.start_step[case]]
    starts = [*zip(which, first, strict=True), *zip(which, changed, strict=True)]
    unfair = yield from _mostly(cases, starts, "shrink")
    p_first, p_changed = unfair.mean(axis=1).reshape(2, -1)
    examples = []
    for n, number in enumerate(which):
        later = int(episodes.start_step[number])
        if p_first[n] >= MOSTLY:
            examples.append(Example(number, first[n], "its first state, nothing changed" if later else "its start", []))
        elif later and p_changed[n] >= MOSTLY:
            examples.append(Example(number, changed[n], f"its state at step {later}, as a start", []))
    return examples


def _simplified(cases: Cases, examples: Sequence[Example]) -> Asking[list[Example]]:
    """Every simplification by itself; then as many together as leave it unfair, the least harmful first. Those that
    got simpler: of the others another pass would say the same."""
    every = cases.context.team.task.simplifications()
    tried = [
        (example, edit, changed)
        for example in examples
        for edit in every
        if not np.array_equal(changed := edit.apply(example.state), example.state)
    ]
    unfair = yield from _mostly(cases, [(example.case, state) for example, _, state in tried], "shrink")
    p = unfair.mean(axis=1)
    chains = []
    for example in examples:
        mine = [(n, tried[n][1]) for n in range(len(tried)) if tried[n][0] is example and p[n] >= MOSTLY]
        state, words = example.state, list(example.edits)
        for _, edit in sorted(mine, key=lambda one: (-p[one[0]], one[0])):
            changed = edit.apply(state)
            if not np.array_equal(changed, state):
                state, words = changed, [*words, edit.words]
                chains.append((example, state, words))
    unfair = yield from _mostly(cases, [(example.case, state) for example, state, _ in chains], "shrink")
    simpler: list[Example] = []
    for (example, state, words), share in zip(chains, unfair.mean(axis=1), strict=True):
        if share >= MOSTLY:  # a chain only grows: the last one that is unfair is the simplest
            example.state, example.edits = state, words
            simpler += [] if simpler[-1:] == [example] else [example]
    return simpler


def _measured(cases: Cases, examples: Sequence[Example]) -> Asking[list[Example]]:
    """Those that are mostly unfair on other streams than those that chose them; and once without exploration."""
    if not examples:
        return []
    starts = [(one.case, one.state) for one in examples]
    unfair, greedy = yield from abreast(_mostly(cases, starts, "smallest", SURE), _unexplored(cases, examples))
    drawn = cases.streams("smallest", SURE[-1])
    left = []
    for n in np.flatnonzero(unfair.mean(axis=1) >= MOSTLY).tolist():
        example = examples[n]
        example.p_unfair, example.greedy = float(unfair[n].mean()), bool(greedy[n])
        example.stream = int(drawn[example.case, unfair[n].argmax()])
        left.append(example)
    return left


def _unexplored(cases: Cases, examples: Sequence[Example]) -> Asking[NDArray[np.bool_]]:
    """Which are unfair without exploration?"""
    states, case = np.array([one.state for one in examples]), np.array([one.case for one in examples])
    drawn, never = cases.streams("smallest", 1)[case, 0], np.ones(len(case), bool)
    episodes = yield Execute(tests_of(cases, states, case, drawn, greedy=never), course=False)
    return cases.context.judge.unfair(cases.context.judge.received(episodes.rewards))


def _nearest_fair(cases: Cases, examples: Sequence[Example]) -> Asking[None]:
    """Among random moves of one body or of all, the shortest one to a start that is mostly fair."""
    moved, close = [_moves(cases, example) for example in examples], [0] * len(examples)
    for first in range(0, len(SCALES) * MOVES, NEAREST):
        wanted = [n for n, one in enumerate(examples) if one.fair is None and close[n] < FAIR]
        now = [(n, *move) for n in wanted for move in moved[n][first : first + NEAREST]]
        unfair = yield from _mostly(cases, [(examples[n].case, state) for n, state, _ in now], "shrink", fair=True)
        fair = [move for move, share in zip(now, unfair.mean(axis=1), strict=True) if share <= 1 - MOSTLY]
        mine = [[move for move in fair if move[0] == n][: FAIR - close[n]] for n in wanted]
        for some in (slice(0, 2), slice(2, FAIR)):  # mostly one of the first holds on other streams, too
            yield from _surely_fair(cases, examples, [move for moves in mine for move in moves[some]])
        for n, moves in zip(wanted, mine, strict=True):
            close[n] += len(moves)


def _surely_fair(cases: Cases, examples: Sequence[Example], moves: Sequence[tuple[int, Array, float]]) -> Asking[None]:
    """Gives examples that have none yet the first of their moves that is mostly fair on other streams, too."""
    left = [(examples[n], state, away) for n, state, away in moves if examples[n].fair is None]
    unfair = yield from _mostly(cases, [(one.case, state) for one, state, _ in left], "fair", SURE, fair=True)
    for (example, state, away), share in zip(left, unfair.mean(axis=1), strict=True):
        if share <= 1 - MOSTLY and example.fair is None:
            example.fair, example.distance, example.p_fair_start = state, away, float(share)


def _moves(cases: Cases, example: Example) -> list[tuple[Array, float]]:
    """Starts around an example, the nearest first, and how far each is from it."""
    task = cases.context.team.task
    generator = cases.context.generator("explain", "fair", int(cases.episodes.id[example.case]))
    vector = task.start_vectors(task.as_read(example.state[None]))
    noise = generator.normal(size=(len(SCALES) * MOVES, vector.shape[1])) * np.repeat(SCALES, MOVES)[:, None]
    pairs = (np.arange(vector.shape[1]) // 2)[None]
    alone = generator.integers(0, pairs.max() + 1, (len(noise), 1)) == pairs
    noise = np.where((np.arange(len(noise)) % 2 == 0)[:, None] & ~alone, 0.0, noise)
    states, _ = task.starts_from(vector + noise)  # an example need not keep a reset's rules, nor need its neighbour
    far = np.linalg.norm(task.start_vectors(states) - vector, axis=1)
    keeps = np.flatnonzero(task.is_start(states) & (far > 0))
    return [(states[n], float(far[n])) for n in keeps[np.argsort(far[keeps], kind="stable")]]


def _entries(cases: Cases, examples: Sequence[Example]) -> Asking[tuple[dict[int, dict[str, Any]], list[Episodes]]]:
    """Executed by the run's engine and in the real environment: the same, or it is said."""
    if not examples:
        return {}, []
    rows = [(one, state) for one in examples for state in (one.state, one.fair) if state is not None]
    states, case = np.array([state for _, state in rows]), np.array([one.case for one, _ in rows])
    stream, greedy = np.array([one.stream for one, _ in rows], np.uint64), np.array([one.greedy for one, _ in rows])
    tests = tests_of(cases, states, case, stream, greedy=greedy)
    ours = yield Execute(tests)
    theirs = yield Execute(tests, real=True)
    confirmed, unfair = agrees(ours, theirs), cases.context.judge(theirs).unfair
    entries: dict[int, dict[str, Any]] = {}
    shown: list[Episodes] = []
    for one in examples:
        mine = np.flatnonzero(case == one.case)
        small, *fair = mine.tolist()
        shown.append(ours.take(mine))
        entries[one.case] = {
            "origin": one.origin,
            "edits": one.edits,
            "p_unfair": one.p_unfair,
            "greedy": one.greedy,
            "stream": str(one.stream),
            "state": tests.start_state[small].tolist(),
            "confirmed": bool(confirmed[mine].all()),
            "unfair": bool(unfair[small]),
            "nearest_fair": {
                "state": tests.start_state[fair[0]].tolist(), "p_unfair": one.p_fair_start, "distance": one.distance
            } if fair else None,
        }  # fmt: skip
    return entries, shown
