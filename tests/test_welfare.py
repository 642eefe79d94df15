"""Rewards that know fairness: every welfare against a slow computation of what it says."""

from __future__ import annotations

import numpy as np
import pytest

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.indices import INDICES
from epymarl_fairtest.repair.welfare import MARGIN, WELFARES, Shaping, check_weight

REWARDS = np.random.default_rng(0).normal(size=(6, 9, 3)) ** 2
REWARDS[:, 7:] = 0.0  # after the end


def paid(welfare: str, weight: float, rewards: np.ndarray = REWARDS, **more: object) -> np.ndarray:
    return Shaping(welfare, weight, **more)(rewards).sum(axis=(1, 2))  # type: ignore[arg-type]


@pytest.mark.parametrize("rewards", [REWARDS, -REWARDS], ids=["gains", "costs"])
def test_gini_counts_the_worst_off_twice_and_the_best_off_not_at_all_at_weight_one(rewards: np.ndarray) -> None:
    received = np.sort(rewards.sum(axis=1), axis=1)
    np.testing.assert_allclose(paid("gini", 1.0, rewards), 2 * received[:, 0] + received[:, 1])
    np.testing.assert_allclose(paid("gini", 0.5, rewards), received @ [1.5, 1.0, 0.5])


def test_min_counts_the_worst_off_alone_at_weight_one() -> None:
    np.testing.assert_allclose(paid("min", 1.0), 3 * REWARDS.sum(axis=1).min(axis=1))
    plain, half = REWARDS.sum(axis=(1, 2)), paid("min", 0.5)
    np.testing.assert_allclose(half, (plain + paid("min", 1.0)) / 2)


def test_jain_charges_what_the_final_index_lacks_to_the_threshold_whatever_the_way_there() -> None:
    index = INDICES["jfi"](REWARDS.sum(axis=1))
    lacking = np.maximum(0, 0.9 + MARGIN - index)
    assert (lacking > 0).any()
    expected = REWARDS.sum(axis=(1, 2)) - 2.0 * 7.0 * lacking
    np.testing.assert_allclose(paid("jain", 2.0, theta=0.9, scale=7.0), expected)


def test_jain_charges_an_early_inequality_by_how_much_of_the_episode_is_over() -> None:
    even_later = np.array([[[4.0, 1.0, 1.0], [0.0, 3.0, 3.0], [1.0, 1.0, 1.0], [1.0, 1.0, 1.0], [0.0, 0.0, 0.0]]])
    bonus = (Shaping("jain", 1.0, theta=0.8)(even_later) - even_later).sum(axis=2)[0]
    lacking = 0.8 + MARGIN - INDICES["jfi"](even_later[0, :1])[0]  # after the first of the four steps that are paid
    np.testing.assert_allclose(bonus, [-lacking / 4, lacking / 4, 0, 0, 0], atol=1e-12)


def test_jain_pays_nothing_before_anybody_received_anything() -> None:
    late = np.zeros((1, 5, 3))
    late[0, 3] = [1.0, 0.0, 0.0]
    after = Shaping("jain", 1.0, theta=0.67)(late)
    assert not after[0, :3].any()
    assert after[0, 3].sum() < 1.0


@pytest.mark.parametrize("welfare", WELFARES)
def test_every_agent_gets_the_same_part_of_the_bonus_and_nothing_after_the_end(welfare: str) -> None:
    bonus = Shaping(welfare, 0.7)(REWARDS) - REWARDS
    np.testing.assert_allclose(bonus, np.broadcast_to(bonus[..., :1], bonus.shape), atol=1e-12)
    assert bonus.any()
    assert not bonus[:, 7:].any()


def test_agents_that_are_not_judged_do_not_count() -> None:
    changed = REWARDS.copy()
    changed[..., 0] *= 100
    ours, theirs = (Shaping("gini", 1.0, agents=(2, 3))(rewards) - rewards for rewards in (REWARDS, changed))
    np.testing.assert_allclose(ours, theirs, atol=1e-9)


@pytest.mark.parametrize("welfare", WELFARES)
def test_a_weight_that_makes_no_sense_is_refused_with_what_is_allowed(welfare: str) -> None:
    for weight in (0.0, -1.0, float("nan"), WELFARES[welfare].most * 1.1):
        with pytest.raises(FairTestError, match=f"above 0 and at most {WELFARES[welfare].most:g}"):
            check_weight(welfare, weight)
    for weight in WELFARES[welfare].weights:
        check_weight(welfare, weight)
