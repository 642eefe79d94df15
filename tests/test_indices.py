"""Fairness indices: what does not change them, where they lie, and what nobody receiving anything means."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from epymarl_fairtest.core.indices import INDICES
from epymarl_fairtest.core.judged import Verdict, judge, totals

every_index = pytest.mark.parametrize("name", INDICES)
SCALES = (1e-310, 1e-300, 1e-160, 1e-9, 0.3, 7.0, 1e9, 1e160, 1e300)
OTHERS = ("gini", "min_max", "cv")


def random_rewards(seed: int = 0, *, rows: int = 400, sign: str = "mixed") -> list[NDArray[np.float64]]:
    """Batches with 2 to 12 agents; some agents receive nothing."""
    generator = np.random.default_rng(seed)
    batches = []
    for agents in (2, 3, 4, 8, 12):
        x = generator.uniform(0.01, 10, (rows, agents)) * (generator.random((rows, agents)) < 0.8)
        x[:, 0] += 0.01
        if sign == "negative":
            x = -x
        if sign == "mixed":
            x *= generator.choice([-1, 1], x.shape)
        batches.append(x)
    return batches


def index(name: str, *x: float) -> float:
    return float(INDICES[name](np.array(x, np.float64)))


# --- what does not change an index --------------------------------------------------------------------


@every_index
@pytest.mark.parametrize("scale", SCALES)
def test_an_index_does_not_change_with_the_scale_however_tiny_or_huge(name: str, scale: float) -> None:
    for x in random_rewards():
        # 1e-310 is denormal: its numbers have few digits.
        assert INDICES[name](x * scale) == pytest.approx(INDICES[name](x), abs=1e-9 if scale > 1e-308 else 0.01)


@every_index
def test_an_index_does_not_change_when_all_signs_change(name: str) -> None:
    for x in random_rewards():
        assert INDICES[name](-x) == pytest.approx(INDICES[name](x), abs=1e-12)


@every_index
def test_an_index_does_not_care_who_received_what(name: str) -> None:
    generator = np.random.default_rng(1)
    for x in random_rewards():
        shuffled = generator.permuted(x, axis=1)
        assert (shuffled != x).any()
        assert INDICES[name](shuffled) == pytest.approx(INDICES[name](x), abs=1e-12)


@every_index
def test_twice_as_much_for_everyone_is_as_fair(name: str) -> None:
    assert index(name, 3, 1, 2) == index(name, 6, 2, 4)


# --- Jain's index -------------------------------------------------------------------------------------


def test_jains_index_is_the_formula_of_the_paper() -> None:
    assert index("jfi", 3, 1, 2) == pytest.approx(36 / (3 * 14), abs=1e-15)
    for x in random_rewards():
        for row in x[:50]:
            expected = sum(row) ** 2 / (len(row) * sum(v * v for v in row))
            assert index("jfi", *row) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("sign", ["positive", "negative"])
def test_jains_index_lies_between_one_nth_and_one_for_rewards_of_one_sign(sign: str) -> None:
    for x in random_rewards(sign=sign):
        found = INDICES["jfi"](x)
        assert (found >= 1 / x.shape[1] - 1e-12).all()
        assert (found <= 1 + 1e-12).all()


@pytest.mark.parametrize("agents", [2, 3, 5, 10])
def test_jains_index_of_a_single_receiver_is_one_nth(agents: int) -> None:
    for amount in (1e-300, 0.7, -3.0, 1e300):
        x = np.zeros(agents)
        x[agents // 2] = amount
        assert index("jfi", *x) == pytest.approx(1 / agents, abs=1e-15)


@pytest.mark.parametrize("agents", [2, 3, 7])
@pytest.mark.parametrize("amount", [1e-308, 0.1, -0.1, 1e300])
def test_jains_index_of_equal_rewards_is_exactly_one(agents: int, amount: float) -> None:
    assert index("jfi", *[amount] * agents) == 1.0


def test_jains_index_of_a_zero_sum_is_zero() -> None:
    assert index("jfi", 1, -1) == 0
    assert index("jfi", 2, -1, -1) == 0


# --- the other indices --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("agents", [2, 3, 7])
@pytest.mark.parametrize("amount", [1e-308, 0.1, -0.1, 5.0, 1e300])
def test_the_other_indices_are_one_for_equal_shares_and_zero_for_a_single_receiver(
    name: str, agents: int, amount: float
) -> None:
    assert index(name, *[amount] * agents) == pytest.approx(1, abs=1e-12)
    assert index(name, amount, *[0.0] * (agents - 1)) == pytest.approx(0, abs=1e-12)


@every_index
@pytest.mark.parametrize("sign", ["positive", "negative", "mixed"])
def test_every_index_is_defined_and_lies_between_zero_and_one_whatever_the_signs(name: str, sign: str) -> None:
    for x in random_rewards(sign=sign):
        found = INDICES[name](x)
        assert np.isfinite(found).all()
        assert (found >= 0).all()
        assert (found <= 1 + 1e-12).all()


def test_the_other_indices_are_what_they_say() -> None:
    assert index("gini", 3, 1, 2) == pytest.approx(1 - (2 * (2 + 1 + 1)) / (2 * 2 * 6), abs=1e-12)
    assert index("min_max", 3, 1, 2) == pytest.approx(1 / 3, abs=1e-12)
    assert index("min_max", -3, -1, -2) == pytest.approx(1 / 3, abs=1e-12)
    assert index("min_max", 3, -1, 2) == 0
    assert index("cv", 3, 1, 2) == pytest.approx(1 - np.std([3, 1, 2]) / 2 / np.sqrt(2), abs=1e-12)
    assert index("cv", 1, -1) == 0


@every_index
def test_an_index_is_not_a_number_where_nobody_received_anything(name: str) -> None:
    found = INDICES[name](np.array([[0.0, 0.0, 0.0], [-0.0, 0.0, 0.0], [0.0, 1.0, 0.0]]))
    assert np.isnan(found).tolist() == [True, True, False]


@every_index
def test_an_index_works_on_any_leading_axes(name: str) -> None:
    x = random_rewards()[1][:24]
    assert INDICES[name](x.reshape(2, 3, 4, 3)).ravel().tobytes() == INDICES[name](x).tobytes()
    assert INDICES[name](np.empty((0, 3))).shape == (0,)


# --- verdicts -----------------------------------------------------------------------------------------


def test_an_index_equal_to_the_threshold_is_unfair() -> None:
    theta = 0.8
    above = np.nextafter(theta, 1)
    assert judge(np.array([theta, above, 0.1, 1.0]), theta).tolist() == [
        Verdict.UNFAIR,
        Verdict.FAIR,
        Verdict.UNFAIR,
        Verdict.FAIR,
    ]
    assert judge(INDICES["jfi"](np.array([[2.0, 0.0]])), 0.5).tolist() == [Verdict.UNFAIR]


def test_an_undefined_episode_is_never_unfair() -> None:
    assert judge(INDICES["jfi"](np.zeros((2, 3))), 1.0).tolist() == [Verdict.UNDEFINED] * 2


# --- what each agent received -------------------------------------------------------------------------


def batches(rewards: NDArray[Any]) -> list[NDArray[Any]]:
    return [rewards, rewards[::-1][::-1], np.asfortranarray(rewards), np.tile(rewards, (5, 1, 1))[: len(rewards)]]


@pytest.mark.parametrize("agents", [2, 3, 9, 17])
@pytest.mark.parametrize("steps", [1, 25, 50, 300])
def test_totals_and_indices_are_the_same_bits_in_every_batch(agents: int, steps: int) -> None:
    rewards = np.random.default_rng(steps).normal(size=(40, steps, agents)) * 10.0 ** np.arange(-agents, 0)
    together = totals(rewards)
    for batch in batches(rewards):
        assert totals(batch).tobytes() == together.tobytes()
    for row in range(0, 40, 7):
        assert totals(rewards[row]).tobytes() == together[row].tobytes()
        assert totals(rewards[row : row + 1]).tobytes() == together[row].tobytes()
        for name, one in INDICES.items():
            assert one(totals(rewards[row : row + 1])).tobytes() == one(together)[row].tobytes(), name


def test_totals_are_added_step_by_step() -> None:
    rewards = np.random.default_rng(2).normal(size=(6, 30, 3)) * 1e3
    for row in range(6):
        added = [0.0, 0.0, 0.0]
        for step in range(30):
            added = [have + float(more) for have, more in zip(added, rewards[row, step], strict=True)]
        assert totals(rewards)[row].tolist() == added


def test_steps_after_the_end_add_nothing() -> None:
    rewards = np.zeros((1, 10, 2))
    rewards[0, :4] = [[0.1, 0.2]] * 4
    assert totals(rewards).tobytes() == totals(rewards[:, :4]).tobytes()
