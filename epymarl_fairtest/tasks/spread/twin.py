"""The twin of spread (simple_spread paying `nearest_landmark`)."""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from epymarl_fairtest.tasks.layers import wrappers
from epymarl_fairtest.tasks.mpe.physics import Array, constants, look, move, push, scatter, separation


class SpreadTwin:
    def __init__(self, env: Any) -> None:
        self._bodies = len(wrappers(env)[-1].world.agents)
        self._constants = constants(wrappers(env)[-1].world)

    def reset(self, seeds: NDArray[np.int64], states: Array) -> None:
        scatter(seeds, states, self._bodies, 1.0)

    def observe(self, states: Array, running: NDArray[np.bool_], seen: NDArray[np.float32]) -> None:
        _observe(states, running, seen, self._bodies)

    def step(
        self, states: Array, running: NDArray[np.bool_], actions: NDArray[np.int16], rewards: Array,
        over: NDArray[np.bool_], steps: NDArray[np.int32],
    ) -> None:  # fmt: skip
        _step(states, running, actions, rewards, over, self._bodies, *self._constants)


@njit(cache=True, nogil=True)
def _observe(states: Array, running: NDArray[np.bool_], seen: NDArray[np.float32], bodies: int) -> None:
    for row in range(len(states)):
        if running[row]:
            for me in range(bodies):
                end = look(states[row], me, bodies, seen[row, me])
                seen[row, me, end:] = 0.0  # what the others say: nothing


@njit(cache=True, nogil=True)
def _step(
    states: Array, running: NDArray[np.bool_], actions: NDArray[np.int16], rewards: Array, over: NDArray[np.bool_],
    bodies: int, thrust: Array, limit: Array, collides: NDArray[np.bool_], size: Array,
) -> None:  # fmt: skip
    force = np.zeros((bodies, 2))
    for row in range(len(states)):
        if not running[row]:
            continue
        state = states[row]
        for body in range(bodies):
            push(force, body, actions[row, body], thrust[body])
        move(state, force, bodies, limit, collides, size)
        over[row] = False
        for body in range(bodies):
            nearest = np.inf
            for place in range(4 * bodies, len(state), 2):
                away = separation(state[4 * body], state[4 * body + 1], state[place], state[place + 1])
                nearest = min(nearest, away)
            rewards[row, body] = -nearest
