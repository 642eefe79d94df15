"""Spread (MPE simple_spread): N agents are to cover N landmarks.

State: x, y, vx, vy of each agent, then x, y of each landmark; 6 N numbers.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.tasks.contract import Allocation, Array, Kernel, Task, env_reward
from epymarl_fairtest.tasks.mpe.rules import MpeTask, distance, paid_by
from epymarl_fairtest.tasks.scene import Field, Fields, Kind, planes
from epymarl_fairtest.tasks.spread.features import features
from epymarl_fairtest.tasks.spread.situations import course, situation


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
    order: ClassVar[int] = 1
    theta: ClassVar[float] = 0.80
    allocations: ClassVar[Mapping[str, Allocation]] = {
        "env": env_reward,
        "nearest_landmark": nearest_landmark,
    }
    suggested_allocation: ClassVar[str] = "nearest_landmark"
    environments: ClassVar[Mapping[str, str]] = {"mpe-spread-v0": "epymarl_fairtest.tasks.spread.environment:SpreadEnv"}
    twins: ClassVar[str] = "mpe-spread-v0 (nearest_landmark)"
    legend: ClassVar[str] = "Squares are the landmarks that the agents are to cover."
    scenario: ClassVar[str] = "simple_spread"
    reach: ClassVar[float] = 1.0
    speed: ClassVar[float] = 2.0  # where thrust (5 * 0.1 per step) and damping (a quarter) balance

    def tail(self, others: list[int]) -> list[int]:
        return [self.state_size] * (2 * len(others))  # what silent agents say

    def features(self, starts: Array) -> Array:
        return features(self.positions(starts), self.landmarks(starts))

    def situation(self, starts: Array) -> dict[str, Array]:
        return situation(self.positions(starts), self.landmarks(starts))

    def course(self, states: Array, length: NDArray[np.int32]) -> dict[str, Array]:
        return course(self.positions(states), self.landmarks(states), length)

    def twin(self, env: Any, allocation: str) -> Kernel | None:
        if paid_by(env, allocation) != "nearest_landmark":
            return None
        from epymarl_fairtest.tasks.spread.twin import SpreadTwin

        return SpreadTwin(env)

    def field(self, states: Array) -> Field:
        return self.fields(states[None], np.array([len(states) - 1]))[0]

    def fields(self, states: Array, steps: NDArray[np.integer[Any]]) -> Fields:
        agents = Kind("agent", self.positions(states), 0.15)  # sizes are the simulator's own
        return planes([Kind("target", self.landmarks(states), 0.05), agents], steps)

    @classmethod
    def rebuilt(cls, agents: int, key: str, env_args: Mapping[str, Any]) -> Task | None:
        return cls.alone(N=env_args.get("N", agents))
