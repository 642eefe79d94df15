"""What a threshold calls unfair by chance: the same theta means something else for two agents than for ten."""

from __future__ import annotations

from collections.abc import Callable

from epymarl_fairtest.core import rng
from epymarl_fairtest.core.judged import Array

DIVISIONS = 20_000  # give the share to within 0.7 percentage points


def unfair_by_chance(index: Callable[[Array], Array], theta: float, agents: int) -> float:
    """The share of random divisions among so many agents that is unfair; all divisions are equally likely.

    Independent exponential rewards divide their sum like that. The sample is always the same one.
    """
    rewards = rng.named(0, "divisions", agents).exponential(size=(DIVISIONS, agents))
    return float((index(rewards) <= theta).mean())
