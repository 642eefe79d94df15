"""Any gymma-style environment: seeds and action replay only.

State: the flat observations of all agents, as the outermost layer shows them. It cannot be written back.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium.spaces import Box, Tuple, flatdim, flatten

from epymarl_fairtest.tasks.contract import MOST_FEATURES, Array, Task
from epymarl_fairtest.tasks.layers import wrappers

REMEMBERED = ("last_obs", "_obs")


class GenericTask(Task):
    """What is left when nothing is known: the environment's own reward, and episodes that differ by seed."""

    name: ClassVar[str] = "generic"
    theta: ClassVar[float] = 0.80
    restorable: ClassVar[bool] = False
    distinct_distance: ClassVar[float] = 0.0
    order: ClassVar[int] = 2**31  # after everybody else
    placed: ClassVar[bool] = False
    low = -1.0
    high = 1.0

    @classmethod
    def recognises(cls, env: Any) -> bool:
        return True

    def __init__(self, env: Any) -> None:
        actors = getattr(env, "action_space", None)
        self.n_agents = len(actors) if isinstance(actors, Tuple) else int(getattr(env, "n_agents", 1))
        self._spaces = next((spaces for layer in wrappers(env) if (spaces := _spaces(layer))), [])
        self._sizes = [flatdim(space) for space in self._spaces]
        self.state_size = sum(self._sizes)

    def state(self, source: Any, seen: Sequence[Any]) -> Array:
        pairs = zip(self._spaces, seen, strict=True)
        rows: list[Any] = [np.ravel(one) if isinstance(space, Box) else flatten(space, one) for space, one in pairs]
        return np.concatenate(rows).astype(np.float64) if rows else np.zeros(0)

    def read(self, env: Any) -> Array:
        """What some layer remembers to have shown (`last_obs` or `_obs`, as hosts' wrappers do); zeros otherwise."""
        layers = [layer for layer in wrappers(env) if _spaces(layer)]
        seen = next((vars(layer)[name] for layer in layers for name in REMEMBERED if name in vars(layer)), None)
        return np.zeros(self.state_size) if seen is None else self.state(env, seen)

    def situation(self, starts: Array) -> dict[str, Array]:
        """What each agent sees first, number by number."""
        owner = np.repeat(np.arange(len(self._sizes)), self._sizes)[:MOST_FEATURES]
        place = np.concatenate([np.arange(size) for size in self._sizes] or [np.arange(0)])[:MOST_FEATURES]
        names = [f"number {n + 1} that agent {agent + 1} sees" for agent, n in zip(owner, place, strict=True)]
        return {name: starts[:, n] for n, name in enumerate(names) if n < starts.shape[1]}

    def positions(self, states: Array) -> Array:
        """The first two numbers that each agent sees: a place in many environments, better than nothing."""
        places = np.zeros((*states.shape[:-1], self.n_agents, 2))
        starts = np.cumsum([0, *self._sizes])
        for agent, (start, size) in enumerate(zip(starts[: self.n_agents], self._sizes, strict=False)):
            places[..., agent, : min(size, 2)] = states[..., start : start + min(size, 2)]
        return places


def _spaces(layer: Any) -> list[Any]:
    spaces = getattr(layer, "observation_space", None)
    return list(spaces) if isinstance(spaces, Tuple) else []


class Unplaced(GenericTask):
    """A recorded run whose states cannot be understood: what each agent sees first is taken for its position."""

    def __init__(self, agents: int, state_size: int) -> None:
        self.n_agents, self.state_size = agents, state_size
        self._sizes = [state_size // agents] * agents if agents and state_size % agents == 0 else []
