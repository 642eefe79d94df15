"""What the particle tasks share: the particle simulator inside any stack of wrappers, and its state.

State layout: x, y, vx, vy of every simulator agent (the agents under test come first), then x, y of every landmark.
Landmarks never move and silent agents say nothing, so in most scenarios this is all there is; goals.py has the others.
"""

import importlib
from abc import abstractmethod
from collections.abc import Sequence
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.tasks.contract import Array, Edit, Task
from epymarl_fairtest.tasks.layers import set_clocks, wrappers
from epymarl_fairtest.tasks.mpe.simpler import simplifications

CLOSEST = 1e-6  # centres of colliding entities closer than this divide by (almost) zero in the simulator
_ZERO = np.zeros(1)


def scenario_module(name: str) -> ModuleType:
    """A scenario (`simple_spread`) from mpe2, or from PettingZoo releases that still hold it."""
    for package in ("mpe2", "pettingzoo.mpe"):
        try:
            return importlib.import_module(f"{package}.{name}.{name}")
        except ImportError:
            continue
    raise FairTestError(f"The particle environment {name} is not installed: run `pip install mpe2`.")


def simulator(chain: list[Any], scenario: str) -> Any | None:
    """The object with `.world` and `.scenario` at the bottom of a stack, if it plays `scenario`."""
    inner = chain[-1]
    module = type(getattr(inner, "scenario", None)).__module__
    return inner if hasattr(inner, "world") and module.endswith(f"{scenario}.{scenario}") else None


def padded_state(world: Any) -> Array:
    """The state vector of a simulator world and a zero behind it, as a new array."""
    parts: list[Array] = []
    for agent in world.agents:
        parts += (agent.state.p_pos, agent.state.p_vel)
    parts += [landmark.state.p_pos for landmark in world.landmarks]
    parts.append(_ZERO)
    return np.concatenate(parts)


class MpeTask(Task):
    """A task of the particle simulator; subclasses say which scenario, who is tested and how fast."""

    restorable: bool = True
    proposable: bool = True
    distinct_distance: float = 0.1
    actions: ClassVar[Sequence[str]] = ("stay", "left", "right", "down", "up")
    scenario: ClassVar[str]
    reach: ClassVar[float]  # landmarks are drawn this far from the centre along each axis; agents up to 1
    speed: ClassVar[float]  # no agent under test goes faster by itself along one axis
    low = -1.0
    high = 1.0

    @classmethod
    def recognises(cls, env: Any) -> bool:
        return simulator(wrappers(env), cls.scenario) is not None

    def __init__(self, env: Any) -> None:
        world = self._simulator(wrappers(env)).world
        self.bodies = len(world.agents)
        self.n_agents = self._under_test(world)
        self.placed_size = 4 * self.bodies + 2 * len(world.landmarks)  # numbers that say where everything is
        self.state_size = self.placed_size
        self._collides = np.array([entity.collide for entity in world.agents + world.landmarks])

    @classmethod
    def alone(cls, **settings: Any) -> Task:
        """The task of a scenario with these settings, without an environment that pays."""
        return cls(scenario_module(cls.scenario).raw_env(**settings))

    @classmethod
    def _simulator(cls, chain: list[Any]) -> Any:
        inner = simulator(chain, cls.scenario)
        if inner is None:
            raise FairTestError(f"{chain[0]} holds no {cls.scenario}; task {cls.name} needs one.")
        return inner

    @staticmethod
    def _under_test(world: Any) -> int:
        return len(world.agents)

    @abstractmethod
    def tail(self, others: list[int]) -> list[int] | None:
        """Indices into the state (or just past its end: zero) that end the observation, seeing `others`; None where
        agents do not see velocities, positions, landmarks and others."""

    def state_of(self, world: Any) -> Array:
        return padded_state(world)[:-1]

    def source(self, env: Any) -> Any:
        return wrappers(env)[-1]

    def state(self, source: Any, seen: Sequence[Any]) -> Array:
        return self.state_of(source.world)

    def read(self, env: Any) -> Array:
        return self.state_of(self._simulator(wrappers(env)).world)

    def observe(self, env: Any) -> list[NDArray[np.float32]]:
        inner = self._simulator(wrappers(env))
        return [inner.observe(name) for name in inner.possible_agents[: self.n_agents]]

    def positions(self, states: Array) -> Array:
        return self.everyone(states)[..., : self.n_agents, :2]

    def everyone(self, states: Array) -> Array:
        """x, y, vx, vy of all simulator agents: (..., bodies, 4)."""
        return states[..., : 4 * self.bodies].reshape(*states.shape[:-1], self.bodies, 4)

    def motion(self, states: Array) -> Array:
        return self.everyone(states)[..., : self.n_agents, :]

    def landmarks(self, states: Array) -> Array:
        return states[..., 4 * self.bodies : self.placed_size].reshape(*states.shape[:-1], -1, 2)

    def write(self, env: Any, state: Array, step: int) -> None:
        chain = wrappers(env)
        inner = self._simulator(chain)
        set_clocks(chain, step)
        self._put(inner.world, state)
        _revive(inner, step)
        _remind(chain, inner)

    def _put(self, world: Any, state: Array) -> None:
        """The simulator's world into `state`."""
        moving, resting = self.everyone(state), self.landmarks(state)
        for agent, body in zip(world.agents, moving, strict=True):
            # Copies: the simulator moves positions in place.
            agent.state.p_pos, agent.state.p_vel = body[:2].copy(), body[2:].copy()
            agent.state.c = np.zeros(world.dim_c)
        for landmark, place in zip(world.landmarks, resting, strict=True):
            landmark.state.p_pos, landmark.state.p_vel = place.copy(), np.zeros(world.dim_p)

    def perturb(self, states: Array, rng: np.random.Generator) -> tuple[Array, NDArray[np.bool_]]:
        new = states.copy()
        tested = slice(0, 4 * self.n_agents)
        old = states[:, tested]
        # What was recorded beyond the bound stays reachable: many predators are outside the unit square.
        limit = np.maximum(np.tile([1.0, 1.0, self.speed, self.speed], self.n_agents), np.abs(old))
        new[:, tested] = np.clip(old * rng.uniform(0.8, 1.2, old.shape), -limit, limit)
        return new, np.isfinite(new).all(axis=1) & (new != states).any(axis=1) & ~self._touching(new)

    def start_vectors(self, states: Array) -> Array:
        """The positions as they are, agents before landmarks: scaling would cost their last bit."""
        bodies = self.everyone(states)[..., :2].reshape(*states.shape[:-1], -1)
        return np.concatenate([bodies, states[..., 4 * self.bodies : self.placed_size]], axis=-1)

    def starts_from(self, vectors: Array) -> tuple[Array, NDArray[np.bool_]]:
        """Everyone at rest. A place that no reset would draw is refused, and so are two bodies on one spot."""
        moving = 2 * self.bodies
        states = np.zeros((len(vectors), self.state_size))
        self.everyone(states)[..., :2] = vectors[:, :moving].reshape(len(vectors), -1, 2)
        states[:, 4 * self.bodies : self.placed_size] = vectors[:, moving:]
        bounds = np.where(np.arange(vectors.shape[1]) < moving, 1.0, self.reach)
        return states, (np.abs(vectors) <= bounds).all(axis=1) & ~self._touching(states)

    def start_places(self, starts: Array) -> Array:
        return np.concatenate([self.everyone(starts)[..., :2], self.landmarks(starts)], axis=-2)

    def bodies_of_starts(self, size: int) -> NDArray[np.int64]:
        return np.arange(size) // 2  # x, y

    def simplifications(self) -> list[Edit]:
        """Everybody at rest; what does not matter out of the way; then round numbers."""
        return simplifications(self.bodies, self.n_agents, self.placed_size)

    def is_start(self, states: Array) -> NDArray[np.bool_]:
        return np.isfinite(states).all(axis=1) & ~self._touching(states)

    def _touching(self, states: Array) -> NDArray[np.bool_]:
        """Do two colliding entities share a centre (within CLOSEST)?"""
        centres = np.concatenate([self.everyone(states)[..., :2], self.landmarks(states)], axis=-2)
        centres = centres[..., self._collides, :]
        first, second = np.triu_indices(centres.shape[-2], k=1)
        between = distance(centres[..., first, :], centres[..., second, :])
        touching: NDArray[np.bool_] = np.less(between.min(axis=-1, initial=np.inf), CLOSEST)
        return touching


def paid_by(env: Any, allocation: str) -> str | None:
    """What our own environment inside `env` pays under `allocation`; None in any other environment."""
    ours = next((layer for layer in wrappers(env) if hasattr(layer, "allocation_name")), None)
    if ours is None or not ours.shows_everything:
        return None
    paid: str = ours.allocation_name if allocation == "env" else allocation
    return paid


def distance(a: Array, b: Array) -> Array:
    """Euclidean, in the simulator's order of operations; the same bits for one state as for a batch."""
    dx, dy = a[..., 0] - b[..., 0], a[..., 1] - b[..., 1]
    return np.sqrt(dx * dx + dy * dy)


def _revive(inner: Any, step: int) -> None:
    """The bookkeeping of a running episode at `step`, also after PettingZoo has removed the agents."""
    names = inner.possible_agents
    inner.agents = names[:]
    inner.rewards = dict.fromkeys(names, 0.0)
    inner._cumulative_rewards = dict.fromkeys(names, 0.0)
    inner.terminations = dict.fromkeys(names, False)
    inner.truncations = dict.fromkeys(names, False)
    inner.infos = {name: {} for name in names}
    inner.agent_selection = inner._agent_selector.reset()
    inner._skip_agent_selection = None
    inner.current_actions = [None] * len(names)
    inner.steps = step


def _remind(chain: list[Any], inner: Any) -> None:
    """Refresh what wrappers remember of the last observations."""
    for layer in chain:
        own = vars(layer)
        if hasattr(type(layer), "refresh"):  # ours
            layer.refresh()
        if "aec_env" in own:  # PettingZoo's parallel wrapper
            layer.agents = inner.agents[:]
        if "last_obs" in own:
            layer.last_obs = tuple(inner.observe(name) for name in inner.possible_agents)
        if "last_prey_obs" in own:
            layer.last_prey_obs = inner.observe(inner.possible_agents[-1])
