"""The host's live controller as a policy: what tests a team inside the framework that trained it."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from epymarl_fairtest.team.contract import CHUNK
from epymarl_fairtest.team.policy import ChunkedPolicy, one_hot


class ControllerPolicy(ChunkedPolicy):
    """The host's live multi-agent controller, asked through its own `forward`."""

    thread_safe = False  # it keeps the hidden states of the rows it was last asked about

    def __init__(self, mac: Any, new_batch: Any, args: Any, obs_size: int) -> None:
        self._mac = mac
        self.n_agents, self.n_actions, self.obs_size = args.n_agents, args.n_actions, obs_size
        # The host's own batch with room for two steps: the last action goes to step 0, the rest to step 1.
        self._batch = new_batch.func(new_batch.args[0], new_batch.args[1], CHUNK, 2, **new_batch.keywords)
        self._data = self._batch.data.transition_data
        self._data["avail_actions"][:] = 1
        mac.init_hidden(batch_size=1)
        self.hidden_size = mac.hidden_states.shape[-1] if getattr(args, "use_rnn", True) else 0

    def _chunk(self, obs: Tensor, last: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        self._data["obs"][:, 1] = obs.to(self._data["obs"].device)
        self._data["actions_onehot"][:, 0] = one_hot(last, self.n_actions).to(self._data["obs"].device)
        if self.hidden_size:
            self._mac.hidden_states = hidden.to(self._data["obs"].device)
        else:
            self._mac.init_hidden(batch_size=CHUNK)
        q = self._mac.forward(self._batch, 1, test_mode=True)
        memory = self._mac.hidden_states.reshape(CHUNK, self.n_agents, -1)
        return q.cpu(), memory.cpu()
