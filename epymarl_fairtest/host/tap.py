"""The per-agent rewards: tapped between the host's wrapper, which sums them, and its environment."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.engine.world import flat
from epymarl_fairtest.errors import FairTestError
from epymarl_fairtest.host.hosts import Host
from epymarl_fairtest.tasks import resolve_allocation, task_for
from epymarl_fairtest.tasks.base import Allocation, Task, env_reward, wrappers

CARRIED = "fairtest_rewards"
"""The key under which a parallel runner's worker carries the allocation to the parent in `info`."""


class Tap:
    """Stands in for the wrapper's inner environment and keeps what each agent was paid."""

    def __init__(self, env: Any, task: Task, allocation: Allocation) -> None:
        self.env = env
        self._task, self._allocation = task, allocation
        self._own_reward = allocation is env_reward
        self.reward: NDArray[np.float64] = np.zeros(task.n_agents)
        self.recorded: list[NDArray[np.float64]] | None = None  # a list while an episode is recorded

    def __getattr__(self, name: str) -> Any:
        return getattr(self.env, name)

    def step(self, actions: Any) -> Any:
        result = self.env.step(actions)
        reward = np.asarray(result[1], np.float64)
        if reward.ndim != 1:
            raise scalar_reward(self.env)
        self.reward = reward if self._own_reward else self._allocation(self._task.read(self.env), reward)
        if self.recorded is not None:
            self.recorded.append(self.reward)
        return result

    def reset(self, *args: Any, **kwargs: Any) -> Any:
        if self.recorded is not None:
            self.recorded.clear()
        return self.env.reset(*args, **kwargs)


def scalar_reward(env: Any) -> FairTestError:
    return FairTestError(
        f"The environment {getattr(env.unwrapped, 'spec', None) or env} pays one reward for the whole team, so"
        " nobody can say how it is shared. FairTest needs an environment whose step returns one reward per agent"
        " (level-based foraging, the particle environments), or a fairtest_args.allocation of your own."
    )


def insert_tap(wrapper: Any, allocation: str) -> Tap:
    """Put a tap into a host's wrapper."""
    task = task_for(wrapper._env)
    wrapper._env = Tap(wrapper._env, task, resolve_allocation(task, allocation))
    return wrapper._env


class TappedFactory:
    """An entry of the host's environment registry that makes tapped environments.

    Picklable, because a parallel runner sends it to its workers; there `carry` adds the allocation to
    the step's info, which is all that travels back.
    """

    def __init__(self, entry: Callable[..., Any], allocation: str, carry: bool) -> None:
        self._entry, self._allocation, self._carry = entry, allocation, carry
        self.made: list[Tap] = []

    def __call__(self, **kwargs: Any) -> Any:
        wrapper = self._entry(**kwargs)
        tap = insert_tap(wrapper, self._allocation)
        if self._carry:
            wrapper.step = partial(_carrying_step, wrapper.step, tap)
        self.made.append(tap)
        return wrapper


def _carrying_step(step: Callable[[Any], Any], tap: Tap, actions: Any) -> Any:
    *result, info = step(actions)
    return (*result, {**info, CARRIED: tap.reward.tolist()})


class TappedConnection:
    """A parallel runner's pipe to one worker: takes the carried allocation out before the runner looks."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.recorded: list[Any] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def recv(self) -> Any:
        data = self._connection.recv()
        if isinstance(data, dict) and isinstance(data.get("info"), dict):
            reward = data["info"].pop(CARRIED, None)
            if reward is not None and self.recorded is not None:
                self.recorded.append(reward)
        return data


class HostWorld:
    """One of the host's wrappers as a world of the engine.

    It steps what the wrapper wraps (every inner wrapper included) and leaves out only what the wrapper
    itself does on top: summing the rewards we need apart, and padding with `np.pad`, a third of a step.
    """

    def __init__(self, wrapper: Any, task: Task, host: Host, allocation: str) -> None:
        self._env, self._task, self._host = wrapper._env, task, host
        self._inner = wrappers(wrapper._env)[-1]  # found once, not at every read
        self._allocation = resolve_allocation(task, allocation)
        self._obs_size = int(wrapper.get_obs_size())
        self.obs: NDArray[np.float32] = np.zeros((task.n_agents, self._obs_size), np.float32)
        self.reward: NDArray[np.float64] = np.zeros(task.n_agents)
        self.done = False

    def reset(self, seed: int) -> None:
        observations, _ = self._task.reset(self._env, seed)
        self._see(observations)
        self.done = False

    def restore(self, state: NDArray[np.float64], step: int) -> None:
        self._task.write(self._env, state, step)
        self._see(self._task.observe(self._env))
        self.done = False

    def step(self, actions: NDArray[np.int16]) -> None:
        result = self._env.step(actions.tolist())
        reward = np.asarray(result[1], np.float64)
        if reward.ndim != 1:
            raise scalar_reward(self._env)
        self._see(result[0])
        self.reward = reward if self._allocation is env_reward else self._allocation(self.state(), reward)
        self.done = self._host.ended(result)

    def _see(self, observations: Any) -> None:
        self.obs = flat(observations, self._obs_size)

    def state(self) -> NDArray[np.float64]:
        return self._task.read(self._inner)
