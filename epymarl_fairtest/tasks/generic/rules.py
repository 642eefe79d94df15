"""Any gymma-style environment: seeds, and continuations where it proves that it can be restored.

State: the flat observations of all agents, as the outermost layer shows them; they cannot be written back, so an
episode is continued by going its way again (`retraced`). Or what the environment's own `get_state` says (own.py).
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium.spaces import Box, Tuple, flatdim, flatten
from numpy.typing import NDArray

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.tasks.contract import MOST_FEATURES, Array, Task
from epymarl_fairtest.tasks.generic.own import own_state
from epymarl_fairtest.tasks.generic.proof import by_copy, by_state, same_continuations, same_episodes
from epymarl_fairtest.tasks.generic.snapshot import transfer
from epymarl_fairtest.tasks.layers import masked, wrappers
from epymarl_fairtest.tasks.world import World

REMEMBERED = ("last_obs", "_obs")
MASK = (
    "The environment's observations hold an action_mask, which neither the hosts' gymma nor FairTest looks at: agents"
    " are tested as they were trained, free to take any action."
)
LONGEST = 15  # steps of an episode that are compared


class WrongSize(FairTestError):
    """Observations that are not what the environment declares: no execution would be any use."""


class GenericTask(Task):
    """What is left when nothing is known: the environment's own reward, and episodes that differ by seed."""

    name: ClassVar[str] = "generic"
    theta: ClassVar[float] = 0.80
    restorable = False  # unless it is proved
    distinct_distance = 0.0
    order: ClassVar[int] = 2**31  # after everybody else
    placed = False
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
        self._own, self._masked = own_state(env, self.n_agents), masked(env)
        if self._own is not None:
            self.state_size = self._own.size
            if self._own.positions is not None:
                self.low, self.high, self.placed = self._own.low, self._own.high, True
                self.distinct_distance = (self.high - self.low) / 20  # as the particle tasks have it

    def admit(self, world: Callable[[], World], available: NDArray[np.bool_]) -> str:
        mask = MASK if self._masked else ""
        return " ".join(filter(None, [self._prove(world, available), mask]))

    def _prove(self, world: Callable[[], World], available: NDArray[np.bool_]) -> str:
        def actions(seed: int) -> list[NDArray[np.int16]]:
            """Joint actions at random, as many as are compared."""
            generator = np.random.default_rng(seed)
            steps = range(LONGEST)
            return [np.array([generator.choice(np.flatnonzero(row)) for row in available], np.int16) for _ in steps]

        self.retraced = self._own is None
        try:
            one, two = world(), world()
            different = same_episodes(one, two, actions)
            if different is not None:
                return (
                    f"The environment does not give the same episode for the same seed and actions ({different}): what"
                    " is found cannot be replayed, and nothing can be restored. Seed every random number of it in"
                    " reset(seed=…)."
                )
            different = same_continuations(one, two, actions, by_copy if self.retraced else by_state)
        except WrongSize:
            raise
        except Exception as error:  # of an environment that nobody knows; what is wrong with it shows when it is tested
            return f"The environment cannot be restored ({type(error).__name__}: {error}): only seeds are tested."
        if different is not None:
            return f"The environment does not go on alike from a restored state ({different}): only seeds are tested."
        self.restorable = self.state_size > 0
        self.proposable = self._own is not None and self._own.positions is not None
        return ""

    def transfer(self, source: Any, target: Any) -> None:
        transfer(source, target)

    def write(self, env: Any, state: Array, step: int) -> None:
        assert self._own is not None
        self._shown = self._own.write(env, state, step)

    def observe(self, env: Any) -> list[Any]:
        return list(self._shown)  # asked right after `write`

    def perturb(self, states: Array, rng: np.random.Generator) -> tuple[Array, NDArray[np.bool_]]:
        """The agents' coordinates, where they are known. Elsewhere nothing but the exploration is new."""
        if not self.proposable or self._own is None:
            return states.copy(), np.ones(len(states), bool)
        return self._own.perturbed(states, rng)

    def start_vectors(self, states: Array) -> Array:
        assert self._own is not None
        return self._own.vectors(states)

    def starts_from(self, vectors: Array) -> tuple[Array, NDArray[np.bool_]]:
        assert self._own is not None
        return self._own.from_vectors(vectors)

    def source(self, env: Any) -> Any:
        return env if self._own is None else self._own.layer(env)

    def state(self, source: Any, seen: Sequence[Any]) -> Array:
        if self._own is not None:
            return self._own.read(source)
        pairs = zip(self._spaces, seen, strict=True)
        rows: list[Any] = [np.ravel(one) if isinstance(space, Box) else flatten(space, one) for space, one in pairs]
        sizes = [len(row) for row in rows]
        if sizes != self._sizes:
            raise WrongSize(
                f"The agents of {type(source.unwrapped).__name__} see {sizes} numbers, and its observation_space says"
                f" {self._sizes}. Observations must have the size that the environment declares, in every step."
            )
        return np.concatenate(rows).astype(np.float64) if rows else np.zeros(0)

    def read(self, env: Any) -> Array:
        """What some layer remembers to have shown (`last_obs` or `_obs`, as hosts' wrappers do); zeros otherwise."""
        if self._own is not None:
            return self._own.read(self._own.layer(env))
        layers = [layer for layer in wrappers(env) if _spaces(layer)]
        seen = next((vars(layer)[name] for layer in layers for name in REMEMBERED if name in vars(layer)), None)
        return np.zeros(self.state_size) if seen is None else self.state(env, seen)

    def situation(self, starts: Array) -> dict[str, Array]:
        """What each agent sees first, number by number; or the numbers of the environment's own state."""
        if self._own is not None:
            return super().situation(starts)
        owner = np.repeat(np.arange(len(self._sizes)), self._sizes)[:MOST_FEATURES]
        place = np.concatenate([np.arange(size) for size in self._sizes] or [np.arange(0)])[:MOST_FEATURES]
        names = [f"number {n + 1} that agent {agent + 1} sees" for agent, n in zip(owner, place, strict=True)]
        return {name: starts[:, n] for n, name in enumerate(names) if n < starts.shape[1]}

    def positions(self, states: Array) -> Array:
        """Where the environment says; otherwise the first two numbers that each agent sees, better than nothing."""
        if self._own is not None and self._own.positions is not None:
            found: Array = states[..., self._own.positions]
            return found
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
        self.n_agents, self.state_size, self._own = agents, state_size, None
        self._sizes = [state_size // agents] * agents if agents and state_size % agents == 0 else []
