"""The layers of an environment: gymnasium, hosts and PettingZoo wrap the simulator, each in its own way."""

from typing import Any

import gymnasium
from gymnasium.spaces import Box, Dict, Tuple, flatten, flatten_space


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
    """Set the step of every wrapper that counts steps. Call it before writing: it may have to reset."""
    if any(not getattr(layer, "_has_reset", True) for layer in chain):
        chain[0].reset()  # gymnasium's checkers remember their first observation and fail without it
    for layer in chain:
        if hasattr(layer, "_elapsed_steps"):
            layer._elapsed_steps = step


def flattened(env: Any) -> Any:
    """`env`, with observations that are no arrays (dictionaries, choices) as the numbers that the hosts' gymma makes of
    them."""
    spaces = getattr(env, "observation_space", None)
    if not isinstance(spaces, Tuple) or all(isinstance(space, Box) for space in spaces):
        return env
    return Flat(env)


class Flat(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Every agent's observation as one row of numbers."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.observation_space = Tuple([flatten_space(space) for space in env.observation_space])

    def observation(self, observation: Any) -> Any:
        spaces: Any = self.env.observation_space
        return tuple(flatten(space, one) for space, one in zip(spaces, observation, strict=True))


def masked(env: Any) -> bool:
    """Do observations tell which actions are allowed now?"""
    spaces = (getattr(layer, "observation_space", None) for layer in wrappers(env))
    each = [space for both in spaces if isinstance(both, Tuple) for space in both]
    return any(isinstance(space, Dict) and "action_mask" in space.spaces for space in each)


def sides(env: Any, agents: int) -> dict[str, list[int]] | None:
    """The `agents` under test by their kind, counted from 1, where the environment gives them names of several kinds.

    PettingZoo calls them adversary_0, agent_0, agent_1.
    """
    for layer in wrappers(env):
        names = getattr(layer, "possible_agents", None)
        if isinstance(names, list | tuple) and len(names) == agents and all(isinstance(name, str) for name in names):
            kinds: dict[str, list[int]] = {}
            for number, name in enumerate(names, 1):
                kinds.setdefault(name.rstrip("0123456789").rstrip("_-"), []).append(number)
            return kinds if 1 < len(kinds) < agents else None
    return None
