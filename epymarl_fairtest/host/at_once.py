"""A controller's answers for all steps of a batch, computed when the learner asks for the first one.

The hosts ask step by step, 2 x 51 small products per update. The numbers are the same up to rounding; without memory,
steps after an episode's end, which the learner masks, are not computed and answered with zeros.
"""

from __future__ import annotations

from typing import Any

import torch

HARDLY = -1e10  # the hosts' logit of an action that an agent does not have


def forward_at_once(mac: Any) -> None:
    """For the hosts' basic controller with their recurrent agent, in either of its forms."""
    agent = mac.agent

    def inputs_of(batch: Any) -> Any:
        parts = [batch["obs"]]
        if mac.args.obs_last_action:
            taken = batch["actions_onehot"]
            parts.append(torch.cat([torch.zeros_like(taken[:, :1]), taken[:, :-1]], dim=1))
        if mac.args.obs_agent_id:
            parts.append(torch.eye(mac.n_agents).expand(*batch["obs"].shape[:2], -1, -1))
        return torch.cat(parts, dim=-1)

    def all_steps(batch: Any) -> Any:
        inputs = inputs_of(batch)  # (episodes, steps, agents, numbers)
        if not mac.args.use_rnn:
            there = batch["filled"][:, :, 0] > 0
            x = agent.fc2(torch.relu(agent.rnn(torch.relu(agent.fc1(inputs[there])))))
            x = answers_of(x, batch["avail_actions"][there])
            return x.new_zeros(*inputs.shape[:3], x.shape[-1]).index_put((there,), x)
        x = torch.relu(agent.fc1(inputs))
        cell, (episodes, steps, agents, hidden) = agent.rnn, x.shape
        weights = [cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh]
        x = x.transpose(0, 1).reshape(steps, episodes * agents, hidden)
        h, _ = torch.gru(x, x.new_zeros(1, episodes * agents, hidden), weights, True, 1, 0.0, True, False, False)
        x = agent.fc2(h.view(steps, episodes, agents, hidden).transpose(0, 1))
        return answers_of(x, batch["avail_actions"])

    def answers_of(scores: Any, available: Any) -> Any:
        """Q-values as they are, logits as probabilities: what the controller gives its learner."""
        if getattr(mac, "agent_output_type", "q") != "pi_logits":
            return scores
        return scores.masked_fill(available == 0, HARDLY).softmax(dim=-1)

    def forward(batch: Any, t: int, test_mode: bool = False) -> Any:
        if t == 0:
            mac.answers = all_steps(batch)
        return mac.answers[:, t]

    mac.forward = forward
