"""Tests and the episodes they give: batches as structs of arrays. Pure numpy; knows no environment.

Shapes: B rows, T the time limit, N agents, A actions, S numbers of physical state, D of observation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core import lent

OPERATORS = ("seed", "state", "mutation", "crossover", "action")
"""How a test was made: a seeded reset, a given initial state, the paper's operators, forced actions."""


def operator_code(name: str) -> int:
    return OPERATORS.index(name)


@dataclass
class Episodes:
    """Executed episodes. Rows hold `length` steps; what comes after is zero (actions: -1)."""

    states: NDArray[np.float64]  # (B, T+1, S); row t is the state before step t, row `length` the last
    obs: NDArray[np.float32]  # (B, T, N, D)
    actions: NDArray[np.int16]  # (B, T, N)
    rewards: NDArray[np.float64]  # (B, T, N), the allocation
    q: NDArray[np.float32]  # (B, T, N, A)
    length: NDArray[np.int32]  # (B,)
    # lineage
    root_seed: NDArray[np.int64]  # (B,) seed of the initial state the episode descends from
    stream: NDArray[np.uint64]  # (B,) stream of exploration randomness
    shift: NDArray[np.int32]  # (B,) step t draws from the stream at t + shift
    start_step: NDArray[np.int32]  # (B,) first step that was executed; earlier ones are the parent's
    operator: NDArray[np.int8]  # (B,) index into OPERATORS
    parent: NDArray[np.int64]  # (B,) id of the parent episode, -1 for none
    id: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))  # given by the campaign

    def __len__(self) -> int:
        return len(self.length)

    @property
    def limit(self) -> int:
        steps: int = self.actions.shape[1]
        return steps

    @property
    def running(self) -> NDArray[np.bool_]:
        """(B, T): the steps there are."""
        return np.arange(self.limit) < self.length[:, None]

    def take(self, rows: Any) -> Episodes:
        """The episodes at `rows`: copies for indices or a mask, views for a slice."""
        return Episodes(**{f.name: getattr(self, f.name)[rows] for f in fields(Episodes)})

    @staticmethod
    def concatenate(parts: Sequence[Episodes]) -> Episodes:
        return Episodes(**{f.name: np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(Episodes)})

    def answer(self, tests: Tests) -> bool:
        """Are these the episodes of these tests, by where they begin and what they draw from?"""
        lineage = ("root_seed", "stream", "shift", "start_step", "operator", "parent")
        return all(np.array_equal(getattr(self, name), getattr(tests, name)) for name in lineage)

    def executed_steps(self) -> int:
        """Environment steps these episodes cost; a kept prefix cost nothing again."""
        return int((self.length - self.start_step).sum())


@dataclass(kw_only=True)
class Remembered(Episodes):
    """Episodes, with what the agents carry into each step. Too much to be kept for long: some of them are Episodes."""

    memory: NDArray[np.float32]  # (B, T+1, N, H); zero where nothing was executed


def empty_episodes(
    tests: Tests, *, limit: int, agents: int, actions: int, state_size: int, obs_size: int, stale: bool = False
) -> Episodes:
    """Episodes ready to be filled by an engine, the kept prefixes already in place. All but actions may be `stale`:
    then the engine must write or clear every step."""
    b, room = len(tests), lent.empty if stale else np.zeros
    episodes = Episodes(
        states=room((b, limit + 1, state_size), np.float64),
        obs=room((b, limit, agents, obs_size), np.float32),
        actions=np.full((b, limit, agents), -1, np.int16),
        rewards=room((b, limit, agents), np.float64),
        q=room((b, limit, agents, actions), np.float32),
        length=np.zeros(b, np.int32),
        root_seed=tests.root_seed.copy(),
        stream=tests.stream.copy(),
        shift=tests.shift.copy(),
        start_step=tests.start_step.copy(),
        operator=tests.operator.copy(),
        parent=tests.parent.copy(),
        id=np.full(b, -1, np.int64),
    )
    if tests.prefix is not None:
        kept = np.arange(limit)[None, :] < tests.start_step[:, None]
        for name in ("obs", "actions", "rewards", "q"):
            to, held = getattr(episodes, name), getattr(tests.prefix, name)
            if to.shape[-1] and held.shape[-1]:  # what agents saw is there only where somebody needs it
                np.copyto(to, held, where=kept.reshape(*kept.shape, *[1] * (to.ndim - 2)))
        if state_size and tests.prefix.states.shape[-1]:  # nor are states, where nobody will look at the episode
            np.copyto(episodes.states[:, :-1], tests.prefix.states[:, :-1], where=kept[:, :, None])
    return episodes


@dataclass
class Tests:
    """A batch of tests. A test is a value: the same test gives the same episode, bit for bit.

    A row starts from its seed (`start_state` NaN) or from `start_state` at step `start_step`. With
    start_step > 0 the earlier steps are those of `prefix`, row by row: they are kept, not executed,
    and the policy's hidden state is what it was after them: computed again, unless `memory` says it.
    Where many continue the same few episodes, `of` says which row of `prefix` is whose.
    """

    root_seed: NDArray[np.int64]
    stream: NDArray[np.uint64]
    shift: NDArray[np.int32]
    start_step: NDArray[np.int32]
    start_state: NDArray[np.float64]  # (B, S)
    operator: NDArray[np.int8]
    parent: NDArray[np.int64]
    forced: NDArray[np.int16] | None = None  # (B, T, N); -1 lets the policy choose
    greedy: NDArray[np.bool_] | None = None  # (B, N) agents that take their best actions and never explore
    prefix: Episodes | None = None
    memory: NDArray[np.float32] | None = None  # (B, N, H) what the agents carry into `start_step`, where it is known
    at_start: NDArray[np.int16] | None = None  # (B, N) forced at `start_step`, whatever `forced` says; -1: it is not
    of: NDArray[np.int64] | None = None  # (B,) rows of `prefix`; None: each has its own

    __test__ = False  # the name is the paper's, not pytest's

    def __len__(self) -> int:
        return len(self.root_seed)

    @property
    def from_seed(self) -> NDArray[np.bool_]:
        fresh: NDArray[np.bool_] = np.isnan(self.start_state).any(axis=1) | (self.start_state.shape[1] == 0)
        return fresh

    def take(self, rows: Any) -> Tests:
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        prefix = values.pop("prefix")
        taken: dict[str, Any] = {k: None if v is None else v[rows] for k, v in values.items()}
        return Tests(**taken, prefix=prefix if prefix is None or self.of is not None else prefix.take(rows))

    def plain(self, limit: int) -> Tests:
        """The same tests, with a prefix each and everything that is forced in `forced`."""
        tests = self
        if self.prefix is not None and self.of is not None:
            tests = replace(tests, prefix=self.prefix.take(self.of), of=None)
        if self.at_start is not None:
            shape = (len(self), limit, self.at_start.shape[1])
            forced = np.full(shape, -1, np.int16) if self.forced is None else self.forced.copy()
            rows = np.flatnonzero(self.start_step < limit)
            step, first = self.start_step[rows], self.at_start[rows]
            forced[rows, step] = np.where(first >= 0, first, forced[rows, step])
            tests = replace(tests, forced=forced, at_start=None)
        return tests

    @staticmethod
    def concatenate(parts: Sequence[Tests]) -> Tests:
        """One batch of several; all of them have forced actions and prefixes, or none has."""
        prefixes = [part.prefix for part in parts if part.prefix is not None]
        shared = len(prefixes) == len(parts) and all(part.of is not None for part in parts)
        shared = shared and all(one is prefixes[0] for one in prefixes)
        if not shared:
            parts = [replace(part, prefix=part.prefix.take(part.of), of=None)
                     if part.prefix is not None and part.of is not None else part for part in parts]  # fmt: skip

        def joined(name: str) -> Any:
            values = [getattr(part, name) for part in parts]
            if any(value is None for value in values):
                return None
            if name == "prefix":
                return values[0] if shared else Episodes.concatenate(values)
            return np.concatenate(values)

        return Tests(**{f.name: joined(f.name) for f in fields(Tests)})


def tests_from_seeds(
    seeds: NDArray[np.int64], streams: NDArray[np.uint64], state_size: int, operator: str = "seed"
) -> Tests:
    """Tests that start from seeded resets."""
    b = len(seeds)
    return Tests(
        root_seed=np.asarray(seeds, np.int64),
        stream=np.asarray(streams, np.uint64),
        shift=np.zeros(b, np.int32),
        start_step=np.zeros(b, np.int32),
        start_state=np.full((b, state_size), np.nan),
        operator=np.full(b, operator_code(operator), np.int8),
        parent=np.full(b, -1, np.int64),
    )


def random_tests(count: int, state_size: int, generator: np.random.Generator) -> Tests:
    """Fresh seeds and fresh exploration streams: the team as it is, from randomly drawn starts."""
    seeds = generator.integers(0, 2**31, count, dtype=np.int64)
    streams = generator.integers(0, 2**64, count, dtype=np.uint64)
    return tests_from_seeds(seeds, streams, state_size)


def replay_tests(episodes: Episodes, *, restorable: bool = True) -> Tests:
    """The tests that gave these episodes (starts, streams and lineage), to execute them again.

    In a task that cannot be restored every episode starts from its seed and repeats the recorded actions.
    Where actions were forced the recorded ones are repeated too: nothing else says which they were.
    """
    rows = np.arange(len(episodes))
    if not restorable:
        tests = tests_from_seeds(episodes.root_seed, episodes.stream, episodes.states.shape[-1])
        tests.shift, tests.operator, tests.parent = episodes.shift, episodes.operator, episodes.parent
        tests.forced = episodes.actions
        return tests
    start_state = episodes.states[rows, episodes.start_step].copy()
    start_state[episodes.operator == operator_code("seed")] = np.nan
    acted = episodes.operator == operator_code("action")
    return Tests(
        root_seed=episodes.root_seed.copy(),
        stream=episodes.stream.copy(),
        shift=episodes.shift.copy(),
        start_step=episodes.start_step.copy(),
        start_state=start_state,
        operator=episodes.operator.copy(),
        parent=episodes.parent.copy(),
        forced=np.where(acted[:, None, None], episodes.actions, -1).astype(np.int16) if acted.any() else None,
        prefix=episodes if (episodes.start_step > 0).any() else None,
    )
