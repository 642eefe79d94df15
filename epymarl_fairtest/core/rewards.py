"""What an episode may pay: one number per agent and step that can be judged, or an error that says where."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core.episodes import Episodes
from epymarl_fairtest.core.errors import FairTestError

Rewards = NDArray[np.float64]

LARGEST = 1e100  # of any number of these the sum, and the sum's square, is a float


def side_by_side(rewards: Sequence[Rewards], agents: int) -> Rewards:
    """The rewards of several worlds as rows. One that is not a number per agent would be given to the wrong agents."""
    for reward in rewards:
        if np.shape(reward) != (agents,):
            raise FairTestError(
                f"A world paid a reward of the shape {np.shape(reward)}; FairTest needs one number for each of the"
                f" {agents} agents, the shape ({agents},)."
            )
    return np.array(rewards, np.float64)


def first_odd(rewards: Rewards) -> tuple[int, ...] | None:
    """Where (.., step, agent) the first reward stands that is NaN, infinite or too large to be judged."""
    if rewards.min(initial=0.0) >= -LARGEST and rewards.max(initial=0.0) <= LARGEST:  # not if one is NaN
        return None
    return tuple(int(place) for place in np.argwhere(~(np.abs(rewards) <= LARGEST))[0])


def odd_reward(value: float, where: str) -> FairTestError:
    return FairTestError(
        f"An agent received the reward {value} ({where}), which cannot be judged: a reward must be a finite number of"
        f" at most {LARGEST:g}. Mend the environment's reward, or the allocation."
    )


def refuse_odd(episodes: Episodes) -> Episodes:
    """The episodes, unless an agent received what cannot be judged."""
    place = first_odd(episodes.rewards)
    if place is not None:
        row, step, agent = place
        where = f"seed {episodes.root_seed[row]}, step {step}, agent {agent}"
        raise odd_reward(float(episodes.rewards[place]), where)
    return episodes
