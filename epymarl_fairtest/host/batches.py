"""Episodes of our engines as a host's own batches: what its runner would have filled, had it played them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from epymarl_fairtest.core.episodes import Episodes


def batch_of(
    new_batch: Any, args: Any, available: NDArray[np.bool_], episodes: Episodes, rewards: NDArray[np.float64]
) -> Any:
    """A batch like those of the runner's `new_batch`, paid with `rewards` (B, T, N).

    All episodes end: nothing is looked up after the last step.
    """
    count, limit = len(episodes), episodes.limit
    batch = new_batch.func(new_batch.args[0], new_batch.args[1], count, limit + 1, **new_batch.keywords)
    data = batch.data.transition_data
    filled = np.arange(limit + 1)[None, :] <= episodes.length[:, None]
    data["filled"][:, :, 0] = torch.from_numpy(filled.astype(np.int64))
    data["obs"][:, :-1] = torch.from_numpy(episodes.obs)
    data["state"][:, :-1] = torch.from_numpy(episodes.obs.reshape(count, limit, -1))
    data["avail_actions"][:] = torch.as_tensor(available).int()
    actions = torch.from_numpy(np.maximum(episodes.actions, 0).astype(np.int64)).unsqueeze(-1)
    batch.update({"actions": actions}, ts=slice(0, limit), mark_filled=False)
    data["reward"][:, :-1] = torch.from_numpy(paid(args, rewards)).float()
    last = np.arange(limit)[None, :] == episodes.length[:, None] - 1
    data["terminated"][:, :-1, 0] = torch.from_numpy(last.astype(np.uint8))
    return batch


def paid(args: Any, rewards: NDArray[np.float64]) -> NDArray[np.float64]:
    """What the learner sees of rewards (…, N): the team's, their sum or mean, or those of the single agents."""
    if not getattr(args, "common_reward", True):
        return rewards
    team = rewards.sum(axis=-1, keepdims=True)
    mean = getattr(args, "reward_scalarisation", "sum") == "mean"
    shared: NDArray[np.float64] = team / rewards.shape[-1] if mean else team
    return shared
