"""Starts that nobody has executed yet, bred from failing ones. Looking at a start costs nothing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.tasks.contract import Task

Array = NDArray[np.float64]
Rows = NDArray[np.int64]
Operator = Callable[[Array, Array, Array, Rows, np.random.Generator], Array]
"""f(vectors of parents (B, V), of their partners, of fresh starts, the body of each number (V,), rng) -> (B, V)"""

NOISE = 0.03  # of a start that takes its bodies from two parents
SMALLEST_STEP, LARGEST_STEP = 0.05, 0.4  # of a start that moves away from its parent, in [-1, 1]
TRIES = 10  # draws before the rest is given up: the task's rules may refuse nearly everything


def cross(one: Array, two: Array, fresh: Array, body: Rows, rng: np.random.Generator) -> Array:
    """Every body stands about where it stands in one parent or in the other."""
    heads = rng.random((len(one), int(body.max()) + 1)) < 0.5
    return np.where(heads[:, body], one, two) + rng.normal(0, NOISE, one.shape)


def move(one: Array, two: Array, fresh: Array, body: Rows, rng: np.random.Generator) -> Array:
    """All bodies are moved, a little or a lot."""
    step = np.exp(rng.uniform(np.log(SMALLEST_STEP), np.log(LARGEST_STEP), (len(one), 1)))
    return one + step * rng.normal(0, 1, one.shape)


def resample(one: Array, two: Array, fresh: Array, body: Rows, rng: np.random.Generator) -> Array:
    """One body stands where it stands in a fresh start."""
    drawn = rng.integers(0, int(body.max()) + 1, len(one))
    return np.where(body[None] == drawn[:, None], fresh, one)


OPERATORS: tuple[Operator, ...] = (cross, move, resample)


class Parents:
    """Failing starts: every agent that came off worst equally often, and every class of its starts equally often."""

    def __init__(self, states: Array, places: Array, worst: Rows, radius: float) -> None:
        from epymarl_fairtest.strategies.scout.spacing import classes

        self.states, self._worst = states, worst
        label = classes(places, radius)
        self._weight = 1 / np.bincount(label)[label]
        for agent in np.unique(worst):
            rows = worst == agent
            self._weight[rows] /= self._weight[rows].sum()
        self._weight /= self._weight.sum()

    def draw(self, count: int, rng: np.random.Generator) -> tuple[Rows, Rows]:
        """Rows of parents, and of partners that the same agent came off worst in."""
        one = rng.choice(len(self._weight), count, p=self._weight)
        two = one.copy()
        for agent in np.unique(self._worst):
            alike, wanting = np.flatnonzero(self._worst == agent), self._worst[one] == agent
            weight = self._weight[alike] / self._weight[alike].sum()
            two[wanting] = rng.choice(alike, int(wanting.sum()), p=weight)
        return one, two


def breed(parents: Parents, fresh: Array, count: int, task: Task, rng: np.random.Generator) -> tuple[Array, Rows, int]:
    """At most `count` starts that keep the task's rules, the parent of each, and how many were made in all."""
    vectors, others = task.start_vectors(parents.states), task.start_vectors(fresh)
    body = task.bodies_of_starts(vectors.shape[1])
    bred, parent = [parents.states[:0]], [np.empty(0, np.int64)]
    missing, tried = count, 0
    for _ in range(TRIES):
        one, two = parents.draw(missing, rng)
        drawn = others[rng.integers(0, len(others), missing)]
        states, valid = task.starts_from(_made(vectors[one], vectors[two], drawn, body, rng))
        bred.append(states[valid])
        parent.append(one[valid])
        tried += missing
        missing -= int(valid.sum())
        if not missing:
            break
    return np.concatenate(bred), np.concatenate(parent), tried


def _made(one: Array, two: Array, fresh: Array, body: Rows, rng: np.random.Generator) -> Array:
    """A start from each parent and partner, by one operator each, inside [-1, 1]."""
    operator = rng.integers(0, len(OPERATORS), len(one))
    vectors = one.copy()
    for number, make in enumerate(OPERATORS):
        rows = operator == number
        vectors[rows] = make(one[rows], two[rows], fresh[rows], body, rng)
    # What leaves [-1, 1] comes back as from a wall: clipping would pile starts up at it.
    folded = 1 - np.abs(np.mod(vectors + 1, 4) - 2)
    return np.where(np.abs(vectors) > 1, folded, vectors)
