"""The particle world's physics, as MPE computes them, operation by operation.

A world is one row: x, y, vx, vy of every body, then x, y of every landmark. Floating point is kept in
numpy's order: reordering a sum or fusing a product would change the last bit, and so, in time, everything.
"""

import math
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from epymarl_fairtest.tasks.kernels.seeds import WORDS, next_double, seed_stream

DT, DAMPING, CONTACT_FORCE, CONTACT_MARGIN = 0.1, 0.25, 1e2, 1e-3
BODY_SENSITIVITY = 5.0  # of a body without an acceleration of its own
Array = NDArray[np.float64]


def constants(world: Any) -> tuple[Array, Array, NDArray[np.bool_], Array]:
    """Thrust, speed limit, whether it collides, and size, of each entity of a real MPE world."""
    expected = (DT, DAMPING, CONTACT_FORCE, CONTACT_MARGIN)
    if (world.dt, world.damping, world.contact_force, world.contact_margin) != expected:
        raise ValueError("a particle world with other physics")
    entities = [*world.agents, *world.landmarks]
    if any(agent.u_noise or not agent.movable or agent.mass != 1.0 for agent in world.agents):
        raise ValueError("bodies with noise, weight or chains")
    thrust = np.array([BODY_SENSITIVITY if a.accel is None else a.accel for a in world.agents], np.float64)
    limit = np.array([np.inf if a.max_speed is None else a.max_speed for a in world.agents], np.float64)
    collides = np.array([entity.collide for entity in entities], np.bool_)
    return thrust, limit, collides, np.array([entity.size for entity in entities], np.float64)


@njit(cache=True, nogil=True)
def scatter(seeds: NDArray[np.int64], states: Array, bodies: int, reach: float) -> None:
    """Seeded resets: bodies anywhere in the unit square at rest, landmarks within `reach` of the centre."""
    stream = np.zeros(WORDS, np.uint64)
    for row in range(len(seeds)):
        seed_stream(np.uint64(seeds[row]), stream)
        state = states[row]
        for body in range(bodies):
            state[4 * body] = -1.0 + 2.0 * next_double(stream)
            state[4 * body + 1] = -1.0 + 2.0 * next_double(stream)
            state[4 * body + 2] = 0.0
            state[4 * body + 3] = 0.0
        for at in range(4 * bodies, states.shape[1]):
            state[at] = -reach + (reach + reach) * next_double(stream)


@njit(cache=True, nogil=True)
def softplus(x: float) -> float:
    """`numpy.logaddexp(0, x)`, branch by branch; below 2^-54 a number is its own log1p."""
    if x < -38.0:
        return math.exp(x)
    if x == 0.0:
        return math.log(2.0)
    if x < 0.0:
        return math.log1p(math.exp(x))
    return x + math.log1p(math.exp(-x))


@njit(cache=True, nogil=True)
def move(state: Array, force: Array, bodies: int, limit: Array, collides: NDArray[np.bool_], size: Array) -> None:
    """One step of one world; `force` (bodies, 2) holds the thrust and is used up."""
    landmarks = (len(state) - 4 * bodies) // 2
    for a in range(bodies):
        if not collides[a]:
            continue
        for b in range(a + 1, bodies + landmarks):
            if not collides[b]:
                continue
            at = 4 * b if b < bodies else 4 * bodies + 2 * (b - bodies)
            dx, dy = state[4 * a] - state[at], state[4 * a + 1] - state[at + 1]
            square, reach = dx * dx + dy * dy, size[a] + size[b] + 751.0 * CONTACT_MARGIN
            if square > reach * reach:
                continue  # exp underflows: the force is zero, and adding zero changes nothing
            distance = math.sqrt(square)
            depth = -(distance - (size[a] + size[b])) / CONTACT_MARGIN
            penetration = softplus(depth) * CONTACT_MARGIN
            fx = CONTACT_FORCE * dx / distance * penetration
            fy = CONTACT_FORCE * dy / distance * penetration
            force[a, 0] = fx + force[a, 0]
            force[a, 1] = fy + force[a, 1]
            if b < bodies:
                force[b, 0] = -fx + force[b, 0]
                force[b, 1] = -fy + force[b, 1]
    for body in range(bodies):
        at = 4 * body
        state[at] += state[at + 2] * DT
        state[at + 1] += state[at + 3] * DT
        vx = state[at + 2] * (1 - DAMPING) + force[body, 0] / 1.0 * DT
        vy = state[at + 3] * (1 - DAMPING) + force[body, 1] / 1.0 * DT
        if limit[body] < np.inf:
            speed = math.sqrt(vx * vx + vy * vy)
            if speed > limit[body]:
                vx = vx / speed * limit[body]
                vy = vy / speed * limit[body]
        state[at + 2], state[at + 3] = vx, vy


@njit(cache=True, nogil=True)
def push(force: Array, body: int, action: int, thrust: float) -> None:
    """The thrust of an action: nothing, left, right, down, up."""
    force[body, 0] = 0.0
    force[body, 1] = 0.0
    if action == 1:
        force[body, 0] = -1.0 * thrust
    elif action == 2:
        force[body, 0] = 1.0 * thrust
    elif action == 3:
        force[body, 1] = -1.0 * thrust
    elif action == 4:
        force[body, 1] = 1.0 * thrust


@njit(cache=True, nogil=True)
def look(state: Array, me: int, bodies: int, seen: NDArray[np.float32]) -> int:
    """What body `me` sees: its velocity and position, then landmarks and others from where it is."""
    x, y = state[4 * me], state[4 * me + 1]
    seen[0], seen[1], seen[2], seen[3] = state[4 * me + 2], state[4 * me + 3], x, y
    at = 4
    for place in range(4 * bodies, len(state), 2):
        seen[at], seen[at + 1] = state[place] - x, state[place + 1] - y
        at += 2
    for other in range(bodies):
        if other != me:
            seen[at], seen[at + 1] = state[4 * other] - x, state[4 * other + 1] - y
            at += 2
    return at


@njit(cache=True, nogil=True)
def separation(ax: float, ay: float, bx: float, by: float) -> float:
    dx, dy = ax - bx, ay - by
    return math.sqrt(dx * dx + dy * dy)
