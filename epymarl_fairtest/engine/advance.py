"""The end of a step of a group, compiled: write what was seen, done and received, and go to the next step."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from epymarl_fairtest.core.rewards import LARGEST
from epymarl_fairtest.tasks.kernels.copies import clear, copy, fetch
from epymarl_fairtest.tasks.kernels.sizes import Sizes

Amounts = NDArray[np.float64]
Rows = NDArray[np.int64]
Mask = NDArray[np.bool_]
Actions = NDArray[np.int16]
Values = NDArray[np.float32]

AHEAD = 4  # rows: how early the processor is told where it will write, for each row is elsewhere (docs/decisions/082)


@njit(cache=True, nogil=True)
def record(
    seen: Values, scores: Values, course: Amounts, done: Actions, received: Amounts, length: NDArray[np.int32],
    rows: Rows, inputs: Values, q: Values, states: Amounts, actions: Actions, rewards: Amounts, over: Mask, limit: int,
    last: Actions, step: NDArray[np.int32], at: Rows, left: Mask, agents: Sizes, sights: Sizes, choices: Sizes,
    numbers: Sizes,
) -> int:  # fmt: skip
    """Write a step of the rows that are left to where it belongs (the first six), make the next step the current one,
    clear what is behind the last step of those that are over, and say how many rows are left. The sizes of what is
    written come last; what was seen may have no room (`seen` is empty then, and the rest is compiled only once)."""
    running, width, kept = 0, inputs.shape[2], seen.shape[3] > 0
    team, sight, scored, size = len(agents), len(sights), len(agents) * len(choices), len(numbers)
    for row in range(len(rows)):
        ahead = row + AHEAD
        if ahead < len(rows):
            to = rows[ahead] * limit + step[ahead]
            fetch(done, to * team, team)
            fetch(received, to * team, team)
            fetch(seen, to * team * sight, team * sight if kept else 0)
            fetch(scores, to * scored, scored)
            fetch(course, (to + rows[ahead] + 1) * size, size)
        if left[row]:
            to = rows[row] * limit + step[row]
            copy(last, row * team, actions, row * team, team)
            copy(done, to * team, actions, row * team, team)
            copy(received, to * team, rewards, row * team, team)
            for agent in range(team if kept else 0):
                copy(seen, (to * team + agent) * sight, inputs, (row * team + agent) * width, sight)
            copy(scores, to * scored, q, row * scored, scored)
            copy(course, (to + rows[row] + 1) * size, states, row * size, size)  # one step more than of the others
            step[row] += 1
            at[row] += 1
            length[rows[row]] = step[row]
            left[row] = not over[row] and step[row] < limit
            running += left[row]
            if over[row]:  # what was in this memory before must not show
                to, rest = to + 1, limit - step[row]
                clear(received, to * team, rest * team)
                clear(seen, to * team * sight, rest * team * sight if kept else 0)
                clear(scores, to * scored, rest * scored)
                clear(course, (to + rows[row] + 1) * size, rest * size)
    return running


@njit(cache=True, nogil=True)
def add_up(
    totals: Amounts, running: Mask, actions: Actions, rewards: Amounts, over: Mask, limit: int, last: Actions,
    step: NDArray[np.int32], at: Rows, left: Mask,
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
