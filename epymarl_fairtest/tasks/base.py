"""What FairTest knows of an environment family: the contract every task fulfils.

A task never knows a policy, an engine or a training framework. `env` below is always the outermost
environment that was handed in (gymnasium wrappers around the simulator included); a task finds its
simulator inside. A *state* is a float64 vector of `state_size` numbers from which, together with the
step count, the simulator continues bit for bit.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Allocation = Callable[[Array, Array], Array]
"""f(state after the step (..., state_size), the environment's reward (..., n_agents)) -> (..., n_agents)"""


def env_reward(state: Array, reward: Array) -> Array:
    """The allocation `env`: what the environment itself pays each agent."""
    return reward


ABILITIES = {
    "restorable": "states that can be written back",
    "proposable": "initial states that can be proposed as vectors",
}
"""What a method may need beyond the compulsory part of a task, as its error message says it."""


class Task(ABC):
    """Compulsory: everything abstract. Optional: `perturb` and `write` where `restorable` is True, `start_vectors`
    and `starts_from` where `proposable` is True."""

    name: ClassVar[str]
    theta: ClassVar[float]  # failure threshold unless the user sets one
    restorable: ClassVar[bool]  # can states be written back?
    proposable: ClassVar[bool] = False  # can initial states be made of vectors in [-1, 1]?
    allocations: ClassVar[Mapping[str, Allocation]] = {"env": env_reward}
    suggested_allocation: ClassVar[str] = "env"  # what to choose when the environment pays everyone the same
    distinct_distance: ClassVar[float]  # two failures of one root this close are one (position units)

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

    def reset(self, env: Any, seed: int) -> Any:
        """Start the episode of `seed`: always the same one, whatever `env` played before."""
        return env.reset(seed=seed)

    def observe(self, env: Any) -> list[NDArray[np.float32]]:
        """What each agent under test sees now, flat, as the environment's own reset would return it."""
        raise NotImplementedError(f"task {self.name} cannot be restored")

    def write(self, env: Any, state: Array, step: int) -> None:
        """Put the simulator and every wrapper that counts or remembers into `state` at `step`."""
        raise NotImplementedError(f"task {self.name} cannot be restored")

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

    def cells(self, states: Array, bins: int) -> NDArray[np.int64]:
        """Coverage cell of each state (...,): `bins` per position coordinate of the agents under test."""
        at = self.positions(states).reshape(*states.shape[:-1], -1)
        digit = np.clip(((at - self.low) / (self.high - self.low) * bins).astype(np.int64), 0, bins - 1)
        return digit @ (bins ** np.arange(digit.shape[-1], dtype=np.int64))

    def cell_count(self, bins: int) -> int:
        return bins ** (2 * self.n_agents)


def wrappers(env: Any) -> list[Any]:
    """`env` and everything it wraps, outermost first; gymnasium, hosts and PettingZoo name it differently."""
    chain = [env]
    while True:
        inside = (getattr(chain[-1], name, None) for name in ("env", "_env", "aec_env"))
        inner = next((layer for layer in inside if layer is not None), None)
        if inner is None or any(inner is layer for layer in chain):
            return chain
        chain.append(inner)


def set_clocks(chain: list[Any], step: int) -> None:
    """Let every wrapper that counts believe in `step` steps. Call it before writing: it may have to reset."""
    if any(not getattr(layer, "_has_reset", True) for layer in chain):
        chain[0].reset()  # gymnasium's checkers remember their first observation and cannot do without
    for layer in chain:
        if hasattr(layer, "_elapsed_steps"):
            layer._elapsed_steps = step
