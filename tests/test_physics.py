"""The particle world's pushes: those that are not computed would not have changed a bit."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from epymarl_fairtest.tasks.kernels.sizes import known
from epymarl_fairtest.tasks.mpe import physics
from epymarl_fairtest.tasks.mpe.physics import BLOCK, CONTACT_FORCE, CONTACT_MARGIN, DAMPING, DT, move

Array = NDArray[np.float64]
WORLDS = 100 * BLOCK


def worlds(bodies: int, places: int) -> tuple[Array, Array]:
    """Places near and far, often along an axis; velocities of any size, often of one that is lost beside a thrust; and
    the thrust, often none."""
    rng = np.random.default_rng(bodies)
    spread = rng.choice([0.1, 0.3, 1.0], WORLDS)
    at = rng.uniform(-1, 1, (4 * bodies + 2 * places, WORLDS)) * spread
    for row in range(0, len(at), 2):
        at[row, rng.random(WORLDS) < 0.2] = 0.0
    for body in range(bodies):
        shape = 2, WORLDS
        velocity = rng.choice([-1, 1], shape) * 10.0 ** rng.uniform(rng.choice([-320, -120, -30, 0], WORLDS), 0, shape)
        at[4 * body + 2 : 4 * body + 4] = np.where(rng.random(shape) < 0.1, 0.0, velocity)
    return at, rng.choice([-3.0, 0.0, 3.0], (2 * bodies, WORLDS))


def plainly_moved(at: Array, force: Array, bodies: int, size: Array) -> Array:
    """Every push of every pair, as MPE computes it in numpy."""
    after, force = at.copy(), force.copy()
    row = [4 * body for body in range(bodies)] + list(range(4 * bodies, len(at), 2))
    for a in range(bodies):
        for b in range(a + 1, len(row)):
            dx, dy = at[row[a]] - at[row[b]], at[row[a] + 1] - at[row[b] + 1]
            away = np.sqrt(dx * dx + dy * dy)
            overlap = np.logaddexp(0, -(away - (size[a] + size[b])) / CONTACT_MARGIN) * CONTACT_MARGIN
            for axis, way in enumerate((dx, dy)):
                push = CONTACT_FORCE * way / away * overlap
                force[2 * a + axis] = push + force[2 * a + axis]
                if b < bodies:
                    force[2 * b + axis] = -push + force[2 * b + axis]
    for body in range(bodies):
        place, velocity = slice(4 * body, 4 * body + 2), slice(4 * body + 2, 4 * body + 4)
        after[place] = at[place] + at[velocity] * DT
        after[velocity] = at[velocity] * (1 - DAMPING) + force[2 * body : 2 * body + 2] / 1.0 * DT
    return after


def moved(at: Array, force: Array, bodies: int, places: int, size: Array) -> Array:
    after = at.copy()
    for first in range(0, WORLDS, BLOCK):
        block = np.ascontiguousarray(after[:, first : first + BLOCK])
        thrust = np.ascontiguousarray(force[:, first : first + BLOCK])
        fast, collides = np.full(bodies, np.inf), np.ones(bodies + places, np.bool_)
        _, _, _, reach, near, within, *_ = physics.Room(known(bodies), known(places)).arrays
        sizes = known(bodies), known(places)
        move(block, block.view(np.int64), thrust, reach, near, within, *sizes, fast, collides, size)
        after[:, first : first + BLOCK] = block
    return after


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # of bodies on one spot, in the reference
@pytest.mark.parametrize(("bodies", "places"), [(2, 0), (4, 2), (5, 5), (10, 10)])
def test_a_push_that_is_left_out_would_have_changed_no_bit(bodies: int, places: int) -> None:
    at, force = worlds(bodies, places)
    size = np.random.default_rng(0).choice([0.05, 0.15, 0.2], bodies + places)
    ours, plain = moved(at, force, bodies, places, size), plainly_moved(at, force, bodies, size)
    numbers = ~np.isnan(plain)
    assert np.isnan(ours[~numbers]).all()
    assert (ours[numbers].view(np.int64) == plain[numbers].view(np.int64)).all()


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_what_is_infinite_or_no_number_spreads_as_in_numpy() -> None:
    at, force = worlds(4, 2)
    at[0, ::3], at[1, 1::7] = np.inf, np.nan
    size = np.full(6, 0.1)
    np.testing.assert_array_equal(moved(at, force, 4, 2, size), plainly_moved(at, force, 4, size))


def test_bodies_that_move_on_both_axes_are_hardly_ever_in_reach() -> None:
    at, _ = worlds(4, 2)
    at[2:16:4], at[3:16:4] = 0.3, 1e-4
    reach = np.empty((4, BLOCK))
    physics._reach(np.ascontiguousarray(at[:, :BLOCK]).view(np.int64), known(4), known(2), reach)
    assert (reach < 0.3).all()
