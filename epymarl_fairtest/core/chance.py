"""What a threshold calls unfair by chance: the same theta means something else for two agents than for ten."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from epymarl_fairtest.core import rng
from epymarl_fairtest.core.judged import Array

DIVISIONS = 20_000  # give the share to within 0.7 percentage points
THREE = 3  # agents, for which the tasks' own thresholds were set


def unfair_by_chance(index: Callable[[Array], Array], theta: float, agents: int) -> float:
    """The share of random divisions among so many agents that is unfair; all divisions are equally likely.

    Independent exponential rewards divide their sum like that. The sample is always the same one.
    """
    return float((index(_divisions(agents)) <= theta).mean())


def as_strict(index: Callable[[Array], Array], theta: float, agents: int) -> float:
    """The threshold that calls as many random divisions among so many agents unfair as `theta` does among THREE."""
    if agents == THREE:
        return theta
    return float(np.quantile(index(_divisions(agents)), unfair_by_chance(index, theta, THREE)))


def _divisions(agents: int) -> Array:
    rewards: Array = rng.named(0, "divisions", agents).exponential(size=(DIVISIONS, agents))
    return rewards
