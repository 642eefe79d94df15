"""A world made of a bare gymnasium environment: what `fairtest run` uses where no host is installed.

It sees exactly what the hosts' gymma wrapper shows its agents: flat float32 observations, padded to
the longest, and the allocation instead of the summed reward.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.tasks.base import Allocation, Task


def flat(observations: Sequence[Any], size: int) -> NDArray[np.float32]:
    """Per-agent observations as rows of `size` numbers, padded with zeros on the right."""
    values = [np.asarray(observation, np.float32).ravel() for observation in observations]
    if all(len(row) == size for row in values):
        return np.array(values)
    rows = np.zeros((len(values), size), np.float32)
    for row, seen in zip(rows, values, strict=True):
        row[: len(seen)] = seen
    return rows


class BareWorld:
    """One environment with its own step limit."""

    def __init__(self, env: Any, task: Task, allocation: Allocation, *, limit: int, obs_size: int) -> None:
        self._env, self._task, self._allocation = env, task, allocation
        self._limit, self._obs_size = limit, obs_size
        self._step = 0
        self.obs = np.zeros((task.n_agents, obs_size), np.float32)
        self.reward = np.zeros(task.n_agents)
        self.done = False

    def reset(self, seed: int) -> None:
        observations, _ = self._task.reset(self._env, seed)
        self._begin(observations, 0)

    def restore(self, state: NDArray[np.float64], step: int) -> None:
        self._task.write(self._env, state, step)
        self._begin(self._task.observe(self._env), step)

    def _begin(self, observations: Sequence[Any], step: int) -> None:
        self.obs = flat(observations, self._obs_size)
        self._step, self.done = step, False

    def step(self, actions: NDArray[np.int16]) -> None:
        observations, reward, terminated, truncated, _ = self._env.step([int(a) for a in actions])
        self._step += 1
        self.obs = flat(observations, self._obs_size)
        self.reward = self._allocation(self._task.read(self._env), np.asarray(reward, np.float64))
        self.done = bool(np.all(terminated)) or bool(np.all(truncated)) or self._step >= self._limit

    def state(self) -> NDArray[np.float64]:
        return self._task.read(self._env)
