"""MOSA's selection (Panichella et al. 2015): the best on each uncovered objective first, then fronts.

An objective is covered once somebody reaches its goal: f1 the threshold, f2 an even chance of being
unfair; f3 has none and is always covered. When none is uncovered, all of them guide again.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.strategies.genetic.pareto import Rows, Scores, crowding, fill_fronts, ranks


def uncovered(scores: Scores, goals: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Objectives whose goal nobody has reached; all of them when every goal is reached."""
    missing = scores.min(axis=0, initial=np.inf) > goals
    return missing if missing.any() else np.ones_like(missing)


def preference_ranks(scores: Scores, goals: NDArray[np.float64], size: int) -> NDArray[np.int64]:
    """The front of each candidate: 0 for the best on an uncovered objective, then non-dominated fronts.

    Ties for the best go to the candidate that misses fewer values, then to the one that is better on the other
    objectives, added up, and then to the first one; one candidate can be the best on several objectives.
    """
    columns = scores[:, uncovered(scores, goals)]
    rank = np.ones(len(scores), np.int64)
    if not columns.shape[1]:
        return rank
    there = np.isfinite(scores)
    missing, others = (~there).sum(axis=1), np.where(there, scores, 0.0).sum(axis=1)
    known = [column for column in columns.T if np.isfinite(column).any()]  # a missing value is never best
    best = [int(np.lexsort((np.arange(len(scores)), others, missing, column))[0]) for column in known]
    rest = np.setdiff1d(np.arange(len(scores)), best)
    rank[best] = 0
    if len(set(best)) < size and len(rest):
        rank[rest] = 1 + ranks(columns[rest])
    return rank


def mosa_select(scores: Scores, goals: NDArray[np.float64], size: int) -> Rows:
    """Rows of the next population: fronts in order, the last one by descending crowding distance."""
    return fill_fronts(np.arange(len(scores)), scores, preference_ranks(scores, goals, size), size)


def tournament(
    rank: NDArray[np.int64], distance: NDArray[np.float64], count: int, size: int, rng: np.random.Generator
) -> Rows:
    """`count` winners of groups of `size`: the best front, then the least crowded, then the first drawn."""
    groups = rng.integers(0, len(rank), (count, size))
    order = np.lexsort((-distance[groups], rank[groups]), axis=1)  # stable: ties keep the order of drawing
    return groups[np.arange(count), order[:, 0]]


def standing(scores: Scores, goals: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Front and crowding distance within its front of each member of a population."""
    rank = preference_ranks(scores, goals, len(scores))
    distance = np.zeros(len(scores))
    for level in np.unique(rank):
        members = np.flatnonzero(rank == level)
        distance[members] = crowding(scores[members])
    return rank, distance
