"""Epsilon-greedy choice in compiled code; the same numbers and the same actions as `engine.action_rules.choose`."""

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from epymarl_fairtest.engine.contract import ActionRule
from epymarl_fairtest.tasks.kernels.sizes import Sizes

# Constants by name: numba takes longer to compile a call of np.uint64.
_1, _11, _27, _30, _31 = (np.uint64(number) for number in (1, 11, 27, 30, 31))
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_STEP = np.uint64(0x9E3779B97F4A7C15)


def slices(rule: ActionRule) -> NDArray[np.float64]:
    """Upper edges of the slices of [0, 1) that random actions have, (agents, actions)."""
    edges = np.cumsum(rule.available / rule.available.sum(axis=-1, keepdims=True), axis=-1)
    upper: NDArray[np.float64] = edges / edges[..., -1:]
    return upper


@njit(cache=True, nogil=True, inline="always")
def _mix(x: np.uint64) -> np.uint64:
    x = (x ^ (x >> _30)) * _FIRST
    x = (x ^ (x >> _27)) * _SECOND
    return x ^ (x >> _31)


@njit(cache=True, nogil=True, inline="always")
def _uniform(mixed_stream: np.uint64, counter: np.uint64) -> float:
    return np.float64(_mix(mixed_stream + (counter + _1) * _STEP) >> _11) * (1.0 / 9007199254740992.0)


@njit(cache=True, nogil=True)
def choose_epsilon_greedy(
    q: NDArray[np.float32], running: NDArray[np.bool_], stream: NDArray[np.uint64], at: NDArray[np.int64],
    epsilon: float, available: NDArray[np.bool_], edges: NDArray[np.float64], actions: NDArray[np.int16],
    each: Sizes, scored: Sizes,
) -> bool:  # fmt: skip
    """Fill `actions` of running rows; False as soon as a Q-value is not finite. The numbers of agents and of actions
    come last."""
    agents, count, all_available = len(each), len(scored), True
    for agent in range(agents):
        for action in range(count):
            all_available &= available[agent, action]
    for row in range(len(q)):
        if not running[row]:
            continue
        mixed = _mix(stream[row])
        for agent in range(agents):
            best, value = -1, np.float32(-np.inf)
            for action in range(count):
                if not math.isfinite(q[row, agent, action]):
                    return False
                if (all_available or available[agent, action]) and (best < 0 or q[row, agent, action] > value):
                    best, value = action, q[row, agent, action]
            counter = np.uint64(2 * (at[row] * agents + agent))
            if epsilon > 0.0 and _uniform(mixed, counter) < epsilon:
                u = _uniform(mixed, counter + _1)
                best = 0
                for action in range(count):
                    best += u >= edges[agent, action]
            actions[row, agent] = best
    return True
