"""What FairTest knows of an environment family: the contract every task fulfils.

A task never knows a policy, an engine or a training framework. `env` below is always the outermost
environment that was handed in (gymnasium wrappers around the simulator included); a task finds its
simulator inside. A *state* is a float64 vector of `state_size` numbers from which, together with the
step count, the simulator continues bit for bit.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core.registry import LATER, is_name
from epymarl_fairtest.core.rng import mix
from epymarl_fairtest.tasks.scene import Field, Fields, unknown_field
from epymarl_fairtest.tasks.views import numbered

Array = NDArray[np.float64]
Allocation = Callable[[Array, Array], Array]
"""f(state after the step (..., state_size), the environment's reward (..., n_agents)) -> (..., n_agents)"""


def env_reward(state: Array, reward: Array) -> Array:
    """The allocation `env`: what the environment itself pays each agent."""
    return reward


MOST_FEATURES = 200  # of a start whose numbers have no names
MOST_NUMBERS = 2**63  # of an int64 that is not negative

ABILITIES = {
    "restorable": "states that can be written back",
    "proposable": "initial states that can be proposed as vectors",
}
"""What a method may need beyond the compulsory part of a task, as its error message says it."""


class Kernel(Protocol):
    """A task's rules on rows of states, compiled; only rows that are `running` may be touched.

    One that says `sees_only = True` writes, for each agent, what it sees and nothing behind it: it may be handed the
    inputs of a network, which are wider, as `seen`.
    """

    def reset(self, seeds: NDArray[np.int64], states: Array) -> None: ...
    def observe(self, states: Array, running: NDArray[np.bool_], seen: NDArray[np.float32]) -> None: ...
    def step(
        self, states: Array, running: NDArray[np.bool_], actions: NDArray[np.int16], rewards: Array,
        over: NDArray[np.bool_], steps: NDArray[np.int32],
    ) -> None: ...  # fmt: skip


@dataclass(frozen=True)
class Edit:
    """One way to make a start simpler: what it does in words, and to states (state_size,)."""

    words: str
    apply: Callable[[Array], Array]


@dataclass(frozen=True)
class Competence:
    """When a team is good enough for its unfairness to mean anything. Without a `least_share` it must beat a random
    team, and itself in the first half of its training."""

    execution: str = "greedy"  # how it plays to show it
    least_share: float | None = None  # of all there is to receive, which is 1
    most_empty: float | None = None  # share of the episodes in which nobody receives anything


class Task(ABC):
    """Compulsory: everything abstract. Optional: `perturb` and `write` where `restorable` is True, `start_vectors`
    and `starts_from` where `proposable` is True, a `twin` that is faster, a `field` to draw."""

    name: ClassVar[str]
    order: ClassVar[int] = LATER  # in which tasks are asked whether an environment is theirs
    theta: ClassVar[float]  # failure threshold unless the user sets one
    restorable: bool  # can states be written back?
    proposable: bool = False  # can initial states be made of vectors in [-1, 1]?
    retraced: bool = False  # is a state reached by its seed and the actions that led there, not by its numbers?
    allocations: ClassVar[Mapping[str, Allocation]] = {"env": env_reward}
    suggested_allocation: ClassVar[str] = "env"  # what to choose when the environment pays everyone the same
    distinct_distance: float  # two failures this close are one (position units)

    environments: ClassVar[Mapping[str, str]] = {}  # gymnasium id -> entry point, registered for our own tasks
    twins: ClassVar[str] = ""  # of which environments and allocations it has one, for an error message
    actions: ClassVar[Sequence[str]] = ()  # their names, in the order of their numbers
    legend: ClassVar[str] = ""  # what a drawing shows besides the agents
    grid: ClassVar[bool] = False  # positions are row and column of a grid, not x and y of a plane
    placed: bool = True  # positions are places, not just numbers that differ between episodes

    n_agents: int  # agents under test
    state_size: int
    low: float  # position bounds, for coverage and drawing
    high: float

    @classmethod
    @abstractmethod
    def recognises(cls, env: Any) -> bool:
        """Is `env` of this family?"""

    @abstractmethod
    def __init__(self, env: Any) -> None:
        """Read the sizes from a live environment; keep no reference to it."""

    @abstractmethod
    def read(self, env: Any) -> Array:
        """The simulator's state now, as a new array."""

    @abstractmethod
    def positions(self, states: Array) -> Array:
        """Positions of the agents under test: states (..., state_size) to (..., n_agents, 2)."""

    def source(self, env: Any) -> Any:
        """The layer of `env` that `read` looks at: found once, not at every step."""
        return env

    def state(self, source: Any, seen: Sequence[Any]) -> Array:
        """The state now that the agents see `seen`: what `read` finds in `source`, unless there is no better one."""
        return self.read(source)

    def reset(self, env: Any, seed: int) -> Any:
        """Start the episode of `seed`: always the same one, whatever `env` played before."""
        return env.reset(seed=seed)

    def observe(self, env: Any) -> list[NDArray[np.float32]]:
        """What each agent under test sees now, flat, as the environment's own reset would return it."""
        raise NotImplementedError(f"task {self.name} cannot be restored")

    def write(self, env: Any, state: Array, step: int) -> None:
        """Put the simulator and every wrapper that counts or remembers into `state` at `step`."""
        raise NotImplementedError(f"task {self.name} cannot be restored")

    def admit(self, world: Callable[[], Any], available: NDArray[np.bool_]) -> str:
        """Find out, in worlds (tasks/world.py) made for nothing else, what cannot be known from looking at an
        environment; in a few words why it can do less than one would hope, or nothing."""
        return ""

    def transfer(self, source: Any, target: Any) -> None:
        """Put `target` into the state of `source`, an environment made alike. Asked where `retraced` is True."""
        raise NotImplementedError(f"task {self.name} cannot be copied")

    def perturb(self, states: Array, rng: np.random.Generator) -> tuple[Array, NDArray[np.bool_]]:
        """One try each: new states (B, state_size) and which of them keep the rules (B,).

        Positions and velocities of the agents under test are scaled by U(0.8, 1.2) per coordinate;
        everything else stays. A refused or unchanged row is marked False; the caller tries again.
        """
        raise NotImplementedError(f"task {self.name} cannot be perturbed")

    def motion(self, states: Array) -> Array:
        """Positions and velocities of the agents under test (..., n_agents, 4); velocities 0 where there are none."""
        at = self.positions(states)
        return np.concatenate([at, np.zeros_like(at)], axis=-1)

    def start_vectors(self, states: Array) -> Array:
        """Initial states (B, state_size) as vectors (B, V), scaled so that what can be drawn lies in [-1, 1]."""
        raise NotImplementedError(f"task {self.name} proposes no initial states")

    def starts_from(self, vectors: Array) -> tuple[Array, NDArray[np.bool_]]:
        """The other way round: initial states (B, state_size) and which of them keep the environment's rules (B,)."""
        raise NotImplementedError(f"task {self.name} proposes no initial states")

    def start_places(self, starts: Array) -> Array:
        """Where everything is that a reset places, agents and others (B, bodies, 2): how far starts are apart."""
        return self.positions(starts)

    def bodies_of_starts(self, size: int) -> NDArray[np.int64]:
        """To which body each of the `size` numbers of a start vector belongs: a bred start takes bodies whole."""
        return np.arange(size)

    def places(self, states: Array, bins: int) -> NDArray[np.int64]:
        """In which of bins x bins places each agent under test is: (..., n_agents)."""
        at = (self.positions(states) - self.low) / (self.high - self.low) * bins
        digit = np.clip(at.astype(np.int64), 0, bins - 1)
        places: NDArray[np.int64] = digit[..., 0] + bins * digit[..., 1]
        return places

    def cells(self, states: Array, bins: int) -> NDArray[np.int64]:
        """Coverage cell of each state (...,): `bins` per position coordinate of the agents under test. Hashed where
        there are more cells than numbers."""
        places = self.places(states, bins)
        if self.cell_count(bins) > MOST_NUMBERS:
            return _hashed(places)
        return places @ (bins ** (2 * np.arange(self.n_agents, dtype=np.int64)))

    def cell_count(self, bins: int) -> int:
        count: int = bins ** (2 * self.n_agents)
        return count

    def features(self, starts: Array) -> Array:
        """What an initial state (B, state_size) means for each agent (B, n_agents, F): numbers from which one model for
        all agents predicts what each will receive. What matters to an agent should stand in the same column for all."""
        everything = self.start_vectors(starts) if self.proposable else starts
        shared = np.broadcast_to(everything[:, None], (len(starts), self.n_agents, everything.shape[1]))
        return numbered([self.positions(starts), shared])

    def situation(self, starts: Array) -> dict[str, Array]:
        """Named features of initial states (B, state_size), each (B,): what a person would say of a start.

        A name that is a sentence is true or false (1 or 0); any other is a number that can be compared.
        """
        return {f"number {n + 1} of the state": starts[:, n] for n in range(min(self.state_size, MOST_FEATURES))}

    def course(self, states: Array, length: NDArray[np.int32]) -> dict[str, Array]:
        """Named features of what happened: states (B, steps + 1, state_size) of episodes of these lengths."""
        return {}

    def simplifications(self) -> list[Edit]:
        """Ways to make an initial state simpler, the most telling first; nobody promises that they keep the rules."""
        return []

    def as_read(self, states: Array) -> Array:
        """These states (B, state_size) as the environment itself would tell them."""
        return states

    def is_start(self, states: Array) -> NDArray[np.bool_]:
        """Which of these (B, state_size) can an episode begin with? What no reset would draw may still be one."""
        return np.isfinite(states).reshape(len(states), -1).all(axis=1)  # type: ignore[return-value]

    def action_name(self, action: int) -> str:
        return self.actions[action] if action < len(self.actions) else f"action {action}"

    def twin(self, env: Any, allocation: str) -> Kernel | None:
        """The compiled twin of this environment paying this allocation; None where there is none.

        A ValueError or AttributeError means the same: a variant that the twin does not know.
        """
        return None

    def field(self, states: Array) -> Field:
        """What the states of one episode (steps + 1, state_size) look like, to be drawn."""
        return unknown_field()

    def fields(self, states: Array, steps: NDArray[np.integer[Any]]) -> Fields | list[Field]:
        """The same of many episodes at once, for a page has thousands: (episodes, most steps + 1, state_size).

        `steps` says how many each has; one that ended early stands still from then on. Whoever overrides one of the
        two overrides the other. As `Fields` they are arrays, which a page packs faster than a list.
        """
        return [self.field(one[: last + 1]) for one, last in zip(states, steps.tolist(), strict=True)]

    @classmethod
    def rebuilt(cls, agents: int, key: str, env_args: Mapping[str, Any]) -> Task | None:
        """The task of a recorded run, from the arguments of its environment; None where it cannot be made again."""
        return None

    def competence(self, env: Any) -> Competence:
        """When a team is worth testing in `env`."""
        return Competence()


def _hashed(places: NDArray[np.int64]) -> NDArray[np.int64]:
    """A number per row (..., agents) that no other row is likely to have."""
    word = np.zeros(places.shape[:-1], np.uint64)
    with np.errstate(over="ignore"):
        for agent in range(places.shape[-1]):
            word = mix(word * np.uint64(3) + places[..., agent].astype(np.uint64) + np.uint64(1))
    return (word >> np.uint64(1)).astype(np.int64)


def complaint(entry: Any) -> str | None:
    """What a foreign object lacks to be a task."""
    if not (isinstance(entry, type) and issubclass(entry, Task)):
        return f"is {entry!r}, not a subclass of {Task.__module__}.{Task.__qualname__}"
    needed = ("name", "theta", "restorable", "distinct_distance")
    lacking = [name for name in needed if not hasattr(entry, name)] + sorted(entry.__abstractmethods__)
    if lacking or inspect.isabstract(entry):
        return f"lacks {', '.join(lacking)}"
    return None if is_name(entry.name) else f"has the name {entry.name!r}, which is not a plain word"
