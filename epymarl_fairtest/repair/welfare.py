"""Rewards that know fairness: what the team is paid on top, so that learning cares how its rewards are shared.

gini  what each agent receives counts by its place in the episode: most for the one that ends worst off (generalised
      Gini welfare). A weight of 1 counts the worst-off twice and the best-off not at all.
min   what the worst-off agent of the episode receives counts more, that of the others less; at 1 it alone counts.
jain  whatever brings the index of what was received so far nearer to the threshold is paid, and charged what takes
      it away: a potential, felt at every step and more towards the end. A weight of 1 charges the team's usual return
      for an index of 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.indices import INDICES
from epymarl_fairtest.core.judged import Agents, of_agents, totals

Array = NDArray[np.float64]
MARGIN = 0.05  # above the threshold: a team that aims at the threshold itself lands on both sides of it


@dataclass(frozen=True)
class Shaping:
    """How the reward is changed; plain values, so that it can be sent and written down."""

    welfare: str  # one of WELFARES
    weight: float
    index: str = "jfi"
    theta: float = 0.8
    agents: Agents = "all"  # that are judged
    scale: float = 1.0  # size of the team's usual return

    def __call__(self, rewards: Array) -> Array:
        """Rewards (B, T, N) to what is paid instead: the same, and an equal part of the team's bonus for everyone."""
        bonus = WELFARES[self.welfare].bonus(self, of_agents(rewards, self.agents))
        paid: Array = rewards + bonus[:, :, None] / rewards.shape[-1]
        return paid

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def _by_place(shaping: Shaping, rewards: Array, weights: Array) -> Array:
    """`weights` (N,) from the worst-off to the best-off; what the welfare adds to the plain sum."""
    received = totals(rewards)
    place = np.argsort(np.argsort(received, axis=1, kind="stable"), axis=1, kind="stable")
    bonus: Array = ((weights - 1.0)[place][:, None, :] * rewards).sum(axis=-1)
    return bonus


def _gini(shaping: Shaping, rewards: Array) -> Array:
    return _by_place(shaping, rewards, 1.0 + shaping.weight * np.linspace(1.0, -1.0, rewards.shape[-1]))


def _min(shaping: Shaping, rewards: Array) -> Array:
    agents = rewards.shape[-1]
    weights = np.full(agents, 1.0 - shaping.weight)
    weights[0] += shaping.weight * agents
    return _by_place(shaping, rewards, weights)


def _jain(shaping: Shaping, rewards: Array) -> Array:
    so_far = INDICES[shaping.index](np.cumsum(rewards, axis=1))
    short = np.maximum(0.0, shaping.theta + MARGIN - np.where(np.isnan(so_far), np.inf, so_far))
    # Early, the index says where the agents began. Learners discount: charged then and paid back later, it would teach
    # the team to be even at once from every start, those that end fair among them, and that costs return.
    steps = np.arange(1, rewards.shape[1] + 1)
    end = (rewards.any(axis=-1) * steps).max(axis=1, keepdims=True)
    grown = np.minimum(1.0, steps / np.maximum(1, end))
    bonus: Array = -shaping.weight * shaping.scale * np.diff(short * grown, axis=1, prepend=0.0)
    return bonus


@dataclass(frozen=True)
class Welfare:
    """One way to pay for fairness."""

    label: str
    bonus: Callable[[Shaping, Array], Array]  # rewards of the judged agents (B, T, N) to the team's bonus (B, T)
    weights: tuple[float, ...]  # that are tried unless others are given
    most: float  # largest weight that makes sense


WELFARES = {
    "gini": Welfare("generalised Gini welfare", _gini, (0.5, 1.0), 1.0),
    "jain": Welfare("a potential on the index so far", _jain, (3.0, 5.0), 1000.0),
    "min": Welfare("the worst-off agent", _min, (0.5, 1.0), 1.0),
}


def check_weight(welfare: str, weight: float) -> None:
    most = WELFARES[welfare].most
    if not 0 < weight <= most:
        raise FairTestError(
            f"--weight {weight:g} is not allowed for --welfare {welfare}; it must be above 0 and at most {most:g}."
        )
