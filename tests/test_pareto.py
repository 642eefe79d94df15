"""ParetoSelect (Algorithm 3) against plain Python written from the paper's definitions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from epymarl_fairtest.strategies.genetic.pareto import crowding, fill_fronts, front, least_crowded, pareto_select, ranks

Row = Sequence[float]
VALUES = (0.0, 0.25, 0.5, 0.75, 1.0)
INSTANCES = 2000


# --- the definitions, slowly --------------------------------------------------------------------------


def dominates(a: Row, b: Row) -> bool:
    """No worse on every objective and strictly better on at least one."""
    return all(x <= y for x, y in zip(a, b, strict=True)) and any(x < y for x, y in zip(a, b, strict=True))


def slow_front(rows: Sequence[Row]) -> list[bool]:
    return [not any(dominates(other, row) for other in rows) for row in rows]


def slow_ranks(rows: Sequence[Row]) -> list[int]:
    """Take the front away, again and again."""
    rank = [-1] * len(rows)
    level = 0
    while -1 in rank:
        left = [i for i, r in enumerate(rank) if r == -1]
        best = [i for i in left if not any(dominates(rows[j], rows[i]) for j in left)]
        for i in best:
            rank[i] = level
        level += 1
    return rank


def slow_crowding(rows: Sequence[Row]) -> list[float]:
    """Per objective the gap between both neighbours over the range; the ends are infinitely far."""
    distance = [0.0] * len(rows)
    for objective in range(len(rows[0]) if rows else 0):
        known = [i for i in range(len(rows)) if math.isfinite(rows[i][objective])]
        order = sorted(known, key=lambda i: (rows[i][objective], i))
        values = [rows[i][objective] for i in order]
        if not values or values[0] == values[-1]:
            continue
        for place, i in enumerate(order):
            if place in (0, len(order) - 1):
                distance[i] += math.inf
            else:
                distance[i] += (values[place + 1] - values[place - 1]) / (values[-1] - values[0])
    return distance


def slow_least_crowded(candidates: list[int], rows: Sequence[Row], count: int) -> list[int]:
    distance = slow_crowding([rows[i] for i in candidates])
    places = sorted(range(len(candidates)), key=lambda place: (-distance[place], place))
    return [candidates[place] for place in places[:count]]


def slow_fill(candidates: list[int], rows: Sequence[Row], rank: list[int], size: int) -> list[int]:
    chosen: list[int] = []
    for level in range(max(rank, default=-1) + 1):
        members = [i for i, r in zip(candidates, rank, strict=True) if r == level]
        room = size - len(chosen)
        chosen += members if len(members) <= room else slow_least_crowded(members, rows, room)
    return chosen


def slow_select(rows: Sequence[Row], uncertainty: Row, size: int, cap: int, fill: str) -> list[int]:
    candidates = sorted(range(len(rows)), key=lambda i: (uncertainty[i], i))[:cap]
    scores = [rows[i] for i in candidates]
    if fill == "fronts":
        return slow_fill(candidates, rows, slow_ranks(scores), size)
    first = slow_front(scores)
    chosen = [i for i, good in zip(candidates, first, strict=True) if good]
    rest = [i for i, good in zip(candidates, first, strict=True) if not good]
    if len(chosen) < size:
        return chosen + slow_least_crowded(rest, rows, size - len(chosen))
    return chosen if len(chosen) == size else slow_least_crowded(chosen, rows, size)


# --- random instances ---------------------------------------------------------------------------------


def instances(seed: int, *, columns: int | None = None, infinite: bool = True) -> Iterator[NDArray[np.float64]]:
    """Small score tables full of ties, duplicates and missing values."""
    generator = np.random.default_rng(seed)
    for _ in range(INSTANCES):
        shape = (int(generator.integers(1, 14)), columns or int(generator.integers(1, 4)))
        scores = generator.choice(VALUES[: generator.integers(1, 6)], shape)
        if generator.random() < 0.3:
            scores = generator.random(shape)
        if infinite:
            scores[generator.random(shape) < generator.choice([0, 0.1, 0.5])] = np.inf
        if len(scores) > 2 and generator.random() < 0.5:
            scores[-1] = scores[0]
        yield scores


def test_front_and_ranks_are_those_of_the_definition() -> None:
    for scores in instances(0):
        rows = scores.tolist()
        assert front(scores).tolist() == slow_front(rows)
        assert ranks(scores).tolist() == slow_ranks(rows)


def test_crowding_distances_are_those_of_the_definition() -> None:
    for scores in instances(1):
        assert crowding(scores).tolist() == slow_crowding(scores.tolist())


def test_the_least_crowded_are_those_of_the_definition() -> None:
    generator = np.random.default_rng(2)
    for scores in instances(2):
        rows = generator.permutation(len(scores))[: generator.integers(1, len(scores) + 1)]
        count = int(generator.integers(0, len(scores) + 3))
        assert least_crowded(rows, scores, count).tolist() == slow_least_crowded(rows.tolist(), scores.tolist(), count)


@pytest.mark.parametrize("fill", ["crowding", "fronts"])
def test_pareto_select_is_algorithm_3(fill: str) -> None:
    generator = np.random.default_rng(3)
    shorter = longer = 0
    for scores in instances(3):
        uncertainty = scores[:, -1] if generator.random() < 0.5 else generator.choice(VALUES, len(scores))
        size, cap = (int(n) for n in generator.integers(1, len(scores) + 3, 2))
        chosen = pareto_select(scores, uncertainty, size, cap, fill).tolist()
        assert chosen == slow_select(scores.tolist(), uncertainty.tolist(), size, cap, fill)
        assert len(chosen) == min(size, cap, len(scores))
        assert len(set(chosen)) == len(chosen)
        assert set(chosen) <= set(range(len(scores)))
        members = int(front(scores).sum())
        shorter, longer = shorter + (members < size), longer + (members > size)
    assert min(shorter, longer) > INSTANCES // 10, "both branches of Algorithm 3 must be tried"


def test_filling_whole_fronts_keeps_the_better_front() -> None:
    generator = np.random.default_rng(4)
    for scores in instances(4):
        rank = ranks(scores)
        size = int(generator.integers(1, len(scores) + 1))
        chosen = fill_fronts(np.arange(len(scores)), scores, rank, size)
        assert chosen.tolist() == slow_fill(list(range(len(scores))), scores.tolist(), rank.tolist(), size)
        left = np.setdiff1d(np.arange(len(scores)), chosen)
        assert not len(left) or rank[chosen].max() <= rank[left].min()


# --- what the paper says of it ------------------------------------------------------------------------


def test_the_second_candidate_of_the_papers_example_is_dominated() -> None:
    scores = np.array([[0.1, 0.2], [0.3, 0.4]])
    assert front(scores).tolist() == [True, False]
    assert ranks(scores).tolist() == [0, 1]
    assert pareto_select(scores, scores[:, 1], 1, 2).tolist() == [0]


def test_the_pre_filter_keeps_only_the_most_uncertain() -> None:
    """The best on f2 is the least uncertain: it passes a wide filter and fails a narrow one."""
    scores = np.array([[0.0, 0.9], [0.5, 0.1], [0.6, 0.2], [0.7, 0.3]])
    assert 0 in pareto_select(scores, scores[:, 1], 2, 4)
    assert sorted(pareto_select(scores, scores[:, 1], 2, 2).tolist()) == [1, 2]
    assert sorted(pareto_select(scores, scores[:, 1], 4, 3).tolist()) == [1, 2, 3]


def test_the_first_front_is_always_kept_when_it_fits() -> None:
    generator = np.random.default_rng(5)
    for scores in instances(5, columns=2, infinite=False):
        first = set(np.flatnonzero(front(scores)).tolist())
        size = int(generator.integers(len(first), len(scores) + 1))
        assert first <= set(pareto_select(scores, scores[:, 1], size, len(scores)).tolist())


def test_a_missing_value_is_worse_than_every_other() -> None:
    assert front(np.array([[np.inf, 0.5], [1e300, 0.5]])).tolist() == [False, True]
    assert ranks(np.array([[np.inf], [np.inf], [1.0]])).tolist() == [1, 1, 0]


def test_fill_changes_what_lies_behind_the_front() -> None:
    """Crowding takes the far-off worst one, fronts the second best."""
    scores = np.array([[0.0, 0.0], [0.1, 0.1], [0.2, 0.2], [1.0, 1.0]])
    assert pareto_select(scores, scores[:, 1], 2, 4, "fronts").tolist() == [0, 1]
    assert 3 in pareto_select(scores, scores[:, 1], 3, 4, "crowding")


@pytest.mark.parametrize("fill", ["crowding", "fronts"])
def test_no_candidates_give_no_selection(fill: str) -> None:
    assert pareto_select(np.empty((0, 2)), np.empty(0), 5, 10, fill).tolist() == []
