"""What spread and tag share: the particle simulator inside any stack, its state, and our fast environments.

State layout of both tasks: x, y, vx, vy of every simulator agent (the agents under test come first), then
x, y of every landmark. Landmarks never move and silent agents say nothing, so this is all there is.
"""

import importlib
from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from types import ModuleType
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.spaces import Tuple
from numpy.typing import NDArray

from epymarl_fairtest.errors import FairTestError
from epymarl_fairtest.tasks.base import Array, Task, set_clocks, wrappers

CLOSEST = 1e-6  # centres of colliding entities closer than this divide by (almost) zero in the simulator
FOREVER = 2**62  # cycles; the host's TimeLimit ends episodes, PettingZoo's own end swallows the last reward
_ZERO = np.zeros(1)


def scenario_module(name: str) -> ModuleType:
    """`simple_spread` or `simple_tag` from mpe2, or from PettingZoo releases that still hold it."""
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


def _padded_state(world: Any) -> Array:
    """The state vector of a simulator world and a zero behind it, as a new array."""
    parts: list[Array] = []
    for agent in world.agents:
        parts += (agent.state.p_pos, agent.state.p_vel)
    parts += [landmark.state.p_pos for landmark in world.landmarks]
    parts.append(_ZERO)
    return np.concatenate(parts)


class MpeTask(Task):
    """A task of the particle simulator; subclasses say which scenario, who is tested and how fast."""

    restorable: ClassVar[bool] = True
    proposable: ClassVar[bool] = True
    distinct_distance: ClassVar[float] = 0.1
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
        self.state_size = 4 * self.bodies + 2 * len(world.landmarks)
        self._collides = np.array([entity.collide for entity in world.agents + world.landmarks])

    @classmethod
    def _simulator(cls, chain: list[Any]) -> Any:
        found = simulator(chain, cls.scenario)
        if found is None:
            raise FairTestError(f"{chain[0]} holds no {cls.scenario}; task {cls.name} needs one.")
        return found

    @staticmethod
    def _under_test(world: Any) -> int:
        return len(world.agents)

    @abstractmethod
    def tail(self, others: list[int]) -> list[int]:
        """Indices into the state (or just past its end: zero) that end the observation, seeing `others`."""

    def read(self, env: Any) -> Array:
        return _padded_state(self._simulator(wrappers(env)).world)[:-1]

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
        return states[..., 4 * self.bodies :].reshape(*states.shape[:-1], -1, 2)

    def write(self, env: Any, state: Array, step: int) -> None:
        chain = wrappers(env)
        inner = self._simulator(chain)
        world = inner.world
        set_clocks(chain, step)
        moving, resting = self.everyone(state), self.landmarks(state)
        for agent, body in zip(world.agents, moving, strict=True):
            # Copies: the simulator moves positions in place.
            agent.state.p_pos, agent.state.p_vel = body[:2].copy(), body[2:].copy()
            agent.state.c = np.zeros(world.dim_c)
        for landmark, place in zip(world.landmarks, resting, strict=True):
            landmark.state.p_pos, landmark.state.p_vel = place.copy(), np.zeros(world.dim_p)
        _revive(inner, step)
        _remind(chain, inner)

    def perturb(self, states: Array, rng: np.random.Generator) -> tuple[Array, NDArray[np.bool_]]:
        new = states.copy()
        tested = slice(0, 4 * self.n_agents)
        old = states[:, tested]
        # What was recorded beyond the bound stays reachable: many predators lie outside the unit square.
        limit = np.maximum(np.tile([1.0, 1.0, self.speed, self.speed], self.n_agents), np.abs(old))
        new[:, tested] = np.clip(old * rng.uniform(0.8, 1.2, old.shape), -limit, limit)
        return new, np.isfinite(new).all(axis=1) & (new != states).any(axis=1) & ~self._touching(new)

    def start_vectors(self, states: Array) -> Array:
        """The positions as they are, agents before landmarks: scaling would cost their last bit."""
        bodies = self.everyone(states)[..., :2].reshape(*states.shape[:-1], -1)
        return np.concatenate([bodies, states[..., 4 * self.bodies :]], axis=-1)

    def starts_from(self, vectors: Array) -> tuple[Array, NDArray[np.bool_]]:
        """Everyone at rest. A place that no reset would draw is refused, and so are two bodies on one spot."""
        moving = 2 * self.bodies
        states = np.zeros((len(vectors), self.state_size))
        self.everyone(states)[..., :2] = vectors[:, :moving].reshape(len(vectors), -1, 2)
        states[:, 4 * self.bodies :] = vectors[:, moving:]
        bounds = np.where(np.arange(vectors.shape[1]) < moving, 1.0, self.reach)
        return states, (np.abs(vectors) <= bounds).all(axis=1) & ~self._touching(states)

    def _touching(self, states: Array) -> NDArray[np.bool_]:
        """Do two colliding entities share a centre (within CLOSEST)?"""
        centres = np.concatenate([self.everyone(states)[..., :2], self.landmarks(states)], axis=-2)
        centres = centres[..., self._collides, :]
        first, second = np.triu_indices(centres.shape[-2], k=1)
        between = distance(centres[..., first, :], centres[..., second, :])
        return np.less(between.min(axis=-1, initial=np.inf), CLOSEST)


def distance(a: Array, b: Array) -> Array:
    """Euclidean, in the simulator's order of operations; the same bits for one state as for a batch."""
    dx, dy = a[..., 0] - b[..., 0], a[..., 1] - b[..., 1]
    return np.sqrt(dx * dx + dy * dy)


def _revive(inner: Any, step: int) -> None:
    """The bookkeeping of a running episode at `step`, also after PettingZoo has buried the agents."""
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
        if isinstance(layer, MpeEnv):
            layer.refresh()
        if "aec_env" in own:  # PettingZoo's parallel wrapper
            layer.agents = inner.agents[:]
        if "last_obs" in own:
            layer.last_obs = tuple(inner.observe(name) for name in inner.possible_agents)
        if "last_prey_obs" in own:
            layer.last_prey_obs = inner.observe(inner.possible_agents[-1])


class MpeEnv(gymnasium.Env[Any, Any]):
    """A particle environment that pays the allocation, without PettingZoo's wrappers: same bits, less time.

    Subclasses name the task and, where the simulator has agents that are not under test, move them.
    """

    metadata = {"render_modes": ["human", "rgb_array"], "render_fps": 10}  # noqa: RUF012  (gymnasium's way)
    task_class: ClassVar[type[MpeTask]]
    prey_name = ""  # who moves those that are not under test

    def __init__(self, allocation: str, **settings: Any) -> None:
        # Not above: the package imports the tasks, and the tasks import this module.
        from epymarl_fairtest.tasks import resolve_allocation

        for name in ("max_cycles", "continuous_actions"):
            if settings.pop(name, None):
                raise FairTestError(
                    f"{type(self).__name__} does not take {name}: its actions are discrete and it never ends "
                    f"by itself. Leave {name} out; the host's time_limit sets the length of an episode."
                )
        self._env = scenario_module(self.task_class.scenario).raw_env(max_cycles=FOREVER, **settings)
        self._env.world.apply_environment_force = partial(_contact_forces, self._env.world)
        self.render_mode = settings.get("render_mode")
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
        padded = _padded_state(self._env.world)
        if self._view is None:
            self._seen = tuple(self._env.observe(name) for name in self._env.possible_agents)
        else:
            plus, minus, cuts = self._view
            flat = (padded[plus] - padded[minus]).astype(np.float32)
            self._seen = tuple([flat[cut] for cut in cuts])
        return padded[:-1]

    def render(self) -> Any:
        return self._env.render()

    def close(self) -> None:
        self._env.close()


def _contact_forces(world: Any, p_force: list[Any]) -> list[Any]:
    """The simulator's own contact forces, asked for only where there can be one.

    The force falls off as exp(-gap / margin) and is exactly zero beyond 0.75 (exp underflows); adding that
    zero changes nothing. Asking for it was more than half the cost of a step of tag.
    """
    entities = world.entities
    at = [entity.state.p_pos.tolist() for entity in entities]
    reach = 751 * world.contact_margin
    for a, first in enumerate(entities):
        for b in range(a + 1, len(entities)):
            second = entities[b]
            if not (first.movable or second.movable):
                continue
            touching = first.size + second.size + reach
            if (at[a][0] - at[b][0]) ** 2 + (at[a][1] - at[b][1]) ** 2 > touching * touching:
                continue
            for body, force in zip((a, b), world.get_collision_force(first, second), strict=True):
                if force is not None:
                    p_force[body] = force + (0.0 if p_force[body] is None else p_force[body])
    return p_force


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
        start = len(plus)
        plus += [4 * me + 2, 4 * me + 3, 4 * me, 4 * me + 1]
        plus += [at + axis for at in relative for axis in (0, 1)] + tail
        minus += [zero] * 4 + [4 * me, 4 * me + 1] * len(relative) + [zero] * len(tail)
        cuts.append(slice(start, len(plus)))
        if (len(plus) - start,) != inner.observation_spaces[inner.possible_agents[me]].shape:
            return None
    return np.array(plus), np.array(minus), cuts
