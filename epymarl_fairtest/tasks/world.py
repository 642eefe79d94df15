"""One environment as an engine steps it: what the agents see, what each was paid, and whether it is over.

It sees exactly what the hosts' gymma wrapper shows its agents: flat float32 observations, padded to the longest, and
the allocation instead of the summed reward. Inside a host it steps what the host's wrapper wraps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.tasks.contract import Allocation, Task, env_reward


def flat(observations: Sequence[Any], size: int) -> NDArray[np.float32]:
    """Per-agent observations as rows of `size` numbers, padded with zeros on the right."""
    values = [np.asarray(observation, np.float32).ravel() for observation in observations]
    if all(len(row) == size for row in values):
        return np.array(values)
    rows = np.zeros((len(values), size), np.float32)
    for row, seen in zip(rows, values, strict=True):
        row[: len(seen)] = seen
    return rows


def ended(result: tuple[Any, ...]) -> bool:
    """Is the episode over, by what gymnasium's `step` returned?"""
    return any(flag if isinstance(flag, bool) else bool(np.all(flag)) for flag in result[2:4])


def per_agent(reward: Any, env: Any, agents: int) -> NDArray[np.float64]:
    """What the environment paid each agent; refused where it is anything but one number for each."""
    paid = np.asarray(reward, np.float64)
    if paid.shape == (agents,):
        return paid
    which = f"The environment {getattr(env.unwrapped, 'spec', None) or env}"
    if paid.ndim == 0:
        raise FairTestError(
            f"{which} pays one reward for the whole team, so it cannot be said how it is shared. FairTest needs an"
            " environment whose step returns one reward per agent (level-based foraging, the particle environments)."
        )
    leave = " Agents that come and go are not supported: all must stay to the end." if paid.ndim == 1 else ""
    raise FairTestError(
        f"{which} pays rewards of the shape {paid.shape}; FairTest needs one number for each of its {agents} agents,"
        f" the shape ({agents},).{leave}"
    )


class World:
    """One environment, seen through its task."""

    def __init__(
        self,
        env: Any,
        task: Task,
        allocation: Allocation,
        *,
        obs_size: int,
        limit: int | None = None,
        ended: Callable[[tuple[Any, ...]], bool] = ended,
    ) -> None:
        """With a `limit` an episode is over after that many steps, whatever the environment says."""
        self._env, self._task, self._allocation = env, task, allocation
        self._source = task.source(env)
        self._obs_size, self._limit, self._ended = obs_size, limit, ended
        self._step = 0
        self._seen: Sequence[Any] = ()
        self.obs: NDArray[np.float32] = np.zeros((task.n_agents, obs_size), np.float32)
        self.reward: NDArray[np.float64] = np.zeros(task.n_agents)
        self.done = False

    def reset(self, seed: int) -> None:
        observations, _ = self._task.reset(self._env, seed)
        self._begin(observations, 0)

    def restore(self, state: NDArray[np.float64], step: int) -> None:
        self._task.write(self._env, state, step)
        self._begin(self._task.observe(self._env), step)

    @property
    def retraced(self) -> bool:
        """Must its way be gone again to come back to a state?"""
        return self._task.retraced

    def retrace(self, seed: int, actions: NDArray[np.int16]) -> None:
        """Where these joint actions (steps, agents) lead from the start of `seed`."""
        self.reset(seed)
        for joint in actions:
            self.step(joint)

    def follow(self, other: World) -> None:
        """To where another world is."""
        self._task.transfer(other._env, self._env)
        self._seen, self.obs, self.reward = other._seen, other.obs, other.reward
        self._step, self.done = other._step, other.done

    def _begin(self, observations: Sequence[Any], step: int) -> None:
        self._seen, self.obs = observations, flat(observations, self._obs_size)
        self._step, self.done = step, False

    def step(self, actions: NDArray[np.int16]) -> None:
        result = self._env.step(actions.tolist())
        reward = per_agent(result[1], self._env, self._task.n_agents)
        self._step += 1
        self._seen, self.obs = result[0], flat(result[0], self._obs_size)
        self.reward = reward if self._allocation is env_reward else self._allocation(self.state(), reward)
        self.done = self._ended(result) or self._step == self._limit

    def state(self) -> NDArray[np.float64]:
        return self._task.state(self._source, self._seen)
