"""What an environment of the user's may say of itself, in a few methods: its state, and what may be done to it.

get_state() -> numbers        everything from which the simulator goes on
set_state(numbers) -> seen    puts it there, and returns what the agents see, as reset does
positions                     where in these numbers each agent's two coordinates are, [[0, 1], [2, 3]]
bounds                        the lowest and the highest coordinate, (0, 9)
valid(numbers) -> bool        may it be? (optional)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.tasks.layers import set_clocks, wrappers

Array = NDArray[np.float64]
METHODS = ("get_state", "set_state")


def layer_with_state(env: Any) -> Any | None:
    """The outermost layer that has both methods itself; wrappers of gymnasium only pass questions on."""
    for layer in wrappers(env):
        if all(callable(getattr(type(layer), name, None)) for name in METHODS):
            return layer
    return None


@dataclass(frozen=True)
class OwnState:
    """What one environment says of itself; nothing of it is kept."""

    size: int
    positions: NDArray[np.int64] | None  # (agents, 2)
    low: float
    high: float
    valid: Any  # a function of the numbers, or None

    def layer(self, env: Any) -> Any:
        return layer_with_state(env)

    def read(self, layer: Any) -> Array:
        return np.array(layer.get_state(), np.float64).ravel()

    def write(self, env: Any, state: Array, step: int) -> Sequence[Any]:
        """The simulator and every clock at `state` and `step`; what the agents see there, as the outermost layer
        shows it."""
        chain = wrappers(env)
        set_clocks(chain, step)
        layer = self.layer(env)
        seen = layer.set_state(state.copy())
        if seen is None:
            raise FairTestError(
                f"set_state of {type(layer).__name__} returns nothing; it must return what the agents see in that"
                " state, as reset does."
            )
        for outer in reversed(chain[: chain.index(layer)]):
            if isinstance(outer, gymnasium.ObservationWrapper):
                seen = outer.observation(seen)
        return list(seen)

    def allowed(self, states: Array) -> NDArray[np.bool_]:
        """Which of these (B, size) may be?"""
        may = [bool(np.isfinite(one).all()) and (self.valid is None or bool(self.valid(one.copy()))) for one in states]
        return np.array(may, bool)

    def perturbed(self, states: Array, rng: np.random.Generator) -> tuple[Array, NDArray[np.bool_]]:
        """The agents' coordinates scaled by U(0.8, 1.2), within the bounds; whole ones stay whole."""
        assert self.positions is not None
        new, at = states.copy(), self.positions.ravel()
        before = states[:, at]
        moved = np.clip(before * rng.uniform(0.8, 1.2, before.shape), self.low, self.high)
        whole = (before == np.rint(before)).all()
        new[:, at] = np.rint(moved) if whole else moved
        return new, (new != states).any(axis=1) & self.allowed(new)

    def vectors(self, states: Array) -> Array:
        """With coordinates in [-1, 1]; all other numbers as they are."""
        assert self.positions is not None
        new, at = states.copy(), self.positions.ravel()
        new[:, at] = (states[:, at] - self.low) / (self.high - self.low) * 2 - 1
        return new

    def from_vectors(self, vectors: Array) -> tuple[Array, NDArray[np.bool_]]:
        assert self.positions is not None
        new, at = vectors.copy(), self.positions.ravel()
        new[:, at] = np.clip((vectors[:, at] + 1) / 2 * (self.high - self.low) + self.low, self.low, self.high)
        return new, self.allowed(new)


def own_state(env: Any, agents: int) -> OwnState | None:
    """What `env` says of its state; None where it says nothing. What it says wrongly is refused."""
    layer = layer_with_state(env)
    if layer is None:
        return None
    try:
        size = int(np.asarray(layer.get_state(), np.float64).size)
    except Exception:  # not before its first reset, or a get_state of another meaning
        return None
    name, positions = type(layer).__name__, getattr(layer, "positions", None)
    if positions is None:
        return OwnState(size, None, -1.0, 1.0, getattr(layer, "valid", None))
    at = np.asarray(positions)
    if at.shape != (agents, 2) or at.dtype.kind not in "iu" or at.min() < 0 or at.max() >= size:
        raise FairTestError(
            f"{name}.positions={positions!r} does not say where the coordinates are: it must hold two whole numbers"
            f" from 0 to {size - 1} for each of the {agents} agents."
        )
    bounds = getattr(layer, "bounds", None)
    try:
        low, high = (float(number) for number in bounds)  # type: ignore[union-attr]
        if not (np.isfinite([low, high]).all() and low < high):
            raise ValueError
    except (TypeError, ValueError):
        raise FairTestError(
            f"{name}.bounds={bounds!r} must be the lowest and the highest coordinate, for example (0, 9)."
        ) from None
    return OwnState(size, at.astype(np.int64), low, high, getattr(layer, "valid", None))
