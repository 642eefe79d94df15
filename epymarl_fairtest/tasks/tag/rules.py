"""Tag (MPE simple_tag, the paper's PP): predators, the agents under test, hunt a prey that is not.

State: x, y, vx, vy of each predator and then of the prey, then x, y of each obstacle.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from gymnasium.spaces import Tuple
from numpy.typing import NDArray

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.tasks.contract import Allocation, Array, Kernel, Task, env_reward
from epymarl_fairtest.tasks.layers import wrappers
from epymarl_fairtest.tasks.mpe.rules import MpeTask, distance, paid_by
from epymarl_fairtest.tasks.scene import Field, Fields, Kind, planes
from epymarl_fairtest.tasks.tag.features import features
from epymarl_fairtest.tasks.tag.situations import course, situation

INSTEAD = "Use env_args.key=epymarl_fairtest:mpe-tag-v0, or pretrained_wrapper=PretrainedTag with simple-tag."


def prey_distance(state: Array, reward: Array) -> Array:
    """Minus each predator's distance to the (first) prey, after the step: the paper's allocation."""
    n = reward.shape[-1]
    predators = state[..., : 4 * n].reshape(*state.shape[:-1], n, 4)
    prey = state[..., None, 4 * n : 4 * n + 2]
    return -distance(predators, prey)


class TagTask(MpeTask):
    """The scenario pays all predators the same: choose `prey_distance`."""

    name: ClassVar[str] = "tag"
    order: ClassVar[int] = 2
    theta: ClassVar[float] = 0.80
    allocations: ClassVar[Mapping[str, Allocation]] = {"env": env_reward, "prey_distance": prey_distance}
    suggested_allocation: ClassVar[str] = "prey_distance"
    environments: ClassVar[Mapping[str, str]] = {"mpe-tag-v0": "epymarl_fairtest.tasks.tag.environment:TagEnv"}
    twins: ClassVar[str] = "mpe-tag-v0 (prey_distance, prey fairtest or still)"
    legend: ClassVar[str] = "The diamond is the prey that the agents hunt; grey discs are obstacles."
    scenario: ClassVar[str] = "simple_tag"
    reach: ClassVar[float] = 0.9
    speed: ClassVar[float] = 1.0

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        actors = getattr(env, "action_space", None)
        if isinstance(actors, Tuple) and len(actors) != self.n_agents:
            raise FairTestError(
                f"This simple_tag lets the team move {len(actors)} agents, but only its {self.n_agents} "
                f"predators can be tested: someone else must move the prey. {INSTEAD}"
            )
        if any(type(layer).__name__ == "RandomTag" for layer in wrappers(env)):
            raise FairTestError(f"RandomTag's prey draws its moves unseeded, so no episode can be repeated. {INSTEAD}")

    @staticmethod
    def _under_test(world: Any) -> int:
        return sum(agent.adversary for agent in world.agents)

    def tail(self, others: list[int]) -> list[int]:
        """Everyone sees how fast the (other) prey moves."""
        return [4 * body + axis for body in others if body >= self.n_agents for axis in (2, 3)]

    def features(self, starts: Array) -> Array:
        return features(self.positions(starts), self._prey(starts), self.landmarks(starts))

    def situation(self, starts: Array) -> dict[str, Array]:
        return situation(self.positions(starts), self._prey(starts), self.landmarks(starts))

    def course(self, states: Array, length: NDArray[np.int32]) -> dict[str, Array]:
        return course(self.positions(states), self._prey(states), self.landmarks(states), length)

    def _prey(self, states: Array) -> Array:
        return self.everyone(states)[..., self.n_agents, :2]

    def twin(self, env: Any, allocation: str) -> Kernel | None:
        prey = next((layer.prey_name for layer in wrappers(env) if hasattr(layer, "prey_name")), None)
        if paid_by(env, allocation) != "prey_distance" or prey not in ("fairtest", "still"):
            return None
        from epymarl_fairtest.tasks.tag.twin import TagTwin

        return TagTwin(env, prey)

    def field(self, states: Array) -> Field:
        return self.fields(states[None], np.array([len(states) - 1]))[0]

    def fields(self, states: Array, steps: NDArray[np.integer[Any]]) -> Fields:
        agents = Kind("agent", self.positions(states), 0.075)  # sizes are the simulator's own
        prey = Kind("diamond", self.everyone(states)[..., self.n_agents :, :2], 0.05, "prey", trail=True)
        return planes([Kind("disc", self.landmarks(states), 0.2), prey, agents], steps)

    @classmethod
    def rebuilt(cls, agents: int, key: str, env_args: Mapping[str, Any]) -> Task | None:
        layout = ("num_good", "num_adversaries", "num_obstacles")
        known = {name: env_args[name] for name in layout if name in env_args}
        return cls.alone(**{"num_adversaries": agents, **known})
