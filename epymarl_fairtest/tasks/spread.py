"""Spread (MPE simple_spread): N agents are to cover N landmarks.

State: x, y, vx, vy of each agent, then x, y of each landmark; 6 N numbers.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from epymarl_fairtest.tasks.base import Allocation, Array, env_reward
from epymarl_fairtest.tasks.mpe import MpeEnv, MpeTask, distance


def nearest_landmark(state: Array, reward: Array) -> Array:
    """Minus the distance of each agent to the landmark nearest to it, after the step."""
    n = reward.shape[-1]
    agents = state[..., : 4 * n].reshape(*state.shape[:-1], n, 4)[..., :, None, :2]
    landmarks = state[..., 4 * n :].reshape(*state.shape[:-1], 1, -1, 2)
    nearest: Array = distance(agents, landmarks).min(axis=-1)
    return -nearest


class SpreadTask(MpeTask):
    """Everyone is under test. The scenario pays all agents nearly the same: choose `nearest_landmark`."""

    name: ClassVar[str] = "spread"
    theta: ClassVar[float] = 0.80
    allocations: ClassVar[Mapping[str, Allocation]] = {
        "env": env_reward,
        "nearest_landmark": nearest_landmark,
    }
    suggested_allocation: ClassVar[str] = "nearest_landmark"
    scenario: ClassVar[str] = "simple_spread"
    reach: ClassVar[float] = 1.0
    speed: ClassVar[float] = 2.0  # where thrust (5 * 0.1 per step) and damping (a quarter) balance

    def tail(self, others: list[int]) -> list[int]:
        return [self.state_size] * (2 * len(others))  # what silent agents say


class SpreadEnv(MpeEnv):
    """`epymarl_fairtest:mpe-spread-v0`; further settings are those of simple_spread (N, render_mode, ...)."""

    task_class: ClassVar[type[MpeTask]] = SpreadTask

    def __init__(self, allocation: str = "nearest_landmark", **settings: Any) -> None:
        super().__init__(allocation, **settings)
