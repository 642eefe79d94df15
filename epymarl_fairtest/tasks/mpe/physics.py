"""The particle world's physics, as MPE computes them, operation by operation.

A world is one row: x, y, vx, vy of every body, then x, y of every landmark. Floating point is kept in
numpy's order: reordering a sum or fusing a product would change the last bit, and so, in time, everything.
"""

import math
import threading
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from epymarl_fairtest.core import aligned
from epymarl_fairtest.tasks.kernels.seeds import WORDS, next_double, seed_stream
from epymarl_fairtest.tasks.kernels.sizes import Sizes

DT, DAMPING, CONTACT_FORCE, CONTACT_MARGIN = 0.1, 0.25, 1e2, 1e-3
BODY_SENSITIVITY = 5.0  # of a body without an acceleration of its own
# Worlds that move together, one per column: a loop over columns is done in the processor's widest registers.
BLOCK = 128
UNDERFLOW = 751.0  # margins between two bodies from which on exp, and so their push, is zero
# Margins from which on a push is lost beside a velocity of 1: the first, and the second for every other body.
FAINT, FAINT_EACH = 37.0, 39.0
HUGE = 1e300  # of a square: what is infinite, or no number, is computed as it is
# Where the thrust of an action points: nowhere, left, right, down, up.
WAYS = np.array([[0.0, 0.0], [-1.0, 0.0], [1.0, 0.0], [0.0, -1.0], [0.0, 1.0]])
Array = NDArray[np.float64]
Rows = NDArray[np.int64]


def columns(rows: int, kind: Any = np.float64) -> NDArray[Any]:
    """Zeros for so many numbers of each world of a block, where the processor's widest registers like them best."""
    return aligned.zeros((rows, BLOCK), kind)


class Room(threading.local):
    """Where a thread moves the worlds of a block. A kernel that made these arrays would be compiled for longer."""

    def __init__(self, movers: Sizes, places: Sizes) -> None:
        bodies, at = len(movers), columns(4 * len(movers) + 2 * len(places))
        near, (within, rows), (paid,) = columns(1, np.bool_)[0], columns(2, np.int64), columns(1)
        self.arrays = at, at.view(np.int64), columns(2 * bodies), columns(bodies), near, within, rows, paid


def constants(world: Any) -> tuple[Array, Array, NDArray[np.bool_], Array]:
    """Thrust by action, speed limit, whether it collides, and size, of each entity of a real MPE world."""
    expected = (DT, DAMPING, CONTACT_FORCE, CONTACT_MARGIN)
    if (world.dt, world.damping, world.contact_force, world.contact_margin) != expected:
        raise ValueError("a particle world with other physics")
    entities = [*world.agents, *world.landmarks]
    if any(agent.u_noise or not agent.movable or agent.mass != 1.0 for agent in world.agents):
        raise ValueError("bodies with noise, weight or chains")
    strength = np.array([BODY_SENSITIVITY if a.accel is None else a.accel for a in world.agents], np.float64)
    thrust = strength[:, None, None] * WAYS
    limit = np.array([np.inf if a.max_speed is None else a.max_speed for a in world.agents], np.float64)
    collides = np.array([entity.collide for entity in entities], np.bool_)
    return thrust, limit, collides, np.array([entity.size for entity in entities], np.float64)


def scatter(seeds: NDArray[np.int64], states: Array, bodies: int, reach: float) -> None:
    """Seeded resets: bodies anywhere in the unit square at rest, landmarks within `reach` of the centre."""
    _scatter(seeds, np.zeros(WORDS, np.uint64), states, bodies, reach)


@njit(cache=True, nogil=True)
def _scatter(seeds: NDArray[np.int64], stream: NDArray[np.uint64], states: Array, bodies: int, reach: float) -> None:
    for row in range(len(seeds)):
        seed_stream(np.uint64(seeds[row]), stream)
        for at in range(states.shape[1]):
            moves = at < 4 * bodies
            if moves and at % 4 >= 2:
                states[row, at] = 0.0
            else:
                most = 1.0 if moves else reach
                states[row, at] = -most + (most + most) * next_double(stream)


@njit(cache=True, nogil=True, inline="always")
def softplus(x: float) -> float:
    """`numpy.logaddexp(0, x)`, branch by branch; below 2^-54 a number is its own log1p."""
    if x < -38.0:
        return math.exp(x)
    if x == 0.0:
        return math.log(2.0)
    if x < 0.0:
        return math.log1p(math.exp(x))
    return x + math.log1p(math.exp(-x))


@njit(cache=True, nogil=True, inline="always")
def way(action: int) -> int:
    """Where in a body's thrusts an action stands; one that does not exist does nothing, as in the real environment."""
    return action if 0 < action < 5 else 0


@njit(cache=True, nogil=True, inline="always")
def gather(
    states: Array, running: NDArray[np.bool_], first: int, rows: Rows, at: Array, movers: Sizes, places: Sizes
) -> tuple[int, int]:
    """The next running worlds, from row `first` on, as columns of `at`: how many there are, and the row behind them."""
    count, row = 0, first
    while row < len(states) and count < BLOCK:
        if running[row]:
            rows[count] = row
            state = states[row]
            for place in range(4 * len(movers) + 2 * len(places)):
                at[place, count] = state[place]
            count += 1
        row += 1
    return count, row


@njit(cache=True, nogil=True, inline="always")
def put_back(at: Array, movers: Sizes, rows: Rows, count: int, states: Array) -> None:
    """The columns back into their rows; landmarks stay where they are."""
    for column in range(count):
        state = states[rows[column]]
        for place in range(4 * len(movers)):
            state[place] = at[place, column]


@njit(cache=True, nogil=True, inline="always")
def _reach(bits: Rows, movers: Sizes, places: Sizes, reach: Array) -> None:
    """How far beyond touching a body can be pushed (bodies, BLOCK): a push from farther away would not change a bit of
    its velocity, whatever the other pushes are (docs/decisions/068 has the proof). The slower a body is, by its
    exponent, the fainter is what it feels; one that is at rest along an axis feels all that does not underflow."""
    faint = FAINT + FAINT_EACH * (len(movers) + len(places) - 1)
    for body in range(len(movers)):
        for column in range(BLOCK):
            x, y = (bits[4 * body + 2, column] >> 52) & 2047, (bits[4 * body + 3, column] >> 52) & 2047
            slower = x if x < y else y
            far = faint + 0.6932 * (1023 - slower if slower < 1023 else 0)  # halvings from a velocity of 1
            reach[body, column] = (far if far < UNDERFLOW else UNDERFLOW) * CONTACT_MARGIN


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def move(
    at: Array, bits: Rows, force: Array, reach: Array, near: NDArray[np.bool_], within: Rows, movers: Sizes,
    places: Sizes, limit: Array, collides: NDArray[np.bool_], size: Array,
) -> None:  # fmt: skip
    """One step of the worlds in the columns of `at`; `force` (2 * bodies, BLOCK) holds the thrust and is used up."""
    bodies = len(movers)
    _reach(bits, movers, places, reach)
    for a in range(bodies):
        for b in range(a + 1, bodies + len(places)):
            if collides[a] and collides[b]:
                other, touching = 4 * b if b < bodies else 4 * bodies + 2 * (b - bodies), size[a] + size[b]
                for column in range(BLOCK):
                    dx, dy = at[4 * a, column] - at[other, column], at[4 * a + 1, column] - at[other + 1, column]
                    square = dx * dx + dy * dy
                    one, two = reach[a, column], reach[b if b < bodies else a, column]
                    bound = touching + (two if two > one else one)
                    near[column] = not ((square > bound * bound) & (square < HUGE))
                count = 0
                for column in range(BLOCK):  # listed without a branch, which the processor would guess wrong
                    within[count] = column
                    count += near[column]
                for number in range(count):
                    column = within[number]
                    dx, dy = at[4 * a, column] - at[other, column], at[4 * a + 1, column] - at[other + 1, column]
                    away = math.sqrt(dx * dx + dy * dy)
                    overlap = softplus(-(away - touching) / CONTACT_MARGIN) * CONTACT_MARGIN
                    fx, fy = CONTACT_FORCE * dx / away * overlap, CONTACT_FORCE * dy / away * overlap
                    force[2 * a, column] = fx + force[2 * a, column]
                    force[2 * a + 1, column] = fy + force[2 * a + 1, column]
                    if b < bodies:
                        force[2 * b, column] = -fx + force[2 * b, column]
                        force[2 * b + 1, column] = -fy + force[2 * b + 1, column]
    for body in range(bodies):
        most = limit[body]
        for column in range(BLOCK):
            x, y, vx, vy = (
                at[4 * body, column],
                at[4 * body + 1, column],
                at[4 * body + 2, column],
                at[4 * body + 3, column],
            )
            at[4 * body, column], at[4 * body + 1, column] = x + vx * DT, y + vy * DT
            vx = vx * (1 - DAMPING) + force[2 * body, column] / 1.0 * DT
            vy = vy * (1 - DAMPING) + force[2 * body + 1, column] / 1.0 * DT
            speed = math.sqrt(vx * vx + vy * vy)
            at[4 * body + 2, column] = vx / speed * most if speed > most else vx
            at[4 * body + 3, column] = vy / speed * most if speed > most else vy


@njit(cache=True, nogil=True, inline="always")
def look(state: Array, me: int, movers: Sizes, places: Sizes, seen: NDArray[np.float32]) -> None:
    """What body `me` sees: its velocity and position, then landmarks and others from where it is."""
    bodies, landmarks = len(movers), len(places)
    x, y = state[4 * me], state[4 * me + 1]
    seen[0], seen[1], seen[2], seen[3] = state[4 * me + 2], state[4 * me + 3], x, y
    for place in range(landmarks):
        seen[4 + 2 * place] = state[4 * bodies + 2 * place] - x
        seen[5 + 2 * place] = state[4 * bodies + 2 * place + 1] - y
    for place in range(bodies - 1):
        other = 4 * (place + (place >= me))
        seen[4 + 2 * landmarks + 2 * place] = state[other] - x
        seen[5 + 2 * landmarks + 2 * place] = state[other + 1] - y
