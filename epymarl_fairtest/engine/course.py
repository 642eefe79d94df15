"""A group of worlds of which everything is recorded, stepped together: observe, ask, choose, step, record.

Its arrays are made once. A world that is over stays in its row until a whole forward pass can be saved by taking such
rows out: a pass has the same number of rows, however many of them matter.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core.episodes import Episodes, Remembered, Tests
from epymarl_fairtest.core.scores import greedy, recorded
from epymarl_fairtest.engine.action_rules import choose
from epymarl_fairtest.engine.advance import record
from epymarl_fairtest.engine.choice import choose_epsilon_greedy
from epymarl_fairtest.engine.contract import ActionRule
from epymarl_fairtest.engine.lockstep import not_finite
from epymarl_fairtest.tasks.contract import Kernel
from epymarl_fairtest.tasks.kernels.sizes import known
from epymarl_fairtest.team.contract import CHUNK, Policy

Rows = NDArray[np.int64]
Values = NDArray[np.float32]


class Asked(Protocol):
    """A policy that is asked about the rows of a group at every step."""

    inputs: Values  # (rows, agents, at least what an agent sees): the rest belongs to the policy
    hidden: Values

    def ask(self, last: NDArray[np.int16]) -> Values: ...


class Forward:
    """Any policy, asked through `forward`."""

    def __init__(self, policy: Policy, hidden: Values) -> None:
        self._policy, self.hidden = policy, hidden
        self.inputs = np.zeros((len(hidden), policy.n_agents, policy.obs_size), np.float32)

    def ask(self, last: NDArray[np.int16]) -> Values:
        scores, self.hidden = self._policy.forward(self.inputs, last, self.hidden)
        return scores


def asked_about(policy: Policy, hidden: Values, kernel: Kernel) -> Asked:
    """The policy about rows that remember this; its own way of being asked again and again, where both sides can."""
    seats = getattr(policy, "seats", None) if getattr(kernel, "sees_only", False) else None
    return (seats and seats(hidden)) or Forward(policy, hidden)


class Course:
    def __init__(
        self, kernel: Kernel, policy: Policy, rule: ActionRule, edges: NDArray[np.float64], group: Tests, rows: Rows,
        states: NDArray[np.float64], hidden: Values, last: NDArray[np.int16],
    ) -> None:  # fmt: skip
        self._kernel, self._policy, self._rule, self._edges = kernel, policy, rule, edges
        self._group, self._rows, self._states = group, rows, states
        self._last, self._step = last, group.start_step.copy()
        self._asked = asked_about(policy, hidden, kernel)
        self._make_room()

    def _make_room(self) -> None:
        shape = len(self._rows), self._policy.n_agents
        self._at = (self._step + self._group.shift).astype(np.int64)  # where each row reads its stream
        self._over, self._left = np.zeros(len(self._rows), bool), np.ones(len(self._rows), bool)
        self._rewards, self._actions = np.zeros(shape), np.zeros(shape, np.int16)

    def play(self, episodes: Episodes, limit: int) -> None:
        """Every step of every row, into `episodes`."""
        kernel, policy, rule = self._kernel, self._policy, self._rule
        episodes.states[self._rows, self._step] = self._states
        episodes.length[self._rows] = self._step
        self._leave_out(self._step < limit)
        kept = (episodes.obs, episodes.q, episodes.states, episodes.actions, episodes.rewards, episodes.length)
        counts = (policy.n_agents, policy.obs_size, episodes.q.shape[3], episodes.states.shape[2])
        sizes = tuple(known(count) for count in counts)
        running = len(self._rows)
        while running:
            rows, step, left, states = self._rows, self._step, self._left, self._states
            if isinstance(episodes, Remembered):
                episodes.memory[rows[left], step[left]] = self._asked.hidden[left]
            kernel.observe(states, left, self._asked.inputs)
            q = recorded(self._asked.ask(self._last), rule.available, policy.reading)
            actions = chosen(q, left, self._group, self._at, step, rule, self._edges, policy.reading, self._actions)
            if self._group.forced is not None:
                forced = self._group.forced[np.arange(len(rows)), np.minimum(step, limit - 1)]
                np.copyto(actions, forced, where=forced >= 0)
            kernel.step(states, left, actions, self._rewards, self._over, step)
            now = (self._asked.inputs, np.ascontiguousarray(q, np.float32), states, actions, self._rewards)
            running = record(*kept, rows, *now, self._over, limit, self._last, step, self._at, left, *sizes)
            if running and -(-running // CHUNK) < -(-len(rows) // CHUNK):
                self._leave_out(left)

    def _leave_out(self, stay: NDArray[np.bool_]) -> None:
        """Go on with the rows that stay."""
        if stay.all():
            return
        taken: Any = np.flatnonzero(stay)
        self._group, self._rows, self._states = self._group.take(taken), self._rows[taken], self._states[taken]
        self._last, self._step = self._last[taken], self._step[taken]
        self._asked = asked_about(self._policy, self._asked.hidden[taken], self._kernel)
        self._make_room()


def chosen(
    q: Values, running: NDArray[np.bool_], group: Tests, at: Rows, step: NDArray[np.int32], rule: ActionRule,
    edges: NDArray[np.float64], reading: str, actions: NDArray[np.int16],
) -> NDArray[np.int16]:  # fmt: skip
    """`actions`, in which the running rows now have what their agents choose; a number that is no score is an error."""
    if rule.kind in ("softmax", "policy"):
        finite = bool(np.isfinite(q[running]).all())
        np.copyto(actions, choose(q, group.stream, at, rule), where=running[:, None])
    else:
        epsilon = 0.0 if rule.kind == "greedy" else rule.epsilon
        sizes = known(q.shape[1]), known(q.shape[2])
        finite = choose_epsilon_greedy(q, running, group.stream, at, epsilon, rule.available, edges, actions, *sizes)
    if not finite:
        bad = int((running & ~np.isfinite(q).all(axis=(1, 2))).argmax())
        raise not_finite(int(group.root_seed[bad]), int(step[bad]), reading)
    if group.greedy is not None:
        now = np.flatnonzero(running & group.greedy.any(axis=1))
        actions[now] = np.where(group.greedy[now], greedy(q[now], rule.available), actions[now])
    return actions
