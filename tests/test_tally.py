"""What is counted: trajectories that differ, however many of them there are."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from epymarl_fairtest.campaign.tally import Trajectories


def slow_distance(a: NDArray[np.float32], b: NDArray[np.float32]) -> float:
    """Mean distance of the agents; the shorter trajectory waits where it ended."""
    gaps = []
    for step in range(max(len(a), len(b))):
        here, there = a[min(step, len(a) - 1)], b[min(step, len(b) - 1)]
        gaps += [float(np.hypot(*(mine - other))) for mine, other in zip(here, there, strict=True)]
    return sum(gaps) / len(gaps)


@pytest.mark.parametrize("shortest", [1, 50])
def test_distances_to_many_are_those_to_each(shortest: int) -> None:
    generator, kept, paths = np.random.default_rng(0), Trajectories(), []
    for _ in range(40):
        path = generator.normal(size=(generator.integers(shortest, 51), 3, 2)).astype(np.float32)
        if paths:
            assert kept.distances(path) == pytest.approx([slow_distance(path, other) for other in paths], rel=1e-5)
        kept.add(path)
        paths.append(path)
    assert len(kept) == 40


def test_the_same_path_is_at_no_distance_after_longer_ones_came() -> None:
    kept = Trajectories()
    path = np.ones((3, 2, 2), np.float32)
    kept.add(path)
    kept.add(np.zeros((9, 2, 2), np.float32))
    assert kept.distances(path).tolist() == pytest.approx([0.0, 2**0.5])


@pytest.mark.parametrize("distance", [0.0, 0.05, 0.2, 0.8])
def test_a_near_trajectory_is_found_whatever_is_left_out_of_the_comparison(distance: float) -> None:
    generator, kept, paths = np.random.default_rng(1), Trajectories(), []
    common = np.cumsum(generator.normal(size=(40, 3, 2)) * 0.05, axis=0)
    answers = []
    for _ in range(120):
        moves = generator.normal(size=(40, 3, 2)) * 0.05
        moves[: generator.integers(0, 40)] = 0.0
        path = (common + np.cumsum(moves, axis=0))[: generator.integers(3, 41)].astype(np.float32)
        if generator.random() < 0.2 and paths:
            path = paths[generator.integers(len(paths))]
        near = any(slow_distance(path, other) <= distance for other in paths)
        assert kept.any_within(path, distance) == near
        answers.append(near)
        kept.add(path)
        paths.append(path)
    assert 0 < sum(answers) < len(answers)
