"""`epymarl_fairtest:lbforaging-v0`: lbforaging with episodes that depend on their seed alone, only faster."""

from typing import Any

import numpy as np

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.tasks.foraging.field import food_slots, forget


def make_foraging_env(**settings: Any) -> Any:
    """`epymarl_fairtest:lbforaging-v0`: levels 1, 1, 2 on 8x8 cells, three foods; `settings` override."""
    try:
        from lbforaging.foraging.environment import ForagingEnv
    except ImportError as error:
        raise FairTestError("lbforaging is not installed: run `pip install lbforaging`.") from error

    class LeanForagingEnv(ForagingEnv):  # in here: importing lbforaging takes a while
        """Upstream's rules; a reset forgets the last episode, and observations cost a fifth."""

        def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
            forget(self)
            return super().reset(seed=seed, options=options)

        def _make_gym_obs(self) -> Any:
            if self._grid_observation or not self._observe_agent_levels or self.sight < max(self.field_size):
                return super()._make_gym_obs()
            # Everybody sees everything: the food, then oneself, then the others in their order.
            food = food_slots(self.field, self.max_num_food)
            standing = [[*player.position, player.level] for player in self.players]
            seen = []
            for me, own in enumerate(standing):
                others = [n for i, other in enumerate(standing) if i != me for n in other]
                seen.append(np.array(food + own + others, np.float32))
            return tuple(seen)

    defaults = {
        "players": 3,
        "min_player_level": [1, 1, 2],
        "max_player_level": [1, 1, 2],
        "min_food_level": 1,
        "max_food_level": None,
        "field_size": (8, 8),
        "max_num_food": 3,
        "sight": 8,
        "max_episode_steps": 50,
        "force_coop": False,
    }
    return LeanForagingEnv(**{**defaults, **settings})
