"""How a start in the particle world is made simpler: rest, bodies out of the way, round numbers, nothing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from epymarl_fairtest.tasks.contract import Array, Edit

AWAY = 0.9  # along both axes: the corner where what does not matter is put


def simplifications(bodies: int, tested: int, size: int) -> list[Edit]:
    """`bodies` with velocities come first in a state, then the places of landmarks: `size` numbers."""
    moving = [4 * body + axis for body in range(bodies) for axis in (0, 1)]
    places = [*moving, *range(4 * bodies, size)]
    velocities = [4 * body + axis for body in range(bodies) for axis in (2, 3)]
    landmarks = [(first, first + 1) for first in range(4 * bodies, size, 2)]
    edits = [Edit("everybody at rest", _set(velocities, lambda values: 0 * values))]
    edits += [
        Edit(f"landmark {n + 1} out of the way", _set([x, y], lambda values: np.full_like(values, AWAY)))
        for n, (x, y) in enumerate(landmarks)
    ]
    names = [f"agent {body + 1}" if body < tested else "the prey" for body in range(bodies)]
    names += [f"landmark {n + 1}" for n in range(len(landmarks))]
    for number, place in enumerate(places):
        what = f"{'xy'[number % 2]} of {names[number // 2]}"
        edits.append(Edit(f"{what} rounded", _set([place], lambda values: np.round(values, 1) + 0.0)))
    for number, place in enumerate(places):
        edits.append(
            Edit(f"{'xy'[number % 2]} of {names[number // 2]} set to 0", _set([place], lambda values: 0 * values))
        )
    return edits


def _set(places: list[int], change: Callable[[Array], Array]) -> Callable[[Array], Array]:
    def apply(state: Array) -> Array:
        new = state.copy()
        new[places] = change(state[places])
        return new

    return apply
