"""How a start in foraging is made simpler: less food."""

from __future__ import annotations

from collections.abc import Callable

from epymarl_fairtest.tasks.contract import Array, Edit


def simplifications(players: int, slots: int) -> list[Edit]:
    """In a state the row, column and level of each player come first, then those of each food slot."""
    return [Edit(f"food {slot + 1} taken away", _without(3 * (players + slot))) for slot in range(slots)]


def _without(place: int) -> Callable[[Array], Array]:
    """Slots keep their numbers while edits follow each other; the task's `as_read` puts empty ones last."""

    def apply(state: Array) -> Array:
        new = state.copy()
        if new[place + 2] > 0:
            new[-1] -= new[place + 2]  # what rewards are divided by: the food there is
            new[place : place + 3] = [-1, -1, 0]
        return new

    return apply
