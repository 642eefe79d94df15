"""The training sample: one pass, bounded memory, and the episode at position i kept as often as i says."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support import few_and_many

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.team.sample import TrainingSample, load_sample


def episode(position: int, steps: int = 3) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """The Q-values and rewards of the training episode at that position."""
    rng = np.random.default_rng(position)
    return rng.normal(size=(steps, 2, 4)).astype(np.float32), rng.normal(size=(steps, 2))


def filled(size: int, offered: int, seed: int = 0, at_once: int = 1) -> TrainingSample:
    sample = TrainingSample(size, seed)
    while sample.offered < offered:
        for position in sample.offer(at_once):
            sample.add(position, *episode(position, steps=1 + position % 3))
    return sample


def positions(sample: TrainingSample) -> list[int]:
    return sample.episodes().position.tolist()


# --- inclusion follows i ------------------------------------------------------------------------------

LENGTH, STREAMS, GROUPS = 60, 4000, 12
NOTHING = np.zeros((0, 1, 1), np.float32), np.zeros((0, 1))


def kept_by_sample(size: int, seed: int) -> list[int]:
    sample = TrainingSample(size, seed)
    for _ in range(LENGTH):
        for position in sample.offer():
            sample.add(position, *NOTHING)
    return positions(sample)


def kept_by_weights(weight: Callable[[int], float], size: int, generator: np.random.Generator) -> list[int]:
    """A reservoir like the sample's, with other weights."""
    keys = [(np.log(1 - generator.random()) / weight(i), i) for i in range(1, LENGTH + 1)]
    return [position for _, position in heapq.nlargest(size, keys)]


def statistic(kept: list[list[int]]) -> float:
    """Chi-square of single draws (samples of one) in groups of neighbouring positions, against p(i) ~ i."""
    positions = np.concatenate(kept)
    expected = np.arange(1, LENGTH + 1, dtype=float)
    expected *= len(positions) / expected.sum()
    found = np.bincount(positions, minlength=LENGTH + 1)[1:]
    found, expected = (values.reshape(GROUPS, -1).sum(axis=1) for values in (found, expected))
    return float(((found - expected) ** 2 / expected).sum())


LIMIT = 31.26  # chi-square with 11 degrees of freedom exceeds it once in a thousand


@few_and_many("streams", 400, STREAMS)
def test_a_sample_of_one_keeps_position_i_with_probability_proportional_to_i(streams: int) -> None:
    assert statistic([kept_by_sample(1, seed) for seed in range(streams)]) < LIMIT


@pytest.mark.slow
def test_the_statistic_accepts_the_weights_i_and_refuses_uniform_and_quadratic_ones() -> None:
    weights: dict[str, Callable[[int], float]] = {
        "linear": float,
        "uniform": lambda i: 1.0,
        "quadratic": lambda i: i * i,
    }
    found = {
        name: statistic([kept_by_weights(weight, 1, np.random.default_rng(seed)) for seed in range(STREAMS)])
        for name, weight in weights.items()
    }
    assert found["linear"] < LIMIT
    assert found["uniform"] > 10 * LIMIT
    assert found["quadratic"] > 10 * LIMIT


def inclusion(kept: list[list[int]]) -> Any:
    counts = np.bincount(np.concatenate(kept), minlength=LENGTH + 1)[1:]
    return counts.reshape(GROUPS, -1).sum(axis=1) / len(kept)


@few_and_many("streams", 400, STREAMS)
def test_a_larger_sample_includes_positions_as_weighted_sampling_without_replacement_does(streams: int) -> None:
    """Against an independent sampler that draws one after the other with p ~ i among what is left."""
    generator = np.random.default_rng(1)
    weights = np.arange(1, LENGTH + 1) / np.arange(1, LENGTH + 1).sum()
    drawn = [(1 + generator.choice(LENGTH, 10, replace=False, p=weights)).tolist() for _ in range(streams)]
    ours = inclusion([kept_by_sample(10, seed) for seed in range(streams)])
    assert ours == pytest.approx(inclusion(drawn), abs=0.08 * (STREAMS / streams) ** 0.5)
    uniform = [kept_by_weights(lambda i: 1.0, 10, np.random.default_rng(s)) for s in range(500)]
    quadratic = [kept_by_weights(lambda i: i * i, 10, np.random.default_rng(s)) for s in range(500)]
    assert np.abs(inclusion(uniform) - inclusion(drawn)).max() > 0.3
    assert np.abs(inclusion(quadratic) - inclusion(drawn)).max() > 0.3


# --- memory and order ---------------------------------------------------------------------------------


def test_memory_is_bounded_and_what_is_kept_was_asked_for() -> None:
    sample, wanted = TrainingSample(15, 3), set()
    for _ in range(2000):
        for position in sample.offer():
            wanted.add(position)
            sample.add(position, *episode(position))
        assert len(sample) == len(sample._heap) <= 15
    kept = positions(sample)
    assert len(kept) == 15
    assert kept == sorted(kept)
    assert set(kept) <= wanted
    assert len(wanted) < 300, "the hook would record nearly every episode"


def test_several_episodes_at_once_are_sampled_like_one_by_one() -> None:
    single, double = filled(8, 200), filled(8, 200, at_once=2)
    assert positions(single) == positions(double)


def test_more_at_once_than_there_is_room_for() -> None:
    sample = TrainingSample(2, 0)
    wanted = sample.offer(10)
    assert len(wanted) == 2
    assert wanted == sorted(position for _, position in sample._heap)


def test_the_sample_depends_on_the_seed_alone() -> None:
    same, other = (positions(filled(10, 300, seed)) for seed in (1, 2))
    assert same == positions(filled(10, 300, 1))
    assert same != other


def test_a_sample_of_size_0_keeps_nothing_and_asks_for_nothing(tmp_path: Path) -> None:
    sample = TrainingSample(0, 0)
    assert sample.offer(5) == []
    assert sample.offered == 5
    assert len(sample.episodes()) == 0
    sample.save(tmp_path / "sample.npz")
    loaded = load_sample(tmp_path / "sample.npz")
    assert len(loaded) == len(loaded.position) == len(loaded.q) == len(loaded.rewards) == len(loaded.received) == 0


def test_what_each_agent_received_is_added_up_episode_by_episode() -> None:
    sample = filled(12, 50)
    episodes = sample.episodes()
    assert len(set(episodes.length.tolist())) == 3
    for position, length, received in zip(episodes.position, episodes.length, episodes.received, strict=True):
        _, rewards = episode(int(position), steps=int(length))
        assert received.tolist() == [sum(column) for column in rewards.T.tolist()]


# --- files --------------------------------------------------------------------------------------------


def test_a_saved_sample_comes_back_as_it_was(tmp_path: Path) -> None:
    sample = filled(12, 50)
    sample.save(tmp_path / "sample.npz")
    loaded, kept = load_sample(tmp_path / "sample.npz"), sample.episodes()
    assert len(loaded) == 12
    for name in ("position", "length", "q", "rewards"):
        assert getattr(kept, name).dtype == getattr(loaded, name).dtype
        assert getattr(kept, name).tobytes() == getattr(loaded, name).tobytes()
    last = int(kept.position[-1])
    q, rewards = episode(last, steps=1 + last % 3)
    assert kept.q[-len(q) :].tobytes() == q.tobytes()
    assert kept.rewards[-len(q) :].tobytes() == rewards.tobytes()
    with np.load(tmp_path / "sample.npz", allow_pickle=False) as file:
        assert int(file["offered"]) == 50


def refused(path: Path) -> str:
    with pytest.raises(FairTestError, match="is not a training sample") as caught:
        load_sample(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("keep", [0, 10, 400, -1, -100])
def test_a_truncated_sample_is_refused(keep: int, tmp_path: Path) -> None:
    filled(12, 50).save(tmp_path / "sample.npz")
    content = (tmp_path / "sample.npz").read_bytes()
    (tmp_path / "sample.npz").write_bytes(content[:keep])
    refused(tmp_path / "sample.npz")


def test_a_missing_sample_is_refused(tmp_path: Path) -> None:
    refused(tmp_path / "nowhere.npz")


def test_random_damage_is_refused_or_read_but_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "sample.npz"
    filled(12, 50).save(path)
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    refusals = 0
    for _ in range(400):
        damaged = bytearray(content)
        for place in rng.integers(0, len(content), 4):
            damaged[place] = int(rng.integers(256))
        path.write_bytes(bytes(damaged))
        try:
            load_sample(path)
        except FairTestError:
            refusals += 1
    assert refusals > 200


def test_other_files_are_not_samples(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros(3))
    refused(tmp_path / "a.npy")
    np.savez(tmp_path / "b.npz", position=np.zeros(1))
    refused(tmp_path / "b.npz")
    (tmp_path / "c.npz").write_text("not a sample")
    refused(tmp_path / "c.npz")


def test_a_pickle_in_a_sample_does_not_run(tmp_path: Path) -> None:
    np.savez(tmp_path / "sample.npz", position=np.array([object()], dtype=object), length=np.ones(1, int))
    refused(tmp_path / "sample.npz")


GOOD = {
    "position": np.array([1, 2]),
    "length": np.array([2, 3]),
    "q": np.zeros((5, 2, 4), np.float32),
    "rewards": np.zeros((5, 2)),
}


@pytest.mark.parametrize(
    "changes",
    [
        {"length": np.array([2, 4])},
        {"length": np.array([7, -2])},
        {"length": np.array([2.0, 3.0])},
        {"length": np.array([[2, 3]])},
        {"length": np.array(5)},
        {"length": np.array(["2", "3"])},
        {"position": np.array([1])},
        {"position": np.array([1.5, 2])},
        {"q": np.zeros((4, 2, 4), np.float32)},
        {"q": np.zeros((5, 2), np.float32)},
        {"q": np.zeros((5, 3, 4), np.float32)},
        {"rewards": np.zeros(5)},
        {"rewards": np.array([["a", "b"]] * 5)},
    ],
)
def test_arrays_that_do_not_fit_together_are_refused(changes: dict[str, Any], tmp_path: Path) -> None:
    np.savez(tmp_path / "good.npz", **GOOD)
    assert len(load_sample(tmp_path / "good.npz")) == 2
    np.savez(tmp_path / "bad.npz", **{**GOOD, **changes})
    refused(tmp_path / "bad.npz")


def test_a_sample_saved_with_its_actions_is_read_without_them(tmp_path: Path) -> None:
    np.savez(tmp_path / "older.npz", **GOOD, actions=np.zeros((5, 2), np.int16))
    assert load_sample(tmp_path / "older.npz").length.tolist() == [2, 3]
