"""Which failures to look at: the most unfair ones, and a few representative ones.

Knows trajectories and indices; nothing of drawing.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.campaign.packing import distances
from epymarl_fairtest.core.episodes import Episodes
from epymarl_fairtest.tasks.contract import Task

MOST = 400  # trajectories that are compared with each other
EACH = 5  # most unfair ones to watch, and as many representative ones
Trajectories = tuple[NDArray[np.float32], NDArray[np.integer]]
"""Where the agents were (B, positions, agents, 2), and how many of these positions are used."""
Load = Callable[[NDArray[np.int64]], Trajectories]


def worst(index: NDArray[np.float64], count: int, root_seed: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
    """The rows with the lowest index, the lowest first; ties in the order of finding.

    With `root_seed` one of each start comes before the second of any: the children of the worst failure are nearly as
    unfair as it is and look the same.
    """
    order = np.argsort(index, kind="stable")
    if root_seed is not None:
        again = np.ones(len(order), bool)
        again[np.unique(root_seed[order], return_index=True)[1]] = False
        order = order[np.argsort(again, kind="stable")]
    return order[:count].astype(np.int64)


def failures_to_watch(
    index: NDArray[np.float64], root_seed: NDArray[np.int64], stable: NDArray[np.int64], load: Load
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The failures to watch, of the `stable` ones: the most unfair, and representative ones of the rest."""
    lowest = stable[worst(index[stable], EACH, root_seed[stable])]
    others = np.setdiff1d(stable, lowest)
    some = others[spread_evenly(len(others), MOST)]
    return lowest, some[representative(*load(some), EACH)] if len(some) else some


def trajectories_of(task: Task, failures: Episodes) -> Trajectories:
    """Where the agents went."""
    return task.positions(failures.states).astype(np.float32), failures.length + 1


def spread_evenly(count: int, most: int) -> NDArray[np.int64]:
    """At most `most` of the numbers below `count`."""
    if not count:
        return np.empty(0, np.int64)
    return np.unique(np.linspace(0, count - 1, min(most, count)).round().astype(np.int64))


def representative(paths: NDArray[np.float32], lengths: NDArray[np.integer], count: int) -> NDArray[np.int64]:
    """Rows of at most `count` representative failures: the medoids of their trajectories, largest group first.

    Two failures are as far apart as their agents are on average (the distance that tells distinct failures apart); the
    shorter waits where it ended. Of more than MOST failures, MOST are compared: evenly spaced in the order of finding,
    so that every part of the search has its share. Fewer than `count` come back where fewer failures differ.
    """
    rows = spread_evenly(len(paths), MOST)
    if not len(rows):
        return rows
    return rows[medoids(distances(paths[rows], lengths[rows]), count)]


def medoids(apart: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """At most `count` of the points whose distances are `apart` (n, n), by Partitioning Around Medoids.

    Built greedily, then improved: the swap of a medoid with another point that shortens the sum of all distances to
    the nearest medoid most, until none does. No randomness: ties go to the first point.
    """
    chosen: list[int] = []
    nearest = np.full(len(apart), np.inf)
    while len(chosen) < min(count, len(apart)) and nearest.max() > 0:
        point = int(np.minimum(apart, nearest).sum(axis=1).argmin())
        chosen.append(point)
        nearest = np.minimum(nearest, apart[point])
    total = nearest.sum()
    while True:
        best = (total * (1 - 1e-9), -1, -1)  # what rounding alone would gain is no gain, or this might never end
        for place in range(len(chosen)):
            others = apart[chosen[:place] + chosen[place + 1 :]].min(axis=0, initial=np.inf)
            sums = np.minimum(apart, others).sum(axis=1)
            if sums.min() < best[0]:
                best = (float(sums.min()), place, int(sums.argmin()))
        total, place, point = best
        if point < 0:
            break
        chosen[place] = point
    sizes = np.bincount(apart[chosen].argmin(axis=0), minlength=len(chosen))
    return np.array(chosen, np.int64)[np.argsort(-sizes, kind="stable")]
