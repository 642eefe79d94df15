"""Crossover and mutation on recorded episodes: the tests to execute, and splices of what was recorded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core.episodes import Episodes, Tests, operator_code
from epymarl_fairtest.predictor.abstraction import joint_states
from epymarl_fairtest.tasks.contract import Task

Rows = NDArray[np.int64]
Draw = Callable[[int], Rows]
"""Draws that many parents (rows) from the population."""

RESTARTS = 50
"""Draws before the rest of a batch is given up: a partner or a legal perturbation may not exist."""


def mutate(population: Episodes, draw: Draw, count: int, task: Task, rng: np.random.Generator) -> tuple[Tests, int]:
    """Restore a parent at a random step, perturb the agents under test, and let the team go on.

    Gives the tests and how many mutations no environment would accept. A task that cannot be restored
    replays the parent's actions up to the step, and only the exploration after it is new.
    """
    parents, steps, states, missing = [], [], [], count
    for _ in range(RESTARTS):
        parent = draw(missing)
        step = random_step(population.length[parent], rng, first=0)
        state = population.states[parent, step]
        accepted = np.ones(len(parent), bool)
        if task.restorable:
            state, accepted = task.perturb(state, rng)
        parents.append(parent[accepted])
        steps.append(step[accepted])
        states.append(state[accepted])
        missing -= int(accepted.sum())
        if not missing:
            break
    parent, step = np.concatenate(parents), np.concatenate(steps)
    stream = rng.integers(0, 2**64, len(parent), dtype=np.uint64)
    tests = continuation(population.take(parent), step, np.concatenate(states), stream, 0 * step, "mutation", task)
    return tests, missing


def continuation(
    parents: Episodes, step: Rows, state: NDArray[np.float64], stream: NDArray[np.uint64], shift: Rows,
    operator: str, task: Task,
) -> Tests:  # fmt: skip
    """Tests that follow each parent up to `step` and go on from `state` with new exploration."""
    tests = Tests(
        root_seed=parents.root_seed,
        stream=stream,
        shift=shift.astype(np.int32),
        start_step=step.astype(np.int32),
        start_state=state,
        operator=np.full(len(parents), operator_code(operator), np.int8),
        parent=parents.id,
        prefix=parents,
    )
    if task.restorable:
        return tests
    before = np.arange(parents.limit)[None, :, None] < step[:, None, None]
    tests.forced = np.where(before, parents.actions, -1).astype(np.int16)
    tests.start_step, tests.prefix = np.zeros_like(tests.start_step), None
    tests.start_state = np.full_like(state, np.nan)
    return tests


def random_step(length: NDArray[np.int32], rng: np.random.Generator, first: int) -> Rows:
    """A step of each episode, every one from `first` to the last with equal probability."""
    return first + (rng.random(len(length)) * (length - first)).astype(np.int64)


@dataclass(frozen=True)
class Splices:
    """Crossover children: the sequences as recorded, and the tests that execute them for real."""

    episodes: Episodes
    tests: Tests

    def take(self, rows: Rows) -> Splices:
        return Splices(self.episodes.take(rows), self.tests.take(rows))


def crossover(
    population: Episodes, draw: Draw, pairs: int, d: float, task: Task, rng: np.random.Generator
) -> tuple[Splices, int]:
    """Join two episodes at steps with the same joint abstract state, both ways.

    Gives 2 children per pair, and the number of pairs for which no partner was found. Each child's test
    restores the first parent at the joint and continues with the second parent's exploration.
    """

    def cut(row: Rows) -> Rows:
        return random_step(population.length[row], rng, first=1)

    def fits(one: Rows, at_one: Rows, two: Rows, at_two: Rows) -> NDArray[np.bool_]:
        return at_one < population.length[one]  # an episode of one step cannot be cut

    joints, missing = matching_pairs(population, d, draw, pairs, cut, fits, rng)
    return Splices(splice(population, *joints), continued_splices(population, *joints, task)), missing


def matching_pairs(
    population: Episodes, d: float, draw: Draw, pairs: int,
    cut: Callable[[Rows], Rows], fits: Callable[[Rows, Rows, Rows, Rows], NDArray[np.bool_]],
    rng: np.random.Generator,
) -> tuple[tuple[Rows, Rows, Rows, Rows], int]:  # fmt: skip
    """Where to join episodes: rows and steps of the first parents and of the second, every pair both ways.

    `cut` draws a step of each first parent, `fits` says which pairs of steps may be joined. Also gives the number of
    pairs for which no partner was found.
    """
    index, missing = Joints(population, d), pairs
    chosen: list[list[Rows]] = []
    for _ in range(RESTARTS):
        one = draw(missing)
        at_one = cut(one)
        two, at_two = index.partner(one, at_one, rng)
        usable = (two >= 0) & fits(one, at_one, two, at_two)
        chosen.append([column[usable] for column in (one, at_one, two, at_two)])
        missing -= int(usable.sum())
        if not missing:
            break
    one, at_one, two, at_two = (np.concatenate(column) for column in zip(*chosen, strict=True))
    both_ways = ((one, two), (at_one, at_two), (two, one), (at_two, at_one))
    first, at_first, second, at_second = (np.concatenate(columns) for columns in both_ways)
    return (first, at_first, second, at_second), missing


class Joints:
    """Index from a joint abstract state to the steps of the population that are in it."""

    def __init__(self, population: Episodes, d: float) -> None:
        running = population.running
        rows, steps = np.nonzero(running)
        names = joint_states(population.q[running], d)
        order = np.argsort(names, kind="stable")
        self._names, self._rows, self._steps = names[order], rows[order], steps[order]
        self._name_at = np.zeros(running.shape, np.uint64)
        self._name_at[running] = names

    def partner(self, row: Rows, step: Rows, rng: np.random.Generator) -> tuple[Rows, Rows]:
        """Another episode and its step with the same state, drawn evenly; -1 where the draw found none."""
        name = self._name_at[row, step]
        first = np.searchsorted(self._names, name, "left")
        last = np.searchsorted(self._names, name, "right")
        at = first + (rng.random(len(row)) * (last - first)).astype(np.int64)
        at = np.minimum(at, len(self._names) - 1)
        other, where = self._rows[at], self._steps[at]
        return np.where(other == row, -1, other), where


def splice(population: Episodes, one: Rows, at_one: Rows, two: Rows, at_two: Rows) -> Episodes:
    """The recorded prefix of `one` before its step, then the recorded suffix of `two` from its step."""
    limit = population.limit
    length = np.minimum(at_one + population.length[two] - at_two, limit).astype(np.int32)
    row, step = origins(limit, one, at_one, two, at_two)
    t = np.arange(limit + 1)[None, :]
    running = t[:, :-1] < length[:, None]
    child = population.take(one)
    for name in ("obs", "actions", "rewards", "q"):
        values = getattr(population, name)[row[:, :-1], np.minimum(step[:, :-1], limit - 1)]
        values[~running] = -1 if name == "actions" else 0
        setattr(child, name, values)
    child.states = population.states[row, step]
    child.states[t > length[:, None]] = 0
    child.length = length
    child.start_step = at_one.astype(np.int32)
    child.operator = np.full(len(one), operator_code("crossover"), np.int8)
    child.parent, child.id = population.id[one], np.full(len(one), -1, np.int64)
    return child


def origins(limit: int, one: Rows, at_one: Rows, two: Rows, at_two: Rows) -> tuple[Rows, Rows]:
    """Whose step each step of a splice is, and which: rows and steps (B, limit + 1)."""
    t = np.arange(limit + 1)[None, :]
    inherited = t < at_one[:, None]
    row = np.where(inherited, one[:, None], two[:, None])
    return row, np.where(inherited, t, np.clip(t - at_one[:, None] + at_two[:, None], 0, limit))


def continued_splices(population: Episodes, one: Rows, at_one: Rows, two: Rows, at_two: Rows, task: Task) -> Tests:
    """The tests that execute splices: `one` restored at its step, then `two`'s exploration from its own."""
    return continuation(
        population.take(one),
        at_one,
        population.states[one, at_one],
        population.stream[two],
        at_two - at_one + population.shift[two],
        "crossover",
        task,
    )
