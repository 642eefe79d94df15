"""The fast engine: groups of worlds as rows of arrays, stepped by a task's compiled twin.

Observe, ask the policy, choose, step, all rows together. A twin is trusted only after it has proved itself on this
machine (`prove`): a few dozen episodes side by side with the real environments.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core import rng
from epymarl_fairtest.core.episodes import Episodes, Remembered, Tests, tests_from_seeds
from epymarl_fairtest.core.rewards import refuse_odd
from epymarl_fairtest.engine.choice import slices
from epymarl_fairtest.engine.contract import ActionRule, Engine
from epymarl_fairtest.engine.course import Course
from epymarl_fairtest.engine.lockstep import blank_episodes, memory_before
from epymarl_fairtest.engine.totals import Group, blank_totals, without_past
from epymarl_fairtest.tasks.contract import Kernel
from epymarl_fairtest.team.contract import CHUNK, Policy

States = NDArray[np.float64]

GROUP = 16 * CHUNK
"""Worlds that step together: the loop's own cost is shared by up to sixteen forward passes, and where episodes end at
different steps the last pass, which is padded, is one of many."""
FEWEST = 4 * CHUNK  # however many threads there are


class Twin:
    name = "twin"
    keeps_obs = True
    keeps_course, keeps_memory = True, False
    needs_obs = False  # a kernel shows at once what is seen in a state

    def __init__(
        self, kernel: Kernel, policy: Policy, rule: ActionRule, *, limit: int, state_size: int, threads: int = 1
    ) -> None:
        self._kernel, self._policy, self._rule = kernel, policy, rule
        self._limit, self.state_size = limit, state_size
        self._threads, self._edges = threads, slices(rule)

    def execute(self, tests: Tests) -> Episodes:
        if not self.keeps_course:
            return self._totals(tests)
        tests = tests.plain(self._limit)
        stale = not tests.start_step.any()  # nothing comes before what is recorded
        sizes = {"limit": self._limit, "state_size": self.state_size}
        episodes = blank_episodes(tests, self._policy, **sizes, seen=self.keeps_obs, stale=stale)
        if self.keeps_memory and self._policy.hidden_size:
            shape = (len(tests), self._limit + 1, self._policy.n_agents, self._policy.hidden_size)
            episodes = Remembered(**vars(episodes), memory=np.zeros(shape, np.float32))
        before = self._before(tests)
        self._by_groups(tests, GROUP, lambda rows: self._execute_group(tests, rows, before, episodes))
        return refuse_odd(episodes)

    def _totals(self, tests: Tests) -> Episodes:
        """The same, with what the agents receive in all as the rewards of one step."""
        episodes, policy = blank_totals(tests, self._policy, self._limit), self._policy
        hidden, last = self._before(tests)

        def execute(rows: NDArray[np.int64]) -> None:
            some = without_past(tests, rows)
            group = Group(self._kernel, policy, self._rule, self._edges, some, self._limit)
            received = episodes.rewards[rows, 0]
            episodes.length[rows] = group.execute(self._begin(some), hidden[rows], last[rows], received)
            episodes.rewards[rows, 0] = received

        # Where rows may meet, they are all in one group: whoever asks knows best who will.
        self._by_groups(tests, GROUP if policy.hidden_size else None, execute)
        return episodes

    def _by_groups(self, tests: Tests, most: int | None, execute: Callable[[NDArray[np.int64]], None]) -> None:
        """At most so many rows a group. Those that start at similar steps share one, so that they end together."""
        order = np.arange(len(tests)) if most is None else np.argsort(tests.start_step, kind="stable")
        size = min(max(-(-len(order) // self._threads), FEWEST), most or len(order) or 1)
        groups = [order[first : first + size] for first in range(0, len(order), size)]
        if self._threads > 1 and len(groups) > 1:
            with ThreadPoolExecutor(self._threads) as pool:
                list(pool.map(execute, groups))
        else:
            for rows in groups:
                execute(rows)

    def _before(self, tests: Tests) -> tuple[NDArray[np.float32], NDArray[np.int16]]:
        """What the agents remember and did last, computed once for all that share a past."""
        past = None if tests.prefix is None else _past(tests.prefix, self._policy)
        if past is not None and tests.of is not None:
            past = past.take(tests.of)
        return memory_before(self._policy, past, tests.start_step, self._seen, tests.memory)

    def _begin(self, tests: Tests) -> States:
        """The states in which these tests begin, to be changed."""
        states = tests.start_state.copy()
        fresh = np.flatnonzero(tests.from_seed)
        if len(fresh):
            states[fresh] = self.initial_states(tests.root_seed[fresh])
        return states

    def initial_states(self, seeds: NDArray[np.int64]) -> States:
        states = np.empty((len(seeds), self.state_size))
        self._kernel.reset(np.asarray(seeds, np.int64), states)
        return states

    def _seen(self, states: States) -> NDArray[np.float32]:
        """What the agents see in these states (B, N, D)."""
        seen = np.zeros((len(states), self._policy.n_agents, self._policy.obs_size), np.float32)
        self._kernel.observe(states, np.ones(len(states), bool), seen)
        return seen

    def _execute_group(
        self, tests: Tests, rows: NDArray[np.int64], before: tuple[NDArray[Any], NDArray[Any]], episodes: Episodes
    ) -> None:
        group = without_past(tests, rows)
        hidden, last = (part[rows] for part in before)  # copies, which this group changes
        how = (self._kernel, self._policy, self._rule, self._edges)
        Course(*how, group, rows, self._begin(group), hidden, last).play(episodes, self._limit)


def _past(prefix: Episodes, policy: Policy) -> Episodes:
    """What the policy carries on from: the last actions, and with a memory the states that were seen."""
    nothing: dict[str, Any] = {name: getattr(prefix, name)[..., :0] for name in ("q", "rewards", "obs")}
    return (
        replace(prefix, **nothing) if policy.hidden_size else replace(prefix, **nothing, states=prefix.states[..., :0])
    )


PROOF = 12  # seeds, and the same number of starts in the middle: more would take over a second with a GRU


def prove(twin: Engine, real: Engine, state_size: int) -> bool:
    """Do both engines give the same bits, from seeds and from recorded states in the middle?"""
    generator = rng.named(0, "proof")
    seeds = generator.integers(0, 2**31, PROOF, dtype=np.int64)
    streams = generator.integers(0, 2**64, PROOF, dtype=np.uint64)
    tests = tests_from_seeds(seeds, streams, state_size)
    ours, theirs = twin.execute(tests), real.execute(tests)
    if not _same(ours, theirs):
        return False
    step = (theirs.length // 2).astype(np.int32)
    middle = Tests(
        root_seed=theirs.root_seed,
        stream=streams[::-1].copy(),
        shift=np.zeros(PROOF, np.int32),
        start_step=step,
        start_state=theirs.states[np.arange(PROOF), step],
        operator=theirs.operator,
        parent=theirs.id,
        prefix=theirs,
    )
    return _same(twin.execute(middle), real.execute(middle))


def _same(a: Episodes, b: Episodes) -> bool:
    names = ("states", "obs", "actions", "rewards", "q", "length")
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in names)
