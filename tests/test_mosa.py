"""MOSA's selection and the tournament against plain Python written from their definitions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from test_pareto import Row, instances, slow_crowding, slow_fill, slow_ranks

from epymarl_fairtest.strategies.genetic.mosa import mosa_select, preference_ranks, standing, tournament, uncovered


def slow_uncovered(rows: Sequence[Row], goals: Row) -> list[int]:
    """Objectives whose goal nobody has reached; all of them when every goal is reached."""
    missing = [k for k in range(len(goals)) if all(row[k] > goals[k] for row in rows)]
    return missing or list(range(len(goals)))


def slow_preference(rows: list[list[float]], goals: Row, size: int) -> list[int]:
    wanted = slow_uncovered(rows, goals)
    best = set()
    for k in wanted:
        value = min(row[k] for row in rows)
        if math.isinf(value):
            continue  # missing: never best
        tied = [i for i, row in enumerate(rows) if row[k] == value]
        best.add(min(tied, key=lambda i: (rows[i].count(math.inf), sum(v for v in rows[i] if v < math.inf), i)))
    rest = [i for i in range(len(rows)) if i not in best]
    if len(best) >= size:
        return [0 if i in best else 1 for i in range(len(rows))]
    behind = dict(zip(rest, slow_ranks([[rows[i][k] for k in wanted] for i in rest]), strict=True))
    return [0 if i in best else 1 + behind[i] for i in range(len(rows))]


def dyadic(scores: np.ndarray) -> np.ndarray:
    """Rounded so that sums are exact: ties of sums are then the same ties for everyone."""
    return np.where(np.isfinite(scores), np.round(np.where(np.isfinite(scores), scores, 0) * 1024) / 1024, np.inf)


def test_preference_ranks_and_selection_are_those_of_the_definition() -> None:
    generator = np.random.default_rng(0)
    covered = 0
    for scores in map(dyadic, instances(10)):
        goals = generator.choice([-1.0, 0.0, 0.25, 0.6, 2.0], scores.shape[1])
        rows, size = scores.tolist(), int(generator.integers(1, len(scores) + 2))
        wanted = slow_uncovered(rows, goals.tolist())
        covered += len(wanted) < len(goals)
        assert np.flatnonzero(uncovered(scores, goals)).tolist() == wanted
        rank = slow_preference(rows, goals.tolist(), size)
        assert preference_ranks(scores, goals, size).tolist() == rank
        chosen = mosa_select(scores, goals, size).tolist()
        assert chosen == slow_fill(list(range(len(rows))), rows, rank, size)
        assert len(chosen) == min(size, len(rows)) == len(set(chosen))
    assert covered > 200


@pytest.mark.slow
def test_the_best_on_every_uncovered_objective_survives() -> None:
    for scores in map(dyadic, instances(11, columns=3, infinite=False)):
        goals = np.full(3, -1.0)
        size = min(3, len(scores))
        chosen = scores[mosa_select(scores, goals, size)]
        assert (chosen.min(axis=0) == scores.min(axis=0)).all()


def test_a_covered_objective_no_longer_guides() -> None:
    """Row 0 reaches the goal of the first objective; from then on only the second one counts."""
    scores = np.array([[0.1, 0.9], [0.5, 0.5], [0.9, 0.1]])
    goals = np.array([0.2, 0.0])
    assert uncovered(scores, goals).tolist() == [False, True]
    assert mosa_select(scores, goals, 1).tolist() == [2]
    assert preference_ranks(scores, goals, 3).tolist() == [2, 1, 0]


def test_all_objectives_guide_again_when_every_goal_is_reached() -> None:
    assert uncovered(np.array([[0.1, 0.1]]), np.array([0.5, 0.5])).tolist() == [True, True]


def test_a_goal_that_is_reached_exactly_is_covered() -> None:
    assert uncovered(np.array([[0.5, 0.9]]), np.array([0.5, 0.5])).tolist() == [False, True]


def test_a_crossover_child_without_f1_is_never_the_best_on_it() -> None:
    goals = np.array([0.0, 0.0, 0.0])
    child, executed = [np.inf, 0.4, 0.4], [0.99, 0.9, 0.9]
    rank = preference_ranks(np.array([child, executed]), goals, 2)
    assert rank.tolist() == [0, 0]  # the child for f2 and f3, the executed one for f1
    only_f1 = preference_ranks(np.array([child, executed])[:, :1], goals[:1], 2)
    assert only_f1.tolist() == [1, 0]
    nobody = preference_ranks(np.array([[np.inf], [np.inf]]), goals[:1], 1)
    assert nobody.tolist() == [1, 1]


@pytest.mark.slow
def test_standing_is_front_and_crowding_within_the_front() -> None:
    for scores in map(dyadic, instances(12)):
        goals = np.full(scores.shape[1], -1.0)
        rank, distance = standing(scores, goals)
        expected = slow_preference(scores.tolist(), goals.tolist(), len(scores))
        assert rank.tolist() == expected
        for level in set(expected):
            members = [i for i, r in enumerate(expected) if r == level]
            assert distance[members].tolist() == slow_crowding(scores[members].tolist())


def test_a_tournament_is_won_by_the_better_front_then_the_less_crowded_then_the_first_drawn() -> None:
    generator = np.random.default_rng(1)
    for _ in range(2000):
        members, count, size = (int(n) for n in generator.integers(1, 9, 3))
        rank = generator.integers(0, 3, members)
        distance = generator.choice([0.0, 0.5, np.inf], members)
        seed = int(generator.integers(2**32))
        winners = tournament(rank, distance, count, size, np.random.default_rng(seed))
        groups = np.random.default_rng(seed).integers(0, members, (count, size)).tolist()
        assert winners.tolist() == [slow_winner(group, rank, distance) for group in groups]


def slow_winner(group: list[int], rank: np.ndarray, distance: np.ndarray) -> int:
    best = group[0]
    for challenger in group[1:]:
        if rank[challenger] < rank[best] or (rank[challenger] == rank[best] and distance[challenger] > distance[best]):
            best = challenger
    return best


def test_larger_tournaments_prefer_the_best_more() -> None:
    rank, distance = np.arange(10), np.zeros(10)
    shares = [
        float((tournament(rank, distance, 20_000, size, np.random.default_rng(size)) == 0).mean()) for size in (1, 2, 4)
    ]
    expected = [1 - 0.9**size for size in (1, 2, 4)]
    assert all(abs(share - wanted) < 0.015 for share, wanted in zip(shares, expected, strict=True))


def test_no_draws_give_no_parents() -> None:
    assert len(tournament(np.zeros(3, np.int64), np.zeros(3), 0, 2, np.random.default_rng(0))) == 0
