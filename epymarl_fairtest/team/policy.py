"""The trained team as a policy, rebuilt from weights alone.

It gives the bits of the host's live controller (host/controller.py), which runs torch's operations on batches of CHUNK
rows with one thread; a test holds them together.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core import aligned
from epymarl_fairtest.team.contract import CHUNK
from epymarl_fairtest.team.weights import array_of

if TYPE_CHECKING:  # numba takes a while, and not everybody who loads a team asks it
    from epymarl_fairtest.team.agent import Agent, Call

Values = NDArray[np.float32]


class NetworkPolicy:
    """Agents rebuilt from a state dict, of tensors or arrays: one network for all, or one per agent (`_ns`)."""

    thread_safe = True

    def __init__(
        self,
        weights: Mapping[str, Any],
        *,
        n_agents: int,
        n_actions: int,
        obs_size: int,
        recurrent: bool,
        obs_last_action: bool,
        obs_agent_id: bool,
        reading: str = "q",
    ) -> None:
        self.reading = reading
        self.n_agents, self.n_actions, self.obs_size = n_agents, n_actions, obs_size
        self._weights = {name: array_of(value) for name, value in weights.items()}
        self._separate = any(name.startswith("agents.") for name in weights)
        self._told = n_actions if obs_last_action else 0
        self._ids = np.eye(n_agents, dtype=np.float32) if obs_agent_id else np.zeros((n_agents, 0), np.float32)
        own = "agents.0." if self._separate else ""
        self._recurrent, self.hidden_size = recurrent, self._weights[f"{own}fc1.weight"].shape[0] if recurrent else 0
        self._own = threading.local()

    @cached_property
    def _groups(self) -> list[tuple[Agent, slice]]:
        """The networks, and whose they are."""
        from epymarl_fairtest.team.agent import Agent

        if not self._separate:
            return [(Agent(self._weights, self._recurrent, CHUNK * self.n_agents), slice(None))]
        each = [_of(f"agents.{agent}.", self._weights) for agent in range(self.n_agents)]
        return [(Agent(weights, self._recurrent, CHUNK), slice(i, i + 1)) for i, weights in enumerate(each)]

    @property
    def needs_torch(self) -> bool:
        return any(agent.needs_torch for agent, _ in self._groups)

    def forward(self, obs: Values, last: NDArray[np.int16], hidden: Values) -> tuple[Values, Values]:
        scores = np.empty((len(obs), self.n_agents, self.n_actions), np.float32)
        after = np.empty((len(obs), self.n_agents, self.hidden_size), np.float32)
        for seats, agents in self._own_seats():
            for first in range(0, len(obs), CHUNK):
                rows = slice(first, first + CHUNK), agents
                scores[rows], after[rows] = seats.answer(obs[rows], last[rows], hidden[rows])
        return scores, after

    def _own_seats(self) -> list[tuple[Seats, slice]]:
        """What this thread asks through, a chunk of rows at a time."""
        if not hasattr(self._own, "seats"):
            self._own.seats = [(self._seats(agent, agents, CHUNK), agents) for agent, agents in self._groups]
        seats: list[tuple[Seats, slice]] = self._own.seats
        return seats

    def seats(self, hidden: Values) -> Seats | None:
        """A way to ask about rows that remember this at every step; None where each agent has a network of its own."""
        if self._separate:
            return None
        seats = self._seats(*self._groups[0], len(hidden))
        seats.hidden[:] = hidden
        return seats

    def _seats(self, agent: Agent, agents: slice, count: int) -> Seats:
        return Seats(agent, self._ids[agents], count, self.obs_size, self._told, self.n_actions)


def _of(prefix: str, weights: Mapping[str, Values]) -> dict[str, Values]:
    return {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}


class Seats:
    """Rows that are asked about again and again, of agents that share a network. What they see is written into
    `inputs`, in front of the rest; what they answer and remember stands where it is computed: nothing is copied."""

    def __init__(self, agent: Agent, ids: Values, count: int, obs_size: int, told: int, actions: int) -> None:
        self._agent, self._agents, self._front = agent, len(ids), obs_size
        worlds = -(-agent.rows_for(count * self._agents) // self._agents)
        sizes = obs_size + told + ids.shape[1], agent.hidden_size if agent.recurrent else 0, actions
        inputs, memory, scores = (aligned.zeros((worlds, self._agents, size), np.float32) for size in sizes)
        inputs[:, :, obs_size + told :] = ids
        self.inputs: Values = inputs[:count]
        self.hidden: Values = memory[:count]
        self._scores: Values = scores[:count]
        self._told = inputs[:count, :, obs_size : obs_size + told]
        self._rows = [part.reshape(worlds * self._agents, part.shape[2]) for part in (inputs, memory, scores)]
        self._between = agent.between()
        self._calls: dict[int, list[Call]] = {}

    def ask(self, last: NDArray[np.int16]) -> Values:
        """The scores of all after the last actions; they stand until it is asked again."""
        self._compute(last)
        return self._scores

    def answer(self, obs: Values, last: NDArray[np.int16], hidden: Values) -> tuple[Values, Values]:
        """Scores and memory of so many that see and remember this; they stand until it is asked again."""
        count = len(obs)
        self.inputs[:count, :, : self._front] = obs
        self.hidden[:count] = hidden
        self._compute(last)
        return self._scores[:count], self.hidden[:count]

    def _compute(self, last: NDArray[np.int16]) -> None:
        if self._told.shape[2]:
            self._told[: len(last)] = last[:, :, None] == np.arange(self._told.shape[2])
        rows = self._agent.rows_for(len(last) * self._agents)
        if rows not in self._calls:
            inputs, hidden, scores = (array[:rows] for array in self._rows)
            self._calls[rows] = self._agent.calls(inputs, hidden, self._between, scores)
        for call in self._calls[rows]:
            call()
