"""The twin of tag (simple_tag paying `prey_distance`), the prey's network included."""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from epymarl_fairtest.tasks.layers import wrappers
from epymarl_fairtest.tasks.mpe.physics import Array, constants, look, move, push, scatter, separation
from epymarl_fairtest.tasks.tag.prey import HIDDEN_BOUND, INPUT_BOUND, VALUE_SCALE, Prey

BLOCK = 64  # worlds whose prey think together


class TagTwin:
    def __init__(self, env: Any, prey: str) -> None:
        world = wrappers(env)[-1].world
        self._bodies = len(world.agents)
        if self._bodies != 4:
            raise ValueError("more than one prey, or not three predators")
        self._constants = constants(world)
        self._moves = prey != "still"
        network = Prey.load()
        self._prey = (network.w1, network.b1, network.w2, network.b2, network.w3, network.b3)

    def reset(self, seeds: NDArray[np.int64], states: Array) -> None:
        scatter(seeds, states, self._bodies, 0.9)

    def observe(self, states: Array, running: NDArray[np.bool_], seen: NDArray[np.float32]) -> None:
        _observe(states, running, seen, self._bodies)

    def step(
        self, states: Array, running: NDArray[np.bool_], actions: NDArray[np.int16], rewards: Array,
        over: NDArray[np.bool_], steps: NDArray[np.int32],
    ) -> None:  # fmt: skip
        _step(states, running, actions, rewards, over, self._bodies, *self._constants, self._moves, *self._prey)


@njit(cache=True, nogil=True)
def _observe(states: Array, running: NDArray[np.bool_], seen: NDArray[np.float32], bodies: int) -> None:
    prey = bodies - 1
    for row in range(len(states)):
        if running[row]:
            for me in range(prey):
                end = look(states[row], me, bodies, seen[row, me])
                seen[row, me, end] = states[row, 4 * prey + 2]
                seen[row, me, end + 1] = states[row, 4 * prey + 3]


@njit(cache=True, nogil=True)
def _snap(value: float, low: float, high: float) -> float:
    snapped: float = np.rint(min(max(value, low), high) * VALUE_SCALE) / VALUE_SCALE
    return snapped


@njit(cache=True, nogil=True)
def _layer(x: Array, weight: Array, bias: Array, out: Array) -> None:
    """Columns of out = weight.T @ x + bias. On the prey's grid every sum is exact: the order does not matter."""
    for j in range(len(out)):
        out[j] = bias[j]
        fours = len(x) // 4 * 4
        for i in range(0, fours, 4):  # four at a time: what was summed so far is read and written once for them
            a, b, c, d = weight[i, j], weight[i + 1, j], weight[i + 2, j], weight[i + 3, j]
            for column in range(BLOCK):
                out[j, column] += a * x[i, column] + b * x[i + 1, column] + c * x[i + 2, column] + d * x[i + 3, column]
        for i in range(fours, len(x)):
            w = weight[i, j]
            for column in range(BLOCK):
                out[j, column] += w * x[i, column]


@njit(cache=True, nogil=True)
def _flee(
    states: Array, running: NDArray[np.bool_], fled: NDArray[np.int16], bodies: int,
    w1: Array, b1: Array, w2: Array, b2: Array, w3: Array, b3: Array,
) -> None:  # fmt: skip
    """What the prey of every running world does: its network on BLOCK worlds at a time, one per column."""
    seen, which = np.zeros(w1.shape[0], np.float32), np.flatnonzero(running)
    x, h1, h2 = np.zeros((len(w1), BLOCK)), np.zeros((len(b1), BLOCK)), np.zeros((len(b2), BLOCK))
    scores = np.zeros((len(b3), BLOCK))
    for first in range(0, len(which), BLOCK):
        rows = which[first : first + BLOCK]
        for column in range(len(rows)):
            look(states[rows[column]], bodies - 1, bodies, seen)
            for i in range(len(seen)):
                x[i, column] = _snap(np.float64(seen[i]), -INPUT_BOUND, INPUT_BOUND)
        _layer(x, w1, b1, h1)
        for i in range(len(h1)):
            for column in range(BLOCK):
                h1[i, column] = _snap(h1[i, column], 0.0, HIDDEN_BOUND)
        _layer(h1, w2, b2, h2)
        for i in range(len(h2)):
            for column in range(BLOCK):
                h2[i, column] = _snap(h2[i, column], 0.0, HIDDEN_BOUND)
        _layer(h2, w3, b3, scores)
        for column in range(len(rows)):
            best = 0
            for i in range(1, len(scores)):
                if scores[i, column] > scores[best, column]:
                    best = i
            fled[rows[column]] = best


@njit(cache=True, nogil=True)
def _step(
    states: Array, running: NDArray[np.bool_], actions: NDArray[np.int16], rewards: Array, over: NDArray[np.bool_],
    bodies: int, thrust: Array, limit: Array, collides: NDArray[np.bool_], size: Array,
    prey_moves: bool, w1: Array, b1: Array, w2: Array, b2: Array, w3: Array, b3: Array,
) -> None:  # fmt: skip
    prey = bodies - 1
    force = np.zeros((bodies, 2))
    fled = np.zeros(len(states), np.int16)
    if prey_moves:
        _flee(states, running, fled, bodies, w1, b1, w2, b2, w3, b3)
    for row in range(len(states)):
        if not running[row]:
            continue
        state = states[row]
        for body in range(prey):
            push(force, body, actions[row, body], thrust[body])
        push(force, prey, fled[row], thrust[prey])
        move(state, force, bodies, limit, collides, size)
        over[row] = False
        for body in range(prey):
            away = separation(state[4 * body], state[4 * body + 1], state[4 * prey], state[4 * prey + 1])
            rewards[row, body] = -away
