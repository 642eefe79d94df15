"""The per-agent rewards: tapped between the host's wrapper, which sums them, and its environment."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.host.hosts import Host
from epymarl_fairtest.tasks import task_for
from epymarl_fairtest.tasks.allocation import resolve_allocation
from epymarl_fairtest.tasks.contract import Allocation, Task, env_reward
from epymarl_fairtest.tasks.world import World, per_agent

CARRIED = "fairtest_rewards"
"""The key under which a parallel runner's worker carries the allocation to the parent in `info`."""


Paid = NDArray[np.float64] | str
"""What each agent was paid, or why that cannot be said. Training must not end because of it."""


class Tap:
    """Stands in for the wrapper's inner environment and keeps what each agent was paid."""

    def __init__(self, env: Any, task: Task, allocation: Allocation) -> None:
        self.env = env
        self._task, self._allocation, self._source = task, allocation, task.source(env)
        self._own_reward = allocation is env_reward
        self.reward: Paid = np.zeros(task.n_agents)
        self.recorded: list[Paid] | None = None  # a list while an episode is recorded

    def __getattr__(self, name: str) -> Any:
        return getattr(self.env, name)

    def step(self, actions: Any) -> Any:
        result = self.env.step(actions)
        if not isinstance(self.reward, str):  # what went wrong once would go wrong at every step
            try:
                self.reward = self._paid(result)
            except Exception as error:  # the allocation may be the user's
                self.reward = in_words(error)
        if self.recorded is not None:
            self.recorded.append(self.reward)
        return result

    def _paid(self, result: Any) -> NDArray[np.float64]:
        reward = per_agent(result[1], self.env, self._task.n_agents)
        if self._own_reward:
            return reward
        return self._allocation(self._task.state(self._source, result[0]), reward)

    def reset(self, *args: Any, **kwargs: Any) -> Any:
        if self.recorded is not None:
            self.recorded.clear()
        return self.env.reset(*args, **kwargs)


def in_words(error: Exception) -> str:
    """An error in one line; of ours, the sentence alone."""
    return str(error) if isinstance(error, FairTestError) else f"{type(error).__name__}: {error}"


def insert_tap(wrapper: Any, allocation: str) -> Tap:
    """Put a tap into a host's wrapper."""
    task = task_for(wrapper._env)
    wrapper._env = tap = Tap(wrapper._env, task, resolve_allocation(task, allocation))
    return tap


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
    paid = tap.reward if isinstance(tap.reward, str) else tap.reward.tolist()
    return (*result, {**info, CARRIED: paid})


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


def host_world(wrapper: Any, task: Task, host: Host, allocation: str) -> World:
    """One of the host's wrappers as a world of the engine.

    It steps what the wrapper wraps (every inner wrapper included) and leaves out only what the wrapper
    itself does on top: summing the rewards we need apart, and padding with `np.pad`, a third of a step.
    """
    allocate, obs_size = resolve_allocation(task, allocation), int(wrapper.get_obs_size())
    return World(wrapper._env, task, allocate, obs_size=obs_size, ended=host.ended)
