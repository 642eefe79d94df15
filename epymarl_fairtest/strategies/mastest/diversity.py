"""MASTest's two diversities: how far episodes lie from the initial ones, agent by agent and as a team.

Knows motion (positions and velocities) and nothing of verdicts. All distances are exact.
"""

from __future__ import annotations

from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core.episodes import Episodes
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.tasks.contract import Task

Array = NDArray[np.float64]

DECIMALS = 2  # of positions and velocities, for the individual diversity
SNAPSHOTS = np.array([-4, -2, 0, 2, 4])  # steps around the one with the highest team reward
NEAREST = 0.01  # agents are never taken to be nearer: neighbours weigh 1 / distance
MOST_PERMUTED = 5  # agents; the permutations of more are too many to try


class Diversity:
    """Measured against the initial episodes, which stay the same throughout a search."""

    def __init__(self, task: Task, initial: Episodes) -> None:
        self._task = task
        self._paths, self._length = paths(task, initial), initial.length
        self._graphs = graphs(task, initial)
        one, other = np.triu_indices(len(initial), k=1)
        among = wasserstein(self._graphs[one], self._graphs[other])
        self._usual = float(among.mean()) if among.any() else 1.0  # nothing to compare with, or all alike

    def individual(self, episodes: Episodes) -> Array:
        """Per agent the distance to the nearest initial episode, then the mean over agents (B,)."""
        new = paths(self._task, episodes)
        longer = np.maximum(episodes.length[:, None], self._length)
        nearest: Array = (hamming(new[:, None], self._paths) / longer[..., None]).min(axis=1).mean(axis=1)
        return nearest

    def team(self, episodes: Episodes) -> Array:
        """The mean distance to the initial episodes' graphs, in units of their distances from each other (B,)."""
        distance = wasserstein(graphs(self._task, episodes)[:, None], self._graphs)
        mean: Array = distance.mean(axis=(1, 2)) / self._usual
        return mean


def paths(task: Task, episodes: Episodes) -> Array:
    """Rounded positions and velocities after each step (B, T, N, 4); infinite after the end."""
    path = np.round(task.motion(episodes.states[:, 1:]), DECIMALS)
    path[~episodes.running] = np.inf
    return path


def hamming(a: Array, b: Array) -> NDArray[np.int64]:
    """Steps of two paths (..., T, N, 4) that differ, per agent (..., N).

    A step that only one of them has is one of them: infinite there, and not in the other.
    """
    steps: NDArray[np.int64] = (a != b).any(axis=-1).sum(axis=-2)
    return steps


def graphs(task: Task, episodes: Episodes) -> Array:
    """The nodes of the team's graph at each snapshot (B, snapshots, N, 4), neighbours added."""
    best = np.where(episodes.running, episodes.rewards.sum(axis=-1), -np.inf).argmax(axis=1)
    step = np.clip(best[:, None] + SNAPSHOTS, 0, episodes.length[:, None] - 1)
    return weisfeiler_lehman(task.motion(episodes.states[np.arange(len(episodes))[:, None], step + 1]))


def weisfeiler_lehman(nodes: Array) -> Array:
    """One iteration on the complete graph: x_i + the sum over j of x_j / distance_ij, for nodes (..., N, 4)."""
    at = nodes[..., :2]
    distance = np.sqrt(((at[..., :, None, :] - at[..., None, :, :]) ** 2).sum(axis=-1))
    weight = 1 / np.maximum(distance, NEAREST)
    weight *= 1 - np.eye(nodes.shape[-2])
    embedded: Array = nodes + np.einsum("...ij,...jk->...ik", weight, nodes)
    return embedded


def wasserstein(a: Array, b: Array) -> Array:
    """Exact Wasserstein distance of sets of nodes (..., N, 4), evenly weighted, Euclidean cost."""
    cost = np.sqrt(((a[..., :, None, :] - b[..., None, :, :]) ** 2).sum(axis=-1))
    return _best_permutation(cost) if cost.shape[-1] <= MOST_PERMUTED else _transport(cost)


def _best_permutation(cost: Array) -> Array:
    """Between evenly weighted sets of one size some permutation is an optimal transport (Birkhoff)."""
    agents = cost.shape[-1]
    goals = np.array(list(permutations(range(agents))))
    least: Array = cost[..., np.arange(agents), goals].sum(axis=-1).min(axis=-1) / agents
    return least


def _transport(cost: Array) -> Array:
    """The same by linear programming, one by one: POT solves single problems."""
    try:
        import ot
    except ImportError as error:
        raise FairTestError(
            f"method=mastest needs POT for a team of {cost.shape[-1]} agents (more than {MOST_PERMUTED}): run"
            " `pip install pot`."
        ) from error
    flat = cost.reshape(-1, *cost.shape[-2:])
    return np.array([ot.emd2([], [], one) for one in flat], np.float64).reshape(cost.shape[:-2])
