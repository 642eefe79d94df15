"""ParetoSelect (Algorithm 3): which candidates are worth the budget. Pure functions of scores."""

from __future__ import annotations

import moocore
import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.float64]
Rows = NDArray[np.int64]


def front(scores: Scores) -> NDArray[np.bool_]:
    """Which rows no other row dominates (Eq. paretofront); equal rows do not dominate each other."""
    best: NDArray[np.bool_] = moocore.is_nondominated(finite(scores), keep_weakly=True)
    return best


def ranks(scores: Scores) -> NDArray[np.int64]:
    """The front each row belongs to, 0 for the best. Equal rows share a front."""
    return np.asarray(moocore.pareto_rank(finite(scores)), np.int64)


def finite(scores: Scores) -> Scores:
    """Missing (infinite) values become one value that is worse than all others."""
    return np.minimum(scores, np.finfo(np.float64).max)


def crowding(scores: Scores) -> NDArray[np.float64]:
    """Crowding distance (Eq. crowding): per objective, the gap between the two neighbours in sorted order.

    The ends are infinitely far from the crowd. An objective in which all are equal separates nobody; a
    missing value has no neighbours and adds nothing.
    """
    distance = np.zeros(len(scores))
    for column in scores.T:
        known = np.flatnonzero(np.isfinite(column))
        order = known[np.argsort(column[known], kind="stable")]
        values = column[order]
        if len(order) == 0 or values[-1] == values[0]:
            continue
        gaps = np.full(len(order), np.inf)
        gaps[1:-1] = (values[2:] - values[:-2]) / (values[-1] - values[0])
        distance[order] += gaps
    return distance


def least_crowded(rows: Rows, scores: Scores, count: int) -> Rows:
    """The `count` of `rows` with the largest crowding distance among them; ties in the order of `rows`."""
    order = np.argsort(-crowding(scores[rows]), kind="stable")
    return rows[order[:count]]


def pareto_select(
    scores: Scores, uncertainty: NDArray[np.float64], size: int, cap: int, fill: str = "crowding"
) -> Rows:
    """Algorithm 3: rows of the `size` candidates to keep, by (f2, f3).

    `scores` holds the predictive objectives, `uncertainty` is f3 for the pre-filter, and `cap` its size.
    `fill="fronts"` appends whole fronts instead of the least crowded of everything behind the first.
    """
    most_uncertain = np.argsort(uncertainty, kind="stable")[:cap]
    if fill == "fronts":
        return fill_fronts(most_uncertain, scores, ranks(scores[most_uncertain]), size)
    first = front(scores[most_uncertain])
    selected, rest = most_uncertain[first], most_uncertain[~first]
    if len(selected) < size:
        return np.concatenate([selected, least_crowded(rest, scores, size - len(selected))])
    if len(selected) > size:
        return least_crowded(selected, scores, size)
    return selected


def fill_fronts(rows: Rows, scores: Scores, rank: NDArray[np.int64], size: int) -> Rows:
    """Whole fronts in order; of the one that does not fit, the least crowded."""
    chosen: list[Rows] = []
    left = size
    for level in range(int(rank.max(initial=-1)) + 1):
        members = rows[rank == level]
        if len(members) > left:
            members = least_crowded(members, scores, left)
        chosen.append(members)
        left -= len(members)
        if left == 0:
            break
    return np.concatenate(chosen) if chosen else rows[:0]
