"""The trained team as a policy, rebuilt from weights alone.

It runs the same torch operations as the host's live controller (host/controller.py), on batches of CHUNK rows with one
thread, so both give the same bits; a test holds them together.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import linear, pad

from epymarl_fairtest.team.contract import CHUNK

if TYPE_CHECKING:  # numba takes a while, and a network may do without
    from epymarl_fairtest.team.products import Into

Call = Callable[[], object]
Q = NDArray[np.float32]
STEADY = 16  # outputs
NOTHING = torch.empty(CHUNK, 1, 0)


def _addmm_relu(bias: Tensor, x: Tensor, weight: Tensor, *, out: Tensor) -> Tensor:
    return torch.addmm(bias, x, weight, out=out).relu_()


# torch's own saves a call, but its name does not promise to stay.
ADDMM_RELU: Callable[..., Tensor] = getattr(torch, "_addmm_activation", _addmm_relu)


class Agent:
    """The hosts' agent: linear, then GRU cell or linear, then linear; parameters named as they save them."""

    def __init__(self, weights: Mapping[str, Tensor], recurrent: bool) -> None:
        self._first = Layer(weights["fc1.weight"], weights["fc1.bias"])
        self._last = Layer(weights["fc2.weight"], weights["fc2.bias"])
        self._middle = None if recurrent else Layer(weights["rnn.weight"], weights["rnn.bias"])
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        self._gru = [weights[f"rnn.{name}"] for name in names] if recurrent else []
        self._gates = [Layer(weight, bias) for weight, bias in zip(self._gru[:2], self._gru[2:], strict=True)]

    def __call__(self, inputs: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        x = self._first(inputs).relu_()
        h = torch.gru_cell(x, hidden, *self._gru) if self._middle is None else self._middle(x).relu_()
        return self._last(h), h

    @property
    def hidden_size(self) -> int:
        """Of a layer, whether or not it is remembered."""
        return self._first.outputs

    def calls(self, inputs: Tensor, hidden: Tensor, between: Between, scores: Tensor) -> list[Call]:
        """What gives the same, bit for bit, when it is called in this order, written into tensors that are there:
        `scores`, and the memory over `hidden`."""
        first = self._first.call(inputs, between.first, rectified=True)
        if self._middle is not None:
            middle = self._middle.call(between.first, between.second, rectified=True)
            return [first, middle, self._last.call(between.second, scores)]
        of_input, of_memory = self._gates
        products = [of_input.call(between.first, between.gates_x), of_memory.call(hidden, between.gates_h)]
        return [first, *products, partial(between.close, hidden), self._last.call(hidden, scores)]


class Between:
    """Room for what a chunk of rows is between the layers of an agent, used again and again."""

    def __init__(self, rows: int, size: int, recurrent: bool) -> None:
        self.first, self.second = torch.empty(rows, size), torch.empty(rows, size)
        if recurrent:
            from epymarl_fairtest.team.gates import Gates, agrees  # numba takes a while, and a network may do without

            self.gates_x, self.gates_h = torch.empty(rows, 3 * size), torch.empty(rows, 3 * size)
            self._parts = self.gates_x.chunk(3, 1), self.gates_h.chunk(3, 1)
            self.close = Gates(self.gates_x, self.gates_h).close if agrees() else self._close

    def _close(self, hidden: Tensor) -> Tensor:
        """torch.gru_cell after its products, operation by operation: the new memory over `hidden`."""
        (reset_x, update_x, new_x), (reset_h, update_h, new_h) = self._parts
        reset, update = reset_h.add_(reset_x).sigmoid_(), update_h.add_(update_x).sigmoid_()
        new = torch.add(new_x, new_h.mul_(reset), out=self.second).tanh_()
        return hidden.sub_(new).mul_(update).add_(new)


class Layer:
    """A linear layer whose rows do not change their last bit with their place in the batch.

    Measured: they do for fewer than 16 outputs of inputs that do not come in fours (docs/decisions/001). Such a
    layer gets outputs that are thrown away.
    """

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        self.outputs, inputs = weight.shape
        missing = STEADY - self.outputs
        self._padded = missing > 0 and inputs % 4 != 0
        self._weight = pad(weight, (0, 0, 0, missing)) if self._padded else weight
        self._bias = pad(bias, (0, missing)) if self._padded else bias
        self._turned = self._weight.t()
        self._products: dict[int, Into | None] = {}

    def __call__(self, x: Tensor) -> Tensor:
        y = linear(x, self._weight, self._bias)
        return y[:, : self.outputs].contiguous() if self._padded else y

    def call(self, x: Tensor, out: Tensor, rectified: bool = False) -> Call:
        """What writes the same, or its relu, into a tensor that is there: compiled, where torch has the same bits."""
        if self._padded:
            return partial(self._copy, x, out, rectified)
        compiled = self._compiled(len(x))
        if compiled is not None:
            return compiled(x, out, rectified)
        return partial(ADDMM_RELU if rectified else torch.addmm, self._bias, x, self._turned, out=out)

    def _copy(self, x: Tensor, out: Tensor, rectified: bool) -> Tensor:
        return out.copy_(self(x).relu_() if rectified else self(x))

    def _compiled(self, rows: int) -> Into | None:
        from epymarl_fairtest.team.products import product  # as above

        if rows not in self._products:
            self._products[rows] = product(self._weight, self._bias, rows)
        return self._products[rows]


class ChunkedPolicy:
    """Splits any batch into chunks of CHUNK rows, padding the last."""

    n_agents: int
    n_actions: int
    obs_size: int
    hidden_size: int
    reading = "q"
    reads_last = True  # does the answer depend on the last actions?
    thread_safe = True

    def forward(self, obs: Q, last: NDArray[np.int16], hidden: Q) -> tuple[Q, Q]:
        q = np.empty((len(obs), self.n_agents, self.n_actions), np.float32)
        after = np.empty((len(obs), self.n_agents, self.hidden_size), np.float32)
        answer = torch.from_numpy(q)
        with torch.inference_mode():
            for first in range(0, len(obs), CHUNK):
                rows = slice(first, min(first + CHUNK, len(obs)))
                count = rows.stop - first
                # What the policy does not look at is not handed over: that takes a tenth of a small network's time.
                before = _padded(last[rows], -1) if self.reads_last else NOTHING
                carried = _padded(hidden[rows]) if self.hidden_size else NOTHING
                out, memory = self._chunk(_padded(obs[rows]), before, carried)
                answer[rows] = out[:count]
                if self.hidden_size:
                    after[rows] = memory[:count].numpy()
        return q, after

    def _chunk(self, obs: Tensor, last: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        raise NotImplementedError


def _padded(values: NDArray[Any], fill: int = 0) -> Tensor:
    if len(values) == CHUNK:
        return torch.from_numpy(np.ascontiguousarray(values))
    out = np.full((CHUNK, *values.shape[1:]), fill, values.dtype)
    out[: len(values)] = values
    return torch.from_numpy(out)


def one_hot(last: Tensor, actions: int) -> Tensor:
    """Last actions (..., ) as one-hot rows; zeros where there was none."""
    return (last.long().unsqueeze(-1) == torch.arange(actions)).float()


class NetworkPolicy(ChunkedPolicy):
    """Agents rebuilt from a state dict, shared or one network per agent (`_ns`)."""

    def __init__(
        self,
        weights: Mapping[str, Tensor],
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
        self.reads_last, self._agent_id = obs_last_action, obs_agent_id
        separate = any(name.startswith("agents.") for name in weights)
        own = [f"agents.{agent}." for agent in range(n_agents)] if separate else [""]
        self._agents = [
            Agent({k.removeprefix(mine): v.detach() for k, v in weights.items() if k.startswith(mine)}, recurrent)
            for mine in own
        ]
        hidden = weights[f"{own[0]}fc1.weight"].shape[0]
        inputs = obs_size + n_actions * obs_last_action + n_agents * obs_agent_id
        self.hidden_size = hidden if recurrent else 0
        self._inputs, self._own = inputs, threading.local()

    def _chunk(self, obs: Tensor, last: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        inputs, rows, seen = self._blank_inputs()
        seen.copy_(obs)
        if self.reads_last:
            inputs[:, :, self.obs_size : self.obs_size + self.n_actions] = one_hot(last, self.n_actions)
        if len(self._agents) == 1:
            q, h = self._agents[0](rows, hidden.flatten(0, 1))
            return q.view(CHUNK, self.n_agents, -1), h.view(CHUNK, self.n_agents, -1)
        carried = hidden if self.hidden_size else hidden.expand(CHUNK, self.n_agents, 0)
        each = [agent(inputs[:, i], carried[:, i]) for i, agent in enumerate(self._agents)]
        return torch.stack([q for q, _ in each], dim=1), torch.stack([h for _, h in each], dim=1)

    def seats(self, hidden: Q) -> Seats | None:
        """A way to ask about rows that remember this at every step; None where each agent has a network of its own."""
        return Seats(self, self._agents[0], hidden) if len(self._agents) == 1 else None

    def blank(self, rows: int) -> Tensor:
        """Inputs of the network that hold the agents' ids and nothing else (rows, agents, numbers)."""
        inputs = torch.zeros(rows, self.n_agents, self._inputs)
        if self._agent_id:
            inputs[:, :, -self.n_agents :] = torch.eye(self.n_agents)
        return inputs

    def _blank_inputs(self) -> tuple[Tensor, Tensor, Tensor]:
        """The chunk that this thread fills again and again, as rows, and where what is seen belongs; the agents' ids
        are in it already."""
        if not hasattr(self._own, "inputs"):
            inputs = self.blank(CHUNK)
            self._own.inputs = inputs, inputs.flatten(0, 1), inputs[:, :, : self.obs_size]
        blank: tuple[Tensor, Tensor, Tensor] = self._own.inputs
        return blank


class Seats:
    """Rows that are asked about at every step. What the agents see is written into `inputs`, in front of the rest; what
    they answer and remember stands where it is computed: nothing is copied."""

    def __init__(self, policy: NetworkPolicy, agent: Agent, hidden: Q) -> None:
        count, rows = len(hidden), -(-len(hidden) // CHUNK) * CHUNK
        with torch.inference_mode():
            inputs, scores = policy.blank(rows), torch.zeros(rows, policy.n_agents, policy.n_actions)
            memory = torch.zeros(rows, policy.n_agents, policy.hidden_size)
            memory[:count] = torch.from_numpy(hidden)
            size, remembers = CHUNK * policy.n_agents, policy.hidden_size > 0
            between = Between(size, agent.hidden_size, remembers)
            parts = (part.flatten(0, 1).split(size) for part in (inputs, memory, scores))
            self._calls = [call for x, h, out in zip(*parts, strict=True) for call in agent.calls(x, h, between, out)]
            front = policy.obs_size, policy.obs_size + policy.n_actions
            self._told = inputs[:count, :, slice(*front)] if policy.reads_last else None
        self._actions = policy.n_actions
        self.inputs: Q = inputs.numpy()[:count]
        self.hidden: Q = memory.numpy()[:count]
        self._scores: Q = scores.numpy()[:count]

    def ask(self, last: NDArray[np.int16]) -> Q:
        """The scores after the last actions; they stand until it is asked again."""
        with torch.inference_mode():
            if self._told is not None:
                self._told.copy_(one_hot(torch.from_numpy(last), self._actions))
            for call in self._calls:
                call()
        return self._scores
