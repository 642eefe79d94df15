"""Adversary (MPE simple_adversary): some know the landmark that all want to be at; their opponent has to guess it."""

from collections.abc import Mapping
from typing import Any, ClassVar

from epymarl_fairtest.tasks.contract import Allocation, Array, Task, env_reward
from epymarl_fairtest.tasks.mpe.goals import GoalTask, Roles, ways
from epymarl_fairtest.tasks.mpe.rules import distance


def _roles(agents: int) -> Roles:
    return Roles(holders=[list(range(agents))], mover=list(range(agents)), goal=[0] * agents)


def goal_distance(state: Array, reward: Array) -> Array:
    """Minus how far each agent is from the goal."""
    agents = reward.shape[-1]
    return -distance(*ways(state, agents, agents - 1, _roles(agents)))


class AdversaryTask(GoalTask):
    """The first agent is the opponent, the others are the team: judge them with agents=[2, 3]. The scenario pays all of
    them the same: choose `goal_distance`."""

    name: ClassVar[str] = "adversary"
    order: ClassVar[int] = 6
    theta: ClassVar[float] = 0.80
    allocations: ClassVar[Mapping[str, Allocation]] = {"env": env_reward, "goal_distance": goal_distance}
    suggested_allocation: ClassVar[str] = "goal_distance"
    environments: ClassVar[Mapping[str, str]] = {
        "mpe-adversary-v0": "epymarl_fairtest.tasks.mpe.goal_environments:AdversaryEnv"
    }
    scenario: ClassVar[str] = "simple_adversary"
    goal_name: ClassVar[str] = "goal_a"
    roles = staticmethod(_roles)

    @classmethod
    def rebuilt(cls, agents: int, key: str, env_args: Mapping[str, Any]) -> Task | None:
        return cls.alone(N=env_args.get("N", agents - 1))


TASK = AdversaryTask
