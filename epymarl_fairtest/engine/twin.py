"""The fast engine: groups of worlds as rows of arrays, stepped by a task's compiled twin.

Observe, ask the policy, choose, step, all rows together. A twin is trusted only after it has proved itself on this
machine (`prove`): a few dozen episodes side by side with the real environments.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core import rng
from epymarl_fairtest.core.episodes import Episodes, Remembered, Tests, tests_from_seeds
from epymarl_fairtest.core.rewards import refuse_odd
from epymarl_fairtest.core.scores import recorded
from epymarl_fairtest.engine.advance import advance
from epymarl_fairtest.engine.choice import slices
from epymarl_fairtest.engine.contract import ActionRule, Engine
from epymarl_fairtest.engine.course import Course, chosen
from epymarl_fairtest.engine.lockstep import blank_episodes, memory_before
from epymarl_fairtest.engine.meeting import Meetings
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
        sizes = {"limit": self._limit, "state_size": self.state_size}
        episodes = blank_episodes(tests, self._policy, **sizes, seen=self.keeps_obs, course=self.keeps_course)
        if self.keeps_memory and self._policy.hidden_size:
            shape = (len(tests), self._limit + 1, self._policy.n_agents, self._policy.hidden_size)
            episodes = Remembered(**vars(episodes), memory=np.zeros(shape, np.float32))
        # Rows that start at similar steps share a group, so that it ends for all of them together; where rows may meet,
        # whoever asks knows best who will.
        meet = not self.keeps_course and not self._policy.hidden_size
        order = np.arange(len(tests)) if meet else np.argsort(tests.start_step, kind="stable")
        share = -(-len(order) // self._threads)
        size = max(share, FEWEST) if meet else min(max(share, FEWEST), GROUP)
        groups = [order[first : first + size] for first in range(0, len(order), size)]
        # Once for all that share a past.
        past = None if tests.prefix is None else _past(tests.prefix, self._policy)
        before = memory_before(self._policy, past, tests.start_step, self._seen, tests.memory)
        if self._threads > 1 and len(groups) > 1:
            with ThreadPoolExecutor(self._threads) as pool:
                list(pool.map(lambda rows: self._execute_group(tests, rows, before, episodes), groups))
        else:
            for rows in groups:
                self._execute_group(tests, rows, before, episodes)
        return refuse_odd(episodes)

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
        group = replace(tests, prefix=None, memory=None).take(rows)
        states = group.start_state.copy()
        fresh = np.flatnonzero(group.from_seed)
        if len(fresh):
            states[fresh] = self.initial_states(group.root_seed[fresh])
        hidden, last = (part[rows] for part in before)  # copies, which this group changes
        if self.keeps_course:
            Course(self._kernel, self._policy, self._rule, group, rows, states, hidden, last).play(
                episodes, self._limit
            )
        else:
            self._play_alike(group, rows, states, hidden, last, episodes)

    def _play_alike(
        self, group: Tests, rows: NDArray[np.int64], states: States, hidden: NDArray[np.float32],
        last: NDArray[np.int16], episodes: Episodes,
    ) -> None:  # fmt: skip
        """What the agents of a group do and receive; who goes on as another one does is not executed."""
        kernel, policy, rule, count = self._kernel, self._policy, self._rule, len(rows)
        step = group.start_step.copy()
        left = step < self._limit
        over = np.zeros(count, bool)
        seen = np.zeros((count, policy.n_agents, policy.obs_size), np.float32)
        rewards = np.zeros((count, policy.n_agents))
        actions = np.zeros((count, policy.n_agents), np.int16)
        q = np.zeros((count, policy.n_agents, policy.n_actions), np.float32)
        at = (step + group.shift).astype(np.int64)  # where each row reads its stream
        forced_until = last_forced(group)
        meetings = Meetings(group, forced_until, policy)
        while left.any():
            running = meetings.at_clock(left, step)
            met = meetings.met(running, step, states, last)
            running[met] = left[met] = False
            if isinstance(episodes, Remembered):
                episodes.memory[rows[running], step[running]] = hidden[running]
            kernel.observe(states, running, seen)
            due = np.flatnonzero(running & (step <= forced_until))
            forced = actions[due] if group.forced is None else group.forced[due, step[due]]
            asked = running.copy()
            if not policy.hidden_size:
                asked[due[(forced >= 0).all(axis=1)]] = False  # they do what they must, and remember nothing
            on, of = meetings.different(asked, seen, last, hidden)  # whom to ask about, and who has whose answer
            scores, after = meetings.ask(on, seen, last, hidden)
            scores = recorded(scores, rule.available, policy.reading)
            if len(on) == count:
                q, hidden = scores, after
            elif of is None:  # the others need no answer
                q[on], hidden[on] = scores, after
            else:
                q[asked], hidden[asked] = scores[of], after[of]
            actions = chosen(q, running, group, at, step, rule, self._edges, policy.reading, actions)
            actions[due] = np.where(forced >= 0, forced, actions[due])
            kernel.step(states, running, actions, rewards, over, step)
            received = (actions, rewards, over, self._limit)
            advance(episodes.actions, episodes.rewards, rows, running, *received, last, step, at, left)
        episodes.length[rows] = step
        meetings.settle(episodes, rows)


def last_forced(tests: Tests) -> NDArray[np.int64]:
    """The last step of each test at which an action is forced; -1 where none is."""
    if tests.forced is None:
        return np.full(len(tests), -1)
    agents = tests.forced.shape[2]
    backwards = (tests.forced >= 0).reshape(len(tests), -1)[:, ::-1]
    last = (backwards.shape[1] - 1 - backwards.argmax(axis=1)) // agents
    return np.where(backwards.any(axis=1), last, -1)


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
