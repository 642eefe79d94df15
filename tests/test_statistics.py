"""The statistics of a study: p-values as scipy gives them, A12 as counted by hand, and what ties do to both."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from epymarl_fairtest.core.statistics import area_interval, compare, mann_whitney, mean_error, mean_of


def exact_p(a: list[float], b: list[float]) -> float:
    """All ways to draw the first sample out of both, and how many have a U at least as far from its mean."""
    both = [*a, *b]

    def u(first: tuple[int, ...]) -> float:
        second = [number for number in range(len(both)) if number not in first]
        return sum((both[i] > both[j]) + (both[i] == both[j]) / 2 for i in first for j in second)

    middle = len(a) * len(b) / 2
    seen = abs(u(tuple(range(len(a)))) - middle)
    draws = list(itertools.combinations(range(len(both)), len(a)))
    return sum(abs(u(draw) - middle) >= seen for draw in draws) / len(draws)


@pytest.mark.parametrize(
    ("a", "b"),
    [([1, 2, 3], [4, 5, 6]), ([1, 4, 6, 7], [2, 3, 5]), ([10, 30, 50, 70, 90], [20, 40, 60, 80, 100])],
)
def test_a_few_runs_without_ties_are_counted_exactly(a: list[float], b: list[float]) -> None:
    assert mann_whitney(a, b) == pytest.approx(exact_p(a, b))


def test_ten_separate_runs_have_the_papers_p_value() -> None:
    found = compare(list(range(100, 110)), list(range(10)))
    assert found is not None
    assert round(found.p, 4) == 0.0002
    assert (found.a12, found.letter, found.stars) == (1.0, "L", "***")


def test_ties_are_corrected_for_in_the_variance() -> None:
    a, b = [3.0, 3, 3, 5, 6, 7, 8, 9, 9, 12], [1.0, 2, 3, 3, 3, 4, 4, 5, 5, 6]
    ranks = stats.rankdata([*a, *b])
    u = ranks[:10].sum() - 55
    _, counts = np.unique([*a, *b], return_counts=True)
    variance = 100 / 12 * (21 - (counts**3 - counts).sum() / (20 * 19))
    z = (abs(u - 50) - 0.5) / math.sqrt(variance)
    assert mann_whitney(a, b) == pytest.approx(2 * stats.norm.sf(z))
    assert mann_whitney(a, b) < 0.05


def test_equal_runs_give_no_evidence_and_no_effect() -> None:
    for runs in (1, 3, 10):
        found = compare([7.0] * runs, [7.0] * runs)
        assert found is not None
        assert (found.p, found.a12, found.letter, found.stars) == (1.0, 0.5, "N", "")


def test_one_constant_sample_against_another_is_separate() -> None:
    found = compare([0.0] * 10, [1.0] * 10)
    assert found is not None
    assert found.p < 0.001
    assert (found.a12, found.letter) == (0.0, "L")


def test_a12_counts_pairs_and_half_of_the_ties() -> None:
    found = compare([1, 2, 3], [2, 2, 4])
    assert found is not None
    assert found.a12 == (0 + 1 + 2) / 9  # 1 beats none; 2 ties twice; 3 beats two
    turned = compare([2, 2, 4], [1, 2, 3])
    assert turned is not None
    assert turned.a12 == pytest.approx(1 - found.a12)
    assert turned.p == found.p


@pytest.mark.parametrize(("n", "m"), [(1, 1), (7, 3), (40, 61), (300, 211)])
def test_a12_is_that_of_every_pair_to_the_last_bit(n: int, m: int) -> None:
    generator = np.random.default_rng(n)
    for a, b in (
        (generator.random(n), generator.random(m)),
        (generator.integers(0, 9, n) / 9, generator.integers(1, 7, m) / 9),  # with ties
        (np.where(generator.random(n) < 0.3, np.inf, -0.0), generator.integers(0, 2, m) * 1.0),
    ):
        more, less = int((a[:, None] > b).sum()), int((a[:, None] < b).sum())
        found = compare(a.tolist(), b.tolist())
        assert found is not None
        assert found.a12 == (more + (n * m - more - less) / 2) / (n * m)


@pytest.mark.parametrize(
    ("wins", "letter"),
    [(50, "N"), (55, "N"), (56, "S"), (63, "S"), (64, "M"), (70, "M"), (71, "L"), (44, "S"), (36, "M"), (29, "L"),
     (30, "M"), (45, "N"), (100, "L"), (0, "L")],
)  # fmt: skip
def test_letters_change_at_the_limits_in_both_directions(wins: int, letter: str) -> None:
    found = compare([0.5], [0.0] * wins + [1.0] * (100 - wins))
    assert found is not None
    assert found.a12 == wins / 100
    assert found.letter == letter


def test_nothing_is_compared_with_nothing() -> None:
    assert compare([], [1.0]) is None
    assert compare([1.0], []) is None


def test_a_mean_knows_its_spread_and_how_many_runs_it_is_of() -> None:
    found = mean_of([2.0, 4.0, 9.0])
    assert (found.mean, found.runs) == (5.0, 3)
    assert found.std == pytest.approx(math.sqrt(13))
    assert (mean_of([3.0]).mean, mean_of([3.0]).std) == (3.0, None)
    assert (mean_of([]).mean, mean_of([]).std, mean_of([]).runs) == (None, None, 0)


def test_the_interval_of_a_mean_is_students() -> None:
    values = np.random.default_rng(0).normal(3, 2, (12, 2))
    for column, error in zip(values.T, mean_error(values), strict=True):
        low, high = stats.t.interval(0.95, 11, column.mean(), stats.sem(column))
        assert (column.mean() - error, column.mean() + error) == pytest.approx((low, high))
    assert np.isnan(mean_error(values[:1])).all()


def test_the_interval_of_an_area_holds_the_true_one_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    true, held = float(stats.norm.cdf(1 / math.sqrt(2))), 0
    for _ in range(400):
        unfair, fair = rng.normal(1, 1, 60), rng.normal(0, 1, 90)
        low, high = area_interval(float((unfair[:, None] > fair).mean()), 60, 90)
        held += low <= true <= high
    assert 0.91 <= held / 400 <= 0.99
    assert area_interval(0.7, 0, 90) == (0.0, 1.0)
