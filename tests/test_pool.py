"""The training pool: one pass, bounded memory, and the episode at position i kept as often as i says."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.team.sample import TrainingSample, load_sample


def episode(position: int, steps: int = 3) -> TrainingEpisode:
    rng = np.random.default_rng(position)
    return TrainingEpisode(
        position,
        rng.normal(size=(steps, 2, 4)).astype(np.float32),
        rng.integers(0, 4, (steps, 2)).astype(np.int16),
        rng.normal(size=(steps, 2)),
    )


def filled(size: int, offered: int, seed: int = 0, at_once: int = 1) -> TrainingSample:
    pool = TrainingSample(size, seed)
    while pool.offered < offered:
        for position in pool.offer(at_once):
            pool.add(episode(position, steps=1 + position % 3))
    return pool


# --- inclusion follows i ------------------------------------------------------------------------------

LENGTH, STREAMS, GROUPS = 60, 4000, 12
NOTHING = (np.zeros((0, 1, 1), np.float32), np.zeros((0, 1), np.int16), np.zeros((0, 1)))


def kept_by_pool(size: int, seed: int) -> list[int]:
    pool = TrainingSample(size, seed)
    for _ in range(LENGTH):
        for position in pool.offer():
            pool.add(TrainingEpisode(position, *NOTHING))
    return [kept.position for kept in pool.episodes()]


def kept_by_weights(weight: Callable[[int], float], size: int, generator: np.random.Generator) -> list[int]:
    """A reservoir like the pool's, with other weights."""
    keys = [(np.log(1 - generator.random()) / weight(i), i) for i in range(1, LENGTH + 1)]
    return [position for _, position in heapq.nlargest(size, keys)]


def statistic(kept: list[list[int]]) -> float:
    """Chi-square of single draws (pools of one) in groups of neighbouring positions, against p(i) ~ i."""
    positions = np.concatenate(kept)
    expected = np.arange(1, LENGTH + 1, dtype=float)
    expected *= len(positions) / expected.sum()
    found = np.bincount(positions, minlength=LENGTH + 1)[1:]
    found, expected = (values.reshape(GROUPS, -1).sum(axis=1) for values in (found, expected))
    return float(((found - expected) ** 2 / expected).sum())


LIMIT = 31.26  # chi-square with 11 degrees of freedom exceeds it once in a thousand


def test_a_pool_of_one_keeps_position_i_with_probability_proportional_to_i() -> None:
    assert statistic([kept_by_pool(1, seed) for seed in range(STREAMS)]) < LIMIT


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


def test_a_larger_pool_includes_positions_as_weighted_sampling_without_replacement_does() -> None:
    """Against an independent sampler that draws one after the other with p ~ i among what is left."""
    generator = np.random.default_rng(1)
    weights = np.arange(1, LENGTH + 1) / np.arange(1, LENGTH + 1).sum()
    drawn = [(1 + generator.choice(LENGTH, 10, replace=False, p=weights)).tolist() for _ in range(STREAMS)]
    ours = inclusion([kept_by_pool(10, seed) for seed in range(STREAMS)])
    assert ours == pytest.approx(inclusion(drawn), abs=0.08)
    uniform = [kept_by_weights(lambda i: 1.0, 10, np.random.default_rng(s)) for s in range(500)]
    quadratic = [kept_by_weights(lambda i: i * i, 10, np.random.default_rng(s)) for s in range(500)]
    assert np.abs(inclusion(uniform) - inclusion(drawn)).max() > 0.3
    assert np.abs(inclusion(quadratic) - inclusion(drawn)).max() > 0.3


# --- memory and order ---------------------------------------------------------------------------------


def test_memory_is_bounded_and_what_is_kept_was_asked_for() -> None:
    pool, wanted = TrainingSample(15, 3), set()
    for _ in range(2000):
        for position in pool.offer():
            wanted.add(position)
            pool.add(episode(position))
        assert len(pool._kept) == len(pool._heap) <= 15
    kept = [e.position for e in pool.episodes()]
    assert len(kept) == 15
    assert kept == sorted(kept)
    assert set(kept) <= wanted
    assert len(wanted) < 300, "the hook would record nearly every episode"


def test_several_episodes_at_once_are_sampled_like_one_by_one() -> None:
    single, double = filled(8, 200), filled(8, 200, at_once=2)
    assert [e.position for e in single.episodes()] == [e.position for e in double.episodes()]


def test_more_at_once_than_there_is_room_for() -> None:
    pool = TrainingSample(2, 0)
    wanted = pool.offer(10)
    assert len(wanted) == 2
    assert wanted == sorted(position for _, position in pool._heap)


def test_the_sample_depends_on_the_seed_alone() -> None:
    same, other = ([e.position for e in filled(10, 300, seed).episodes()] for seed in (1, 2))
    assert same == [e.position for e in filled(10, 300, 1).episodes()]
    assert same != other


def test_a_pool_of_size_0_keeps_nothing_and_asks_for_nothing(tmp_path: Path) -> None:
    pool = TrainingSample(0, 0)
    assert pool.offer(5) == []
    assert pool.offered == 5
    assert pool.episodes() == []
    pool.save(tmp_path / "pool.npz")
    assert load_sample(tmp_path / "pool.npz") == []


# --- files --------------------------------------------------------------------------------------------


def test_a_saved_pool_comes_back_as_it_was(tmp_path: Path) -> None:
    pool = filled(12, 50)
    pool.save(tmp_path / "pool.npz")
    loaded = load_sample(tmp_path / "pool.npz")
    assert len(loaded) == 12
    for a, b in zip(pool.episodes(), loaded, strict=True):
        assert a.position == b.position
        for name in ("q", "actions", "rewards"):
            assert getattr(a, name).dtype == getattr(b, name).dtype
            assert getattr(a, name).tobytes() == getattr(b, name).tobytes()
    with np.load(tmp_path / "pool.npz", allow_pickle=False) as file:
        assert int(file["offered"]) == 50


def refused(path: Path) -> str:
    with pytest.raises(FairTestError, match="is not a training pool") as caught:
        load_sample(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("keep", [0, 10, 400, -1, -100])
def test_a_truncated_pool_is_refused(keep: int, tmp_path: Path) -> None:
    filled(12, 50).save(tmp_path / "pool.npz")
    content = (tmp_path / "pool.npz").read_bytes()
    (tmp_path / "pool.npz").write_bytes(content[:keep])
    refused(tmp_path / "pool.npz")


def test_a_missing_pool_is_refused(tmp_path: Path) -> None:
    refused(tmp_path / "nowhere.npz")


def test_random_damage_is_refused_or_read_but_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "pool.npz"
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


def test_other_files_are_no_pools(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros(3))
    refused(tmp_path / "a.npy")
    np.savez(tmp_path / "b.npz", position=np.zeros(1))
    refused(tmp_path / "b.npz")
    (tmp_path / "c.npz").write_text("no pool")
    refused(tmp_path / "c.npz")


def test_a_pickle_in_a_pool_does_not_run(tmp_path: Path) -> None:
    np.savez(tmp_path / "pool.npz", position=np.array([object()], dtype=object), length=np.ones(1, int))
    refused(tmp_path / "pool.npz")


GOOD = {
    "position": np.array([1, 2]),
    "length": np.array([2, 3]),
    "q": np.zeros((5, 2, 4), np.float32),
    "actions": np.zeros((5, 2), np.int16),
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
        {"actions": np.zeros((5, 3), np.int16)},
        {"rewards": np.zeros(5)},
        {"rewards": np.array([["a", "b"]] * 5)},
    ],
)
def test_arrays_that_do_not_fit_together_are_refused(changes: dict[str, Any], tmp_path: Path) -> None:
    np.savez(tmp_path / "good.npz", **GOOD)
    assert len(load_sample(tmp_path / "good.npz")) == 2
    np.savez(tmp_path / "bad.npz", **{**GOOD, **changes})
    refused(tmp_path / "bad.npz")
