"""The host's live controller as a policy: what tests a team inside the framework that trained it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.scores import are_probabilities
from epymarl_fairtest.team.checkpoint import OUTPUTS
from epymarl_fairtest.team.contract import CHUNK

Values = NDArray[np.float32]


class ControllerPolicy:
    """The host's live multi-agent controller, asked through its own `forward` about CHUNK rows at a time."""

    thread_safe = False  # it keeps the hidden states of the rows it was last asked about

    def __init__(self, mac: Any, new_batch: Any, args: Any, obs_size: int) -> None:
        self._mac = mac
        self.n_agents, self.n_actions, self.obs_size = args.n_agents, args.n_actions, obs_size
        self.reading = OUTPUTS[args.agent_output_type]
        # The host's own batch with room for two steps: the last action goes to step 0, the rest to step 1.
        self._batch = new_batch.func(new_batch.args[0], new_batch.args[1], CHUNK, 2, **new_batch.keywords)
        self._data = self._batch.data.transition_data
        self._data["avail_actions"][:] = 1
        mac.init_hidden(batch_size=1)
        self.hidden_size = mac.hidden_states.shape[-1] if getattr(args, "use_rnn", True) else 0
        takes_mode = "test_mode" in inspect.signature(mac.forward).parameters  # MADDPG's does not
        self._mode = {"test_mode": True} if takes_mode else {}

    def forward(self, obs: Values, last: NDArray[np.int16], hidden: Values) -> tuple[Values, Values]:
        q = np.empty((len(obs), self.n_agents, self.n_actions), np.float32)
        after = np.empty((len(obs), self.n_agents, self.hidden_size), np.float32)
        with torch.inference_mode():
            for first in range(0, len(obs), CHUNK):
                rows = slice(first, min(first + CHUNK, len(obs)))
                scores, memory = self._chunk(_padded(obs[rows]), _padded(last[rows], -1), _padded(hidden[rows]))
                q[rows] = scores[: rows.stop - first].numpy()
                if self.hidden_size:
                    after[rows] = memory[: rows.stop - first].numpy()
        return q, after

    def _chunk(self, obs: Tensor, last: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        self._data["obs"][:, 1] = obs.to(self._data["obs"].device)
        taken = last.long().unsqueeze(-1) == torch.arange(self.n_actions)  # nothing where there was none
        self._data["actions_onehot"][:, 0] = taken.float().to(self._data["obs"].device)
        if self.hidden_size:
            self._mac.hidden_states = hidden.to(self._data["obs"].device)
        else:
            self._mac.init_hidden(batch_size=CHUNK)
        scores = self._scores()
        memory = self._mac.hidden_states.reshape(CHUNK, self.n_agents, -1)
        return scores.cpu(), memory.cpu()

    def _scores(self) -> Tensor:
        """What the agents give. A controller makes probabilities of logits, unless it believes they are Q-values."""
        mac = self._mac
        if self.reading == "q":
            answer: Tensor = mac.forward(self._batch, 1, **self._mode)
            return answer
        said = getattr(mac, "agent_output_type", None)
        try:
            if said is not None:
                mac.agent_output_type = "q"
            answer = mac.forward(self._batch, 1, **self._mode)
        finally:
            if said is not None:
                mac.agent_output_type = said
        if are_probabilities(answer.cpu().numpy()):  # of a controller that asks somebody else what they are
            return answer.clamp_min(torch.finfo(answer.dtype).tiny).log()
        return answer


def _padded(values: NDArray[Any], fill: int = 0) -> Tensor:
    if len(values) == CHUNK:
        return torch.from_numpy(np.ascontiguousarray(values))
    out = np.full((CHUNK, *values.shape[1:]), fill, values.dtype)
    out[: len(values)] = values
    return torch.from_numpy(out)


def try_controller(mac: Any, new_batch: Any, args: Any, obs_size: int) -> None:
    """Refuse a controller that cannot be asked one step of many episodes at once."""
    try:
        policy = ControllerPolicy(mac, new_batch, args, obs_size)
        shape = (1, policy.n_agents)
        blank = np.zeros((*shape, obs_size), np.float32), np.full(shape, -1, np.int16)
        scores, _ = policy.forward(*blank, np.zeros((*shape, policy.hidden_size), np.float32))
        if scores.shape != (*shape, policy.n_actions):
            raise ValueError(f"it answers with shape {scores.shape}")
    except Exception as error:  # whatever a controller that we do not know makes of it
        raise FairTestError(
            f"FairTest cannot ask the controller {type(mac).__name__!r} of the algorithm {args.name!r} for what its"
            f" agents would do ({type(error).__name__}: {error}). It needs a controller like the hosts' basic_mac:"
            " forward(batch, t) gives a number per agent and action, and hidden_states is all that it remembers."
        ) from error


@contextmanager
def untouched(mac: Any) -> Iterator[None]:
    """What the live controller remembers of its episode, and its networks' mode, are put back."""
    missing = object()
    hidden, training = getattr(mac, "hidden_states", missing), getattr(getattr(mac, "agent", None), "training", missing)
    try:
        yield
    finally:
        if hidden is not missing:
            mac.hidden_states = hidden
        if training is not missing:
            mac.agent.train(training)
