"""Continuations of which nobody asks more than what their agents receive: no step is kept, rewards are added up.

Added in the order in which `core.judged.totals` adds them, so the bits are those of a whole episode. Rows that are
alike are executed once (meeting.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core.episodes import Episodes, Tests
from epymarl_fairtest.core.rewards import LARGEST, odd_reward
from epymarl_fairtest.core.scores import recorded
from epymarl_fairtest.engine.advance import add_up
from epymarl_fairtest.engine.contract import ActionRule
from epymarl_fairtest.engine.course import chosen
from epymarl_fairtest.engine.meeting import NOBODY, Meetings
from epymarl_fairtest.tasks.contract import Kernel
from epymarl_fairtest.team.contract import Policy

Array = NDArray[np.float64]
Rows = NDArray[np.int64]
Mask = NDArray[np.bool_]


def blank_totals(tests: Tests, policy: Policy, limit: int) -> Episodes:
    """Episodes of one step, as it were, in which everything is received; what came before the start is in it."""
    count, agents = len(tests), policy.n_agents
    nothing = np.empty((count, limit, agents, 0), np.float32)
    return Episodes(
        states=np.empty((count, limit + 1, 0)),
        obs=nothing,
        actions=np.empty((count, limit, 0), np.int16),
        rewards=received_before(tests, agents)[:, None],
        q=nothing,
        length=np.zeros(count, np.int32),
        root_seed=tests.root_seed,
        stream=tests.stream,
        shift=tests.shift,
        start_step=tests.start_step,
        operator=tests.operator,
        parent=tests.parent,
        id=np.full(count, -1, np.int64),
    )


def received_before(tests: Tests, agents: int) -> Array:
    """(B, N) in the steps that are kept of a prefix."""
    before, late = np.zeros((len(tests), agents)), np.flatnonzero(tests.start_step > 0)
    if tests.prefix is not None and len(late):
        so_far = np.cumsum(tests.prefix.rewards, axis=1)
        before[late] = so_far[late if tests.of is None else tests.of[late], tests.start_step[late] - 1]
    return before


@dataclass(frozen=True)
class Group:
    """Rows that step together, by one clock: who begins later waits."""

    kernel: Kernel
    policy: Policy
    rule: ActionRule
    edges: Array  # of the slices of [0, 1) that random actions have
    tests: Tests
    limit: int

    def execute(self, states: Array, hidden: NDArray[np.float32], last: NDArray[np.int16], totals: Array) -> Any:
        """The length of each row's episode. `totals` (B, N) gains what is received from the start on; the other arrays
        are used up."""
        tests, kernel, policy, count = self.tests, self.kernel, self.policy, len(self.tests)
        step = tests.start_step.copy()
        left, over = step < self.limit, np.zeros(count, bool)
        seen = np.zeros((count, policy.n_agents, policy.obs_size), np.float32)
        rewards, actions = np.zeros((count, policy.n_agents)), np.zeros((count, policy.n_agents), np.int16)
        q = np.zeros((count, policy.n_agents, policy.n_actions), np.float32)
        at = (step + tests.shift).astype(np.int64)  # where each row reads its stream
        forced_until = last_forced(tests)
        last_due = forced_until.max(initial=-1)
        meetings = Meetings(tests, forced_until, policy, self.limit)
        while left.any():
            running = meetings.at_clock(left, step)
            met = meetings.met(running, step, states, last)
            running[met] = left[met] = False
            if not np.isfinite(states.sum()):  # bodies on one spot: the simulator divided by zero
                lost = running & ~np.isfinite(states).all(axis=1)
                totals[lost] = np.nan  # nothing that could be judged
                running[lost] = left[lost] = False
            kernel.observe(states, running, seen)
            due = np.flatnonzero(running & (step <= forced_until)) if meetings.clock <= last_due else NOBODY
            forced = forced_now(tests, due, step) if len(due) else actions[due]
            asked = running
            if not policy.hidden_size and len(due):  # who does what it must and remembers nothing need not be asked
                asked = running.copy()
                asked[due[(forced >= 0).all(axis=1)]] = False
            on, of = meetings.different(asked, seen, last, hidden)
            scores, after = meetings.ask(on, seen, last, hidden)
            scores = recorded(scores, self.rule.available, policy.reading)
            if of is not None:
                on, scores, after = np.flatnonzero(asked), scores[of], after[of]
            if len(on) == count:
                q, hidden = scores, after
            else:
                q[on], hidden[on] = scores, after
            actions = chosen(q, running, tests, at, step, self.rule, self.edges, policy.reading, actions)
            actions[due] = np.where(forced >= 0, forced, actions[due])
            kernel.step(states, running, actions, rewards, over, step)
            meetings.keep(rewards)
            odd = add_up(totals, running, actions, rewards, over, self.limit, last, step, at, left)
            if odd >= 0:
                agent = int((~(np.abs(rewards[odd]) <= LARGEST)).argmax())
                where = f"seed {tests.root_seed[odd]}, step {step[odd] - 1}, agent {agent}"
                raise odd_reward(float(rewards[odd, agent]), where)
        meetings.settle(totals, step)
        return step


def last_forced(tests: Tests) -> Rows:
    """The last step of each test at which an action is forced; -1 where none is."""
    last = np.full(len(tests), -1)
    if tests.forced is not None:
        backwards: Mask = np.logical_or.reduce(tests.forced[:, ::-1] >= 0, axis=2)
        last = np.where(backwards.any(axis=1), backwards.shape[1] - 1 - backwards.argmax(axis=1), last)
    if tests.at_start is not None:
        last = np.where((tests.at_start >= 0).any(axis=1), np.maximum(last, tests.start_step), last)
    return last


def forced_now(tests: Tests, due: Rows, step: NDArray[np.int32]) -> NDArray[np.int16]:
    """(rows that are due, agents): what they must do; -1 where they choose."""
    if tests.at_start is None:
        assert tests.forced is not None
        return tests.forced[due, step[due]]
    first = np.where((step[due] == tests.start_step[due])[:, None], tests.at_start[due], np.int16(-1))
    return first if tests.forced is None else np.where(first >= 0, first, tests.forced[due, step[due]])


def without_past(tests: Tests, rows: Rows) -> Tests:
    return replace(tests, prefix=None, of=None, memory=None).take(rows)
