"""VMAS scenarios, as EPyMARL plays them: one world, discrete actions. They are restored like what nobody knows.

State: x, y, vx, vy of every agent (those under test come first), then of every landmark. A scenario keeps more, each in
variables of its own, so a state is reached by its way (generic); what is known here is where everybody is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from epymarl_fairtest.tasks.contract import Allocation, Array, Task, env_reward
from epymarl_fairtest.tasks.generic.rules import GenericTask
from epymarl_fairtest.tasks.layers import wrappers
from epymarl_fairtest.tasks.scene import Field, bodies, plane

WIDE = 2.5  # where a world has no walls: no scenario begins farther out
OWN_ID = re.compile(r"vmas-([a-z_]+)")


def effort(state: Array, reward: Array) -> Array:
    """Minus the speed of each agent after the step: who does the work where all are paid for it."""
    moving = state[..., : 4 * reward.shape[-1]].reshape(*reward.shape, 4)
    speed: Array = np.sqrt((moving[..., 2:] ** 2).sum(axis=-1))
    return -speed


def _is_world(inner: Any) -> bool:
    return type(inner).__module__.startswith("vmas.") and hasattr(inner, "scenario") and hasattr(inner, "world")


class VmasTask(GenericTask):
    """Most scenarios pay all agents alike: some have a setting for it (`shared_rew`), all have `effort`."""

    name: ClassVar[str] = "vmas"
    order: ClassVar[int] = 9
    theta: ClassVar[float] = 0.80
    distinct_distance = 0.1
    placed = True
    allocations: ClassVar[Mapping[str, Allocation]] = {"env": env_reward, "effort": effort}
    suggested_allocation: ClassVar[str] = "effort"
    legend: ClassVar[str] = "Squares are landmarks, discs are agents that are not under test."
    actions: ClassVar[Sequence[str]] = (
        "stay", "down", "up", "left", "left and down", "left and up", "right", "right and down", "right and up",
    )  # fmt: skip

    @classmethod
    def recognises(cls, env: Any) -> bool:
        inner = wrappers(env)[-1]
        return _is_world(inner) and inner.num_envs == 1 and not inner.continuous_actions

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        world = wrappers(env)[-1].world
        self.n_agents = len(world.policy_agents)
        self.state_size = 4 * (len(world.agents) + len(world.landmarks))
        walls = [world.x_semidim, world.y_semidim]
        self.high = WIDE if None in walls else max(float(wall) for wall in walls)
        self.low = -self.high
        self._others = len(world.agents) - self.n_agents
        self._pushed = all(type(agent.dynamics).__name__ == "Holonomic" for agent in world.policy_agents)

    def source(self, env: Any) -> Any:
        return wrappers(env)[-1]

    def state(self, source: Any, seen: Sequence[Any]) -> Array:
        return self.read(source)

    def read(self, env: Any) -> Array:
        world = wrappers(env)[-1].world
        ours = world.policy_agents
        everybody = [*ours, *(agent for agent in world.agents if agent not in ours), *world.landmarks]
        parts = [part[0].numpy() for body in everybody for part in (body.state.pos, body.state.vel)]
        return np.concatenate(parts).astype(np.float64)

    def positions(self, states: Array) -> Array:
        return self._bodies(states)[..., : self.n_agents, :2]

    def motion(self, states: Array) -> Array:
        return self._bodies(states)[..., : self.n_agents, :]

    def start_places(self, starts: Array) -> Array:
        return self._bodies(starts)[..., :2]

    def _bodies(self, states: Array) -> Array:
        return states.reshape(*states.shape[:-1], -1, 4)

    def situation(self, starts: Array) -> dict[str, Array]:
        return Task.situation(self, starts)

    def action_name(self, action: int) -> str:
        return super().action_name(action) if self._pushed else f"action {action}"

    def field(self, states: Array) -> Field:
        at, tested = self._bodies(states)[..., :2], self.n_agents
        others, landmarks = at[:, tested : tested + self._others], at[:, tested + self._others :]
        agents = bodies("agent", at[:, :tested], 0.05)
        return plane([*bodies("square", landmarks, 0.05), *bodies("disc", others, 0.05), *agents])

    @classmethod
    def rebuilt(cls, agents: int, key: str, env_args: Mapping[str, Any]) -> Task | None:
        """Only a scenario of vmas' own: a folder may come from anybody."""
        name = OWN_ID.fullmatch(key)
        if name is None:
            return None
        import vmas

        return cls(vmas.make_env(scenario=name[1], num_envs=1, continuous_actions=False, **env_args))
