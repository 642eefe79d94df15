"""Fairness indices and judged episodes: what does not change them, where they lie, and what 0/0 means."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from epymarl_fairtest.core.episodes import Episodes, empty_episodes, random_tests
from epymarl_fairtest.core.indices import INDICES
from epymarl_fairtest.core.judged import Judge, Judged, totals

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


# --- what an index says about itself ------------------------------------------------------------------


def test_indices_are_listed_in_their_order_with_a_label_each() -> None:
    assert list(INDICES) == ["jfi", "gini", "min_max", "cv"]
    assert [one.label for one in INDICES.values()] == ["Jain's index", "1 − Gini", "min / max", "1 − variation"]


@every_index
@pytest.mark.parametrize("agents", [2, 3, 7])
def test_the_lowest_value_of_an_index_is_what_a_single_receiver_gives(name: str, agents: int) -> None:
    assert INDICES[name].lowest(agents) == pytest.approx(index(name, 5.0, *[0.0] * (agents - 1)), abs=1e-12)
    for x in random_rewards(sign="positive"):
        assert (INDICES[name](x) >= INDICES[name].lowest(x.shape[1]) - 1e-12).all()


# --- judging ------------------------------------------------------------------------------------------


def episodes_paying(rewards: NDArray[np.float64], start_step: int = 0) -> Episodes:
    """Episodes with these rewards (B, T, N) and nothing else of interest."""
    count, steps, agents = rewards.shape
    tests = random_tests(count, 2, np.random.default_rng(0))
    tests.root_seed[:], tests.start_step[:] = np.arange(count), start_step
    episodes = empty_episodes(tests, limit=steps, agents=agents, actions=2, state_size=2, obs_size=1)
    episodes.rewards[:], episodes.length[:] = rewards, steps
    return episodes


def judged(received: list[list[float]], theta: float, name: str = "jfi") -> Judged:
    return Judge(INDICES[name], theta)(episodes_paying(np.array(received)[:, None]))


def first_agent(received: NDArray[np.float64]) -> NDArray[np.float64]:
    """An index that is given: what the first agent received."""
    return received[..., 0]


def test_an_index_equal_to_the_threshold_is_unfair() -> None:
    theta = 0.8
    judge, values = Judge(first_agent, theta), np.array([theta, np.nextafter(theta, 1), 0.1, 1.0])
    assert judge.unfair(values[:, None]).tolist() == [True, False, True, False]
    assert judge(episodes_paying(values[:, None, None])).unfair.tolist() == [True, False, True, False]
    assert judged([[2.0, 0.0]], 0.5).unfair.tolist() == [True]


def test_an_undefined_episode_is_never_unfair() -> None:
    found = judged([[0.0] * 3, [-0.0, 0.0, 0.0], [1.0, 0.0, 0.0]], 1.0)
    assert found.undefined.tolist() == [True, True, False]
    assert found.unfair.tolist() == [False, False, True]
    assert np.isnan(found.index).tolist() == [True, True, False]
    assert Judge(INDICES["jfi"], 1.0).unfair(np.zeros((2, 3))).tolist() == [False, False]


@every_index
def test_judged_episodes_carry_what_each_agent_received_and_the_index_of_that(name: str) -> None:
    rewards = np.random.default_rng(4).uniform(0, [1.0, 1.0, 3.0], (20, 2, 3))
    episodes = episodes_paying(rewards)
    found = Judge(INDICES[name], 0.6)(episodes)
    assert found.episodes is episodes
    assert len(found) == 20
    assert found.received.tobytes() == totals(rewards).tobytes()
    assert found.index.tobytes() == INDICES[name](totals(rewards)).tobytes()
    assert found.unfair.tolist() == (found.index <= 0.6).tolist()
    assert 0 < found.unfair.sum() < 20
    assert Judge(INDICES[name], 0.6).unfair(found.received).tolist() == found.unfair.tolist()


def test_parts_of_judged_episodes_are_the_episodes_judged_in_parts() -> None:
    rewards = np.random.default_rng(5).normal(size=(9, 4, 2))
    judge = Judge(INDICES["gini"], 0.5)
    whole = judge(episodes_paying(rewards))
    first, rest = whole.take(slice(4)), whole.take(np.arange(4, 9))
    again = Judged.concatenate([first, rest])
    for part, rows in ((first, slice(4)), (rest, slice(4, 9)), (again, slice(None))):
        assert part.episodes.rewards.tobytes() == rewards[rows].tobytes()
        for name in ("received", "index", "unfair"):
            assert getattr(part, name).tobytes() == getattr(whole, name)[rows].tobytes(), name
    assert whole.take(whole.unfair).unfair.all()
    assert again.episodes.root_seed.tolist() == list(range(9))


def test_what_a_parent_left_is_not_counted_after_the_prefix() -> None:
    rewards = np.zeros((3, 6, 2))
    rewards[0, :, :] = [1.0, 1.0]  # shares alike before and after
    rewards[1, :3], rewards[1, 3:] = [5.0, 0.0], [1.0, 1.0]  # only the parent did not
    rewards[2, :3], rewards[2, 3:] = [0.0, 5.0], [5.0, 0.0]  # shared alike in all, not in what was executed
    judge, episodes = Judge(INDICES["jfi"], 0.8), episodes_paying(rewards, start_step=3)
    assert judge(episodes).unfair.tolist() == [False, True, False]
    assert judge.unfair_after_prefix(episodes, np.array([0, 1, 2])).tolist() == [False, False, True]
    assert judge.unfair_after_prefix(episodes, np.array([2, 1])).tolist() == [True, False]


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
