"""The end of a step of a group, compiled: write what was done and received, and go to the next step."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from epymarl_fairtest.core.rewards import LARGEST

Amounts = NDArray[np.float64]


@njit(cache=True, nogil=True)
def advance(
    done: NDArray[np.int16], received: Amounts, rows: NDArray[np.int64], running: NDArray[np.bool_],
    actions: NDArray[np.int16], rewards: Amounts, over: NDArray[np.bool_], limit: int,
    last: NDArray[np.int16], step: NDArray[np.int32], at: NDArray[np.int64], left: NDArray[np.bool_],
) -> None:  # fmt: skip
    """Write what running rows did and received in a step, and make their next step the current one."""
    for row in range(len(rows)):
        if running[row]:
            for agent in range(actions.shape[1]):
                last[row, agent] = done[rows[row], step[row], agent] = actions[row, agent]
                received[rows[row], step[row], agent] = rewards[row, agent]
            step[row] += 1
            at[row] += 1
            left[row] = not over[row] and step[row] < limit


@njit(cache=True, nogil=True)
def add_up(
    totals: Amounts, running: NDArray[np.bool_], actions: NDArray[np.int16], rewards: Amounts,
    over: NDArray[np.bool_], limit: int, last: NDArray[np.int16], step: NDArray[np.int32], at: NDArray[np.int64],
    left: NDArray[np.bool_],
) -> int:  # fmt: skip
    """Add what running rows received, and make their next step the current one. The first row that received what cannot
    be judged, or -1."""
    odd = -1
    for row in range(len(running)):
        if running[row]:
            for agent in range(actions.shape[1]):
                last[row, agent] = actions[row, agent]
                totals[row, agent] += rewards[row, agent]
                if odd < 0 and not abs(rewards[row, agent]) <= LARGEST:
                    odd = row
            step[row] += 1
            at[row] += 1
            left[row] = not over[row] and step[row] < limit
    return odd
