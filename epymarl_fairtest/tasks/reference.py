"""Reference (MPE simple_reference): each of two agents knows where the other one should go, and can only tell it."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from epymarl_fairtest.tasks.contract import Allocation, Array, env_reward
from epymarl_fairtest.tasks.mpe.goals import GoalTask, Roles, ways
from epymarl_fairtest.tasks.mpe.rules import distance

AGENTS, LANDMARKS, WORDS = 2, 3, 10  # the scenario has no settings for them
ROLES = Roles(holders=[[0], [1]], mover=[1, 0], goal=[0, 1])


def goal_distance(state: Array, reward: Array) -> Array:
    """Minus how far the other one is from the landmark that the agent knows: the scenario's reward before it mixes
    half of everybody's into it."""
    return -distance(*ways(state, AGENTS, LANDMARKS, ROLES))


class ReferenceTask(GoalTask):
    """The scenario pays half of the mean to both: choose `goal_distance`."""

    name: ClassVar[str] = "reference"
    order: ClassVar[int] = 4
    theta: ClassVar[float] = 0.80
    allocations: ClassVar[Mapping[str, Allocation]] = {"env": env_reward, "goal_distance": goal_distance}
    suggested_allocation: ClassVar[str] = "goal_distance"
    environments: ClassVar[Mapping[str, str]] = {
        "mpe-reference-v0": "epymarl_fairtest.tasks.mpe.goal_environments:ReferenceEnv"
    }
    actions: ClassVar[Sequence[str]] = [
        f"{move}, say {word}" for word in "ABCDEFGHIJ"[:WORDS] for move in GoalTask.actions
    ]
    scenario: ClassVar[str] = "simple_reference"
    goal_name: ClassVar[str] = "goal_b"

    @staticmethod
    def roles(agents: int) -> Roles:
        return ROLES


TASK = ReferenceTask
