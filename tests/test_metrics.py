"""What is counted: trajectories that differ, however many of them there are."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from epymarl_fairtest.metrics import Trajectories


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
