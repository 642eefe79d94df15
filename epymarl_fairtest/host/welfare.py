"""Training that is paid for fairness, too: the bonus of an episode is added to its rewards when it is over.

The host's own log keeps the returns that the environment paid: it has counted them by then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.host.tap import Paid
from epymarl_fairtest.repair.welfare import WELFARES, Shaping, check_weight
from epymarl_fairtest.settings import Settings


class FairTraining:
    """What the setting `welfare` does to the batches of a host's runner."""

    def __init__(self, settings: Settings, theta: float, args: Any) -> None:
        assert settings.welfare is not None
        weight = settings.welfare_weight or WELFARES[settings.welfare].weights[0]
        check_weight(settings.welfare, weight)
        if settings.allocation != "env":
            raise FairTestError(
                f"fairtest_args.welfare={settings.welfare} pays for how the environment's own rewards are shared, and"
                f" fairtest_args.allocation={settings.allocation!r} judges others. Train in an environment that pays"
                " the allocation (--env-config=fairtest_mpe, fairtest_pp or fairtest_lbf)."
            )
        self.shaping = Shaping(settings.welfare, weight, settings.index, theta, settings.agents, scale=0.0)
        self._mean = getattr(args, "reward_scalarisation", "sum") == "mean"
        self._episodes = 0

    def pay(self, batch: Any, played: Sequence[Sequence[Paid]]) -> None:
        """Add the bonus of these episodes to the rewards in `batch`, one row per environment."""
        reward = batch.data.transition_data["reward"]
        rewards = np.zeros((len(played), reward.shape[1], _agents_of(played)))
        for row, paid in enumerate(played):
            rewards[row, : len(paid)] = paid
        usual = np.abs(rewards.sum(axis=(1, 2)))
        self._episodes += len(usual)
        step = float((usual - self.shaping.scale).sum()) / self._episodes
        self.shaping = replace(self.shaping, scale=self.shaping.scale + step)  # the mean of all so far
        bonus = torch.from_numpy(self.shaping(rewards) - rewards).to(reward)  # the same for every agent
        if reward.shape[-1] == 1:  # the team's: the sum of all, or their mean
            bonus = bonus[..., :1] if self._mean else bonus.sum(dim=-1, keepdim=True)
        reward += bonus


def _agents_of(played: Sequence[Sequence[Paid]]) -> int:
    broken = next((why for paid in played for why in paid if isinstance(why, str)), None)
    if broken is not None:
        raise FairTestError(f"Training cannot be paid for fairness: {broken}")
    return max(len(paid[0]) for paid in played if len(paid))
