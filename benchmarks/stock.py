"""The environments as upstream publishes them, under ids that both hosts accept.

FairTest's own environments play by the same rules and cost half as much. What a host's runner costs without
FairTest is measured on these.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Tuple

from epymarl_fairtest.tasks.mpe.environment import FOREVER
from epymarl_fairtest.tasks.mpe.rules import scenario_module
from epymarl_fairtest.tasks.tag.prey import Prey

KEYS = {
    "spread": "benchmarks.stock:mpe-stock-spread-v0",
    "tag": "benchmarks.stock:mpe-stock-tag-v0",
    "foraging": "benchmarks.stock:lbforaging-stock-v0",
}


class StockParticles(gymnasium.Env[Any, Any]):
    """PettingZoo's parallel environment of a scenario; a prey, if there is one, moves by our network."""

    def __init__(self, scenario: str, tested: int, **ignored: Any) -> None:
        self._env = scenario_module(scenario).parallel_env(max_cycles=FOREVER)
        names = self._env.possible_agents
        self.n_agents, self._tested, self._others = tested, names[:tested], names[tested:]
        self._prey = Prey.load().act
        self.action_space = Tuple([self._env.action_space(name) for name in self._tested])
        self.observation_space = Tuple([self._env.observation_space(name) for name in self._tested])
        self._seen: dict[str, Any] = {}

    def seed(self, seed: int | None = None) -> None:
        pass

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self._seen, _ = self._env.reset(seed=seed)
        return tuple(self._seen[name] for name in self._tested), {}

    def step(self, action: Any) -> Any:
        chosen = dict(zip(self._tested, map(int, action), strict=True))
        chosen |= {name: self._prey(self._seen[name]) for name in self._others}
        self._seen, rewards, over, _, _ = self._env.step(chosen)
        paid = [float(rewards[name]) for name in self._tested]
        return tuple(self._seen[name] for name in self._tested), paid, bool(np.any(list(over.values()))), False, {}


def foraging(**ignored: Any) -> Any:
    from lbforaging.foraging.environment import ForagingEnv

    return ForagingEnv(
        players=3,
        min_player_level=[1, 1, 2],
        max_player_level=[1, 1, 2],
        min_food_level=1,
        max_food_level=None,
        field_size=(8, 8),
        max_num_food=3,
        sight=8,
        max_episode_steps=50,
        force_coop=False,
    )


_ENTRIES: tuple[tuple[str, Any, dict[str, Any]], ...] = (
    ("mpe-stock-spread-v0", StockParticles, {"scenario": "simple_spread", "tested": 3}),
    ("mpe-stock-tag-v0", StockParticles, {"scenario": "simple_tag", "tested": 3}),
    ("lbforaging-stock-v0", foraging, {}),
)
for _key, _entry, _kwargs in _ENTRIES:
    gymnasium.register(_key, entry_point=_entry, kwargs=_kwargs, disable_env_checker=True)
