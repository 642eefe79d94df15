"""Particle environments that pay the allocation, without PettingZoo's wrappers: same bits, less time."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.spaces import Tuple
from numpy.typing import NDArray

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.tasks.allocation import resolve_allocation
from epymarl_fairtest.tasks.contract import Array
from epymarl_fairtest.tasks.mpe.rules import MpeTask, padded_state, scenario_module

FOREVER = 2**62  # cycles; the host's TimeLimit ends episodes, PettingZoo's own end swallows the last reward

NO_FORCE = 751  # margins between two bodies: exp underflows
FAINT = -38.0  # margins: further apart, log1p(exp(depth)) is exp(depth) to the last bit


class MpeEnv(gymnasium.Env[Any, Any]):
    """A particle environment that pays the allocation, without PettingZoo's wrappers: same bits, less time.

    Subclasses name the task and, where the simulator has agents that are not under test, move them.
    """

    metadata = {"render_modes": ["human", "rgb_array"], "render_fps": 10}  # noqa: RUF012  (gymnasium's way)
    task_class: ClassVar[type[MpeTask]]
    prey_name = ""  # who moves those that are not under test

    def __init__(self, allocation: str, **settings: Any) -> None:
        for name in ("max_cycles", "continuous_actions"):
            if settings.pop(name, None):
                raise FairTestError(
                    f"{type(self).__name__} does not take {name}: its actions are discrete and it never ends "
                    f"by itself. Leave {name} out; the host's time_limit sets the length of an episode."
                )
        self._env = scenario_module(self.task_class.scenario).raw_env(max_cycles=FOREVER, **settings)
        self._env.world.apply_environment_force = partial(_contact_forces, self._env.world, _pairs(self._env.world))
        self.render_mode = settings.get("render_mode")
        if self.render_mode is None:
            self._env.screen = None  # two megabytes on which nothing is drawn
        self.task = self.task_class(self)
        self.n_agents = self.task.n_agents
        self.allocation_name, self.allocation = allocation, resolve_allocation(self.task, allocation)
        self._tested = self._env.possible_agents[: self.n_agents]
        self.action_space = Tuple([self._env.action_spaces[name] for name in self._tested])
        self.observation_space = Tuple([self._env.observation_spaces[name] for name in self._tested])
        self._own_reward_matters = allocation == "env" or allocation not in self.task.allocations
        if not self._own_reward_matters:
            # Our own allocations need the state alone; the scenario's reward costs as much as the physics.
            self._env.local_ratio = None
            self._env.scenario.reward = _nothing
        self._unknown = np.zeros(self.n_agents)
        self._view = _view(self._env, self.task)
        self._seen: tuple[NDArray[np.float32], ...] = ()  # by every simulator agent
        self._next_seed: int | None = None

    @property
    def shows_everything(self) -> bool:
        """Does every agent see all landmarks and all others?"""
        return self._view is not None

    def seed(self, seed: int | None = None) -> None:
        """The next reset starts the stream that `reset(seed=seed)` would start."""
        self._next_seed = seed

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[tuple[NDArray[np.float32], ...], dict[str, Any]]:
        self._env.reset(seed=self._next_seed if seed is None else seed)
        self._next_seed = None
        self.refresh()
        return self._seen[: self.n_agents], {}

    def step(  # type: ignore[override]  # one reward per agent, as hosts expect it
        self, action: Sequence[int]
    ) -> tuple[tuple[NDArray[np.float32], ...], list[float], bool, bool, dict[str, Any]]:
        if len(action) != self.n_agents:
            raise ValueError(f"{len(action)} actions for {self.n_agents} agents")
        inner = self._env
        for one in self.everyones_actions(action):
            inner.step(one)
        state = self.refresh()
        own = np.array([inner.rewards[name] for name in self._tested]) if self._own_reward_matters else None
        paid: list[float] = self.allocation(state, self._unknown if own is None else own).tolist()
        return self._seen[: self.n_agents], paid, inner.terminations[self._tested[0]], False, {}

    def everyones_actions(self, actions: Sequence[int]) -> list[int]:
        """The actions of all simulator agents, those that are not under test included."""
        return [int(action) for action in actions]

    def refresh(self) -> Array:
        """Look again after the world has changed; gives the state."""
        if self._view is None:
            self._seen = tuple(self._env.observe(name) for name in self._env.possible_agents)
            return self.task.state_of(self._env.world)
        padded = padded_state(self._env.world)
        plus, minus, cuts = self._view
        flat = (padded[plus] - padded[minus]).astype(np.float32)
        self._seen = tuple([flat[cut] for cut in cuts])
        return padded[:-1]

    def render(self) -> Any:
        return self._env.render()

    def close(self) -> None:
        self._env.close()


Pair = tuple[int, int, Any, Any, float, float]  # two entities: numbers, themselves, their sizes together, their reach


def _pairs(world: Any) -> list[Pair]:
    """Who can push whom, in the simulator's order, and from how far."""
    entities = world.entities
    pairs = []
    for a, first in enumerate(entities):
        for b in range(a + 1, len(entities)):
            second = entities[b]
            if first.collide and second.collide and (first.movable or second.movable):
                sizes = first.size + second.size
                pairs.append((a, b, first, second, sizes, sizes + NO_FORCE * world.contact_margin))
    return pairs


def _contact_forces(world: Any, pairs: list[Pair], p_force: list[Any]) -> list[Any]:
    """The simulator's contact forces; the simulator itself is asked only where two bodies are about to touch.

    The force falls off as exp(-gap / margin). Beyond 0.75 it is exactly zero (exp underflows), and adding that zero
    changes nothing. Between 0.04 and 0.75 it is next to nothing, but not zero: the same operations on plain floats
    give the same bits in a tenth of the time. Asking for all was more than half the cost of a step of tag.
    """
    margin, strength = world.contact_margin, world.contact_force
    at = [entity.state.p_pos.tolist() for entity in world.entities]
    sums: list[Any] = [None if force is None else force.tolist() for force in p_force]
    for a, b, first, second, sizes, reach in pairs:
        dx, dy = at[a][0] - at[b][0], at[a][1] - at[b][1]
        square = dx * dx + dy * dy
        if square > reach * reach:
            continue
        distance = math.sqrt(square)
        depth = -(distance - sizes) / margin
        if depth < FAINT:
            penetration = math.exp(depth) * margin
            fx, fy = strength * dx / distance * penetration, strength * dy / distance * penetration
            forces: Any = ((fx, fy), (-fx, -fy))
        else:
            forces = world.get_collision_force(first, second)
        for body, force in zip((a, b), forces, strict=True):
            if force is not None and sums[body] is not None:
                sums[body] = [force[0] + sums[body][0], force[1] + sums[body][1]]
    return [None if force is None else np.array(force) for force in sums]


def _nothing(agent: Any, world: Any) -> float:
    return 0.0


View = tuple[NDArray[np.intp], NDArray[np.intp], list[slice]]


def _view(inner: Any, task: MpeTask) -> View | None:
    """All observations as one subtraction `padded[plus] - padded[minus]` of the state with a zero behind it.

    An agent sees its own velocity, its own position, landmarks and then the others relative to itself, and
    the task's tail. None where a scenario shows something else (only the nearest): it must look for itself.
    """
    if any(getattr(inner.scenario, f"num_{who}_neighbors", None) for who in ("agent", "landmark")):
        return None
    zero = task.state_size
    places = list(range(4 * task.bodies, zero, 2))
    plus: list[int] = []
    minus: list[int] = []
    cuts: list[slice] = []
    for me in range(task.bodies):
        others = [body for body in range(task.bodies) if body != me]
        relative = places + [4 * other for other in others]
        tail = task.tail(others)
        if tail is None:
            return None
        start = len(plus)
        plus += [4 * me + 2, 4 * me + 3, 4 * me, 4 * me + 1]
        plus += [at + axis for at in relative for axis in (0, 1)] + tail
        minus += [zero] * 4 + [4 * me, 4 * me + 1] * len(relative) + [zero] * len(tail)
        cuts.append(slice(start, len(plus)))
        if (len(plus) - start,) != inner.observation_spaces[inner.possible_agents[me]].shape:
            return None
    return np.array(plus), np.array(minus), cuts
