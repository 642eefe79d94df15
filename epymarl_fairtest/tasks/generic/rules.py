"""Any gymma-style environment: seeds and action replay only.

State: the flat observations of all agents, where some layer of the stack remembers them (`last_obs` or
`_obs`, as hosts' wrappers do); otherwise nothing, a vector of size 0. It cannot be written back.
"""

from typing import Any, ClassVar

import numpy as np
from gymnasium.spaces import Tuple, flatdim

from epymarl_fairtest.tasks.contract import Array, Task
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
        found = _memory(env)
        spaces = [] if found is None else _spaces(found[0])
        self._sizes = [flatdim(space) for space in spaces]
        self.state_size = sum(self._sizes)

    def read(self, env: Any) -> Array:
        found = _memory(env)
        seen = None if found is None else getattr(*found)
        if seen is None or self.state_size == 0:
            return np.zeros(self.state_size)
        return np.concatenate([np.ravel(one) for one in seen]).astype(np.float64)

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


def _memory(env: Any) -> tuple[Any, str] | None:
    """The outermost layer that remembers its observations and says how large they are."""
    for layer in wrappers(env):
        for name in REMEMBERED:
            if name in vars(layer) and _spaces(layer):
                return layer, name
    return None


class Unplaced(GenericTask):
    """A recorded run whose states cannot be understood: what each agent sees first is taken for its position."""

    def __init__(self, agents: int, state_size: int) -> None:
        self.n_agents, self.state_size = agents, state_size
        self._sizes = [state_size // agents] * agents if agents and state_size % agents == 0 else []
