"""The twin of spread (simple_spread paying `nearest_landmark`)."""

import math
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from epymarl_fairtest.tasks.kernels.sizes import Sizes, known
from epymarl_fairtest.tasks.layers import wrappers
from epymarl_fairtest.tasks.mpe import physics
from epymarl_fairtest.tasks.mpe.physics import BLOCK, Array, Rows, gather, look, move, put_back, way


class SpreadTwin:
    sees_only = True

    def __init__(self, env: Any) -> None:
        world = wrappers(env)[-1].world
        self._movers, self._places = known(len(world.agents)), known(len(world.landmarks))
        self._constants, self._room = physics.constants(world), physics.Room(self._movers, self._places)

    def reset(self, seeds: NDArray[np.int64], states: Array) -> None:
        physics.scatter(seeds, states, len(self._movers), 1.0)

    def observe(self, states: Array, running: NDArray[np.bool_], seen: NDArray[np.float32]) -> None:
        _observe(states, running, seen, self._movers, self._places)

    def step(
        self, states: Array, running: NDArray[np.bool_], actions: NDArray[np.int16], rewards: Array,
        over: NDArray[np.bool_], steps: NDArray[np.int32],
    ) -> None:  # fmt: skip
        _step(
            states, running, actions, rewards, over, *self._room.arrays, self._movers, self._places, *self._constants
        )  # fmt: skip


@njit(cache=True, nogil=True)
def _observe(
    states: Array, running: NDArray[np.bool_], seen: NDArray[np.float32], movers: Sizes, places: Sizes
) -> None:
    said = 2 + 2 * len(places) + 2 * len(movers)
    for row in range(len(states)):
        if running[row]:
            state = states[row]
            for me in range(len(movers)):
                view = seen[row, me]
                look(state, me, movers, places, view)
                for other in range(2 * (len(movers) - 1)):
                    view[said + other] = 0.0  # what the others say: nothing


@njit(cache=True, nogil=True, error_model="numpy")
def _step(
    states: Array, running: NDArray[np.bool_], actions: NDArray[np.int16], rewards: Array, over: NDArray[np.bool_],
    at: Array, bits: Rows, force: Array, reach: Array, near: NDArray[np.bool_], within: Rows, rows: Rows, paid: Array,
    movers: Sizes, places: Sizes, thrust: Array, limit: Array, collides: NDArray[np.bool_], size: Array,
) -> None:  # fmt: skip
    bodies, first = len(movers), 0
    while first < len(states):
        count, first = gather(states, running, first, rows, at, movers, places)
        for column in range(count):
            row = rows[column]
            over[row] = False
            for body in range(bodies):
                action = way(actions[row, body])
                for axis in range(2):
                    force[2 * body + axis, column] = thrust[body, action, axis]
        move(at, bits, force, reach, near, within, movers, places, limit, collides, size)
        for body in range(bodies):
            for column in range(BLOCK):
                least = np.inf  # squared: the root of the least is the least of the roots, bit for bit
                for place in range(len(places)):
                    dx = at[4 * body, column] - at[4 * bodies + 2 * place, column]
                    dy = at[4 * body + 1, column] - at[4 * bodies + 2 * place + 1, column]
                    square = dx * dx + dy * dy
                    least = square if square < least else least
                paid[column] = -math.sqrt(least)
            for column in range(count):
                rewards[rows[column], body] = paid[column]
        put_back(at, movers, rows, count, states)
