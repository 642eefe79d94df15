"""The twin of tag (simple_tag paying `prey_distance`), the prey's network included."""

import math
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from epymarl_fairtest.tasks.kernels.sizes import Sizes, known
from epymarl_fairtest.tasks.kernels.tiles import ACROSS, OUTPUTS, tile
from epymarl_fairtest.tasks.layers import wrappers
from epymarl_fairtest.tasks.mpe import physics
from epymarl_fairtest.tasks.mpe.physics import BLOCK, Array, Rows, columns, gather, look, move, put_back, way
from epymarl_fairtest.tasks.tag.prey import HIDDEN_BOUND, INPUT_BOUND, SHAPES, VALUE_SCALE, Prey

SEEN, HIDDEN, DONE = known(SHAPES["w1"][0]), known(SHAPES["w2"][0]), known(SHAPES["w3"][1])
UNUSED = -len(DONE) % OUTPUTS  # outputs that fill the last tile


class Room(physics.Room):
    """And where the prey's network is computed."""

    def __init__(self, movers: Sizes, places: Sizes) -> None:
        super().__init__(movers, places)
        self.layers = columns(len(HIDDEN)), columns(len(HIDDEN)), columns(len(DONE) + UNUSED)
        self.fled = np.zeros(BLOCK, np.int64)


class TagTwin:
    sees_only = True

    def __init__(self, env: Any, prey: str) -> None:
        world = wrappers(env)[-1].world
        if len(world.agents) != 4:
            raise ValueError("more than one prey, or not three predators")
        self._movers, self._places = known(len(world.agents)), known(len(world.landmarks))
        self._constants, self._room = physics.constants(world), Room(self._movers, self._places)
        self._moves = prey != "still"
        network = Prey.load()
        last = np.pad(network.w3, ((0, 0), (0, UNUSED))), np.pad(network.b3, (0, UNUSED))
        self._prey = (network.w1, network.b1, network.w2, network.b2, *last)

    def reset(self, seeds: NDArray[np.int64], states: Array) -> None:
        physics.scatter(seeds, states, len(self._movers), 0.9)

    def observe(self, states: Array, running: NDArray[np.bool_], seen: NDArray[np.float32]) -> None:
        _observe(states, running, seen, self._movers, self._places)

    def step(
        self, states: Array, running: NDArray[np.bool_], actions: NDArray[np.int16], rewards: Array,
        over: NDArray[np.bool_], steps: NDArray[np.int32],
    ) -> None:  # fmt: skip
        room = self._room
        _step(
            states, running, actions, rewards, over, *room.arrays, self._movers, self._places,
            *self._constants, self._moves, *room.layers, room.fled, *self._prey,
        )  # fmt: skip


@njit(cache=True, nogil=True)
def _observe(
    states: Array, running: NDArray[np.bool_], seen: NDArray[np.float32], movers: Sizes, places: Sizes
) -> None:
    prey, end = len(movers) - 1, 2 + 2 * len(places) + 2 * len(movers)
    for row in range(len(states)):
        if running[row]:
            state = states[row]
            for me in range(prey):
                view = seen[row, me]
                look(state, me, movers, places, view)
                view[end], view[end + 1] = state[4 * prey + 2], state[4 * prey + 3]


@njit(cache=True, nogil=True, inline="always")
def _snap(value: float, low: float, high: float) -> float:
    snapped: float = np.rint(min(max(value, low), high) * VALUE_SCALE) / VALUE_SCALE
    return snapped


@njit(cache=True, nogil=True)
def _layer(x: Array, inputs: int, weight: Array, bias: Array, out: Array) -> None:
    """Columns of out = weight.T @ x + bias. On the prey's grid every sum is exact: the order does not matter."""
    for output in range(0, len(out), OUTPUTS):
        for column in range(0, BLOCK, ACROSS):
            tile(x, inputs, weight, bias, out, output, column)


@njit(cache=True, nogil=True, inline="always")
def _flee(
    at: Array, movers: Sizes, places: Sizes, x: Array, hidden: Array, scores: Array, fled: NDArray[np.int64],
    w1: Array, b1: Array, w2: Array, b2: Array, w3: Array, b3: Array,
) -> None:  # fmt: skip
    """What the prey of every column does."""
    bodies, prey = len(movers), 4 * (len(movers) - 1)
    for column in range(BLOCK):
        x[0, column], x[1, column] = np.float32(at[prey + 2, column]), np.float32(at[prey + 3, column])
        x[2, column], x[3, column] = np.float32(at[prey, column]), np.float32(at[prey + 1, column])
    for place in range(len(places) + bodies - 1):
        other = 4 * bodies + 2 * place if place < len(places) else 4 * (place - len(places))
        for column in range(BLOCK):
            x[4 + 2 * place, column] = np.float32(at[other, column] - at[prey, column])
            x[5 + 2 * place, column] = np.float32(at[other + 1, column] - at[prey + 1, column])
    for i in range(len(SEEN)):
        for column in range(BLOCK):
            x[i, column] = _snap(x[i, column], -INPUT_BOUND, INPUT_BOUND)
    _layer(x, len(SEEN), w1, b1, hidden)
    for i in range(len(HIDDEN)):
        for column in range(BLOCK):
            x[i, column] = _snap(hidden[i, column], 0.0, HIDDEN_BOUND)
    _layer(x, len(HIDDEN), w2, b2, hidden)
    for i in range(len(HIDDEN)):
        for column in range(BLOCK):
            x[i, column] = _snap(hidden[i, column], 0.0, HIDDEN_BOUND)
    _layer(x, len(HIDDEN), w3, b3, scores)
    for column in range(BLOCK):
        best, most = 0, scores[0, column]
        for action in range(1, len(DONE)):
            if scores[action, column] > most:
                best, most = action, scores[action, column]
        fled[column] = best


@njit(cache=True, nogil=True, error_model="numpy")
def _step(
    states: Array, running: NDArray[np.bool_], actions: NDArray[np.int16], rewards: Array, over: NDArray[np.bool_],
    at: Array, bits: Rows, force: Array, reach: Array, near: NDArray[np.bool_], within: Rows, rows: Rows, paid: Array,
    movers: Sizes, places: Sizes, thrust: Array, limit: Array, collides: NDArray[np.bool_], size: Array,
    prey_moves: bool, x: Array, hidden: Array, scores: Array, fled: Rows,
    w1: Array, b1: Array, w2: Array, b2: Array, w3: Array, b3: Array,
) -> None:  # fmt: skip
    prey, first = len(movers) - 1, 0
    while first < len(states):
        count, first = gather(states, running, first, rows, at, movers, places)
        if prey_moves:
            _flee(at, movers, places, x, hidden, scores, fled, w1, b1, w2, b2, w3, b3)
        for column in range(count):
            over[rows[column]] = False
            for body in range(prey + 1):
                action = way(actions[rows[column], body] if body < prey else fled[column])
                for axis in range(2):
                    force[2 * body + axis, column] = thrust[body, action, axis]
        move(at, bits, force, reach, near, within, movers, places, limit, collides, size)
        for body in range(prey):
            for column in range(BLOCK):
                dx = at[4 * body, column] - at[4 * prey, column]
                dy = at[4 * body + 1, column] - at[4 * prey + 1, column]
                paid[column] = -math.sqrt(dx * dx + dy * dy)
            for column in range(count):
                rewards[rows[column], body] = paid[column]
        put_back(at, movers, rows, count, states)
