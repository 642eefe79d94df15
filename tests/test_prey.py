"""The shipped prey: exact in any order of summation, safe to load, and hard to catch."""

from __future__ import annotations

import importlib.util
import pickle
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from support import few_and_many

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.tasks.tag.prey import (
    SHAPES,
    SHIPPED,
    WEIGHT_BOUND,
    WEIGHT_SCALE,
    Prey,
)

pytestmark = pytest.mark.slow

TRAINER = Path(__file__).resolve().parents[1] / "tools" / "train_prey.py"


@pytest.fixture(scope="module")
def prey() -> Prey:
    return Prey.load()


@pytest.fixture(scope="module")
def trainer() -> ModuleType:
    """The training script as a module: it owns the chasers and the measurement in mpe2."""
    pytest.importorskip("torch")
    pytest.importorskip("mpe2")
    spec = importlib.util.spec_from_file_location("train_prey", TRAINER)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shipped() -> dict[str, np.ndarray]:
    with np.load(SHIPPED, allow_pickle=False) as archive:
        return dict(archive)


def observations(count: int) -> np.ndarray:
    """Plausible sights, with some far outside the clip and some exactly on rounding ties."""
    rng = np.random.default_rng(7)
    rows = rng.normal(0, 1, (count, 14))
    rows[::10] *= 20
    rows[5::10] = np.rint(rows[5::10] * 4096) / 4096 + 0.5 / 4096
    return rows


def slow_logits(prey: Prey, observation: np.ndarray, backwards: bool) -> list[float]:
    """The network again, number by number; backwards also puts the bias first instead of last."""

    def layer(x: list[float], w: np.ndarray, b: np.ndarray) -> list[float]:
        w, out = w.tolist(), []
        for j in range(len(b)):
            terms = [x[i] * w[i][j] for i in range(len(x))] + [float(b[j])]
            total = 0.0
            for term in reversed(terms) if backwards else terms:
                total += term
            out.append(total)
        return out

    def snap(x: list[float], low: float, high: float) -> list[float]:
        return [round(min(max(v, low), high) * 4096) / 4096 for v in x]  # round: ties to even, as rint

    hidden = snap(observation.tolist(), -8.0, 8.0)
    hidden = snap(layer(hidden, prey.w1, prey.b1), 0.0, 128.0)
    hidden = snap(layer(hidden, prey.w2, prey.b2), 0.0, 128.0)
    return layer(hidden, prey.w3, prey.b3)


@pytest.mark.parametrize("backwards", [False, True])
def test_any_order_of_summation_gives_the_same_bits(prey: Prey, backwards: bool) -> None:
    rows = observations(2000)
    slow = np.array([slow_logits(prey, row, backwards) for row in rows]) + 0.0
    assert prey.logits(rows).tobytes() == slow.tobytes()
    assert [prey.act(row) for row in rows] == [int(np.argmax(scores)) for scores in slow]


def test_a_compiled_kernel_may_reorder_as_it_likes(prey: Prey) -> None:
    """`fastmath` licenses reassociation and fused multiply-adds, and still no bit may change."""
    numba = pytest.importorskip("numba")

    @numba.njit(fastmath=True)
    def layer(x, w, b):
        out = np.empty(len(b))
        for j in range(len(b)):
            total = b[j]
            for i in range(len(x)):
                total += x[i] * w[i, j]
            out[j] = total
        return out

    def snap(x: np.ndarray, low: float, high: float) -> np.ndarray:
        return np.rint(np.clip(x, low, high) * 4096) / 4096

    rows = observations(500)
    fast = []
    for row in rows:
        hidden = snap(layer(snap(row, -8.0, 8.0), prey.w1, prey.b1), 0.0, 128.0)
        hidden = snap(layer(hidden, prey.w2, prey.b2), 0.0, 128.0)
        fast.append(layer(hidden, prey.w3, prey.b3))
    assert prey.logits(rows).tobytes() == (np.array(fast) + 0.0).tobytes()


def test_batched_equals_single(prey: Prey) -> None:
    rows = observations(2000)
    actions = prey.actions(rows)
    assert actions.dtype == np.int64
    assert actions.shape == (2000,)
    assert actions.tolist() == [prey.act(row) for row in rows]
    assert set(actions.tolist()) >= {1, 2, 3, 4}


def test_ties_go_to_the_lowest_action() -> None:
    level = Prey({name: np.zeros(shape) for name, shape in SHAPES.items()})
    assert level.act(np.ones(14)) == 0


def test_weights_lie_on_the_grid(prey: Prey) -> None:
    for name, shape in SHAPES.items():
        array = getattr(prey, name)
        assert array.shape == shape
        assert array.dtype == np.float64
        assert np.array_equal(array * WEIGHT_SCALE, np.rint(array * WEIGHT_SCALE))
        assert np.abs(array).max() <= WEIGHT_BOUND


@pytest.mark.parametrize("bad", [np.zeros(13), np.zeros((2, 14)), np.full(14, np.nan)])
def test_a_wrong_sight_is_refused(prey: Prey, bad: np.ndarray) -> None:
    with pytest.raises(FairTestError):
        prey.act(bad)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("w2", np.zeros((32, 31)), r"'w2'.*\(32, 31\).*\(32, 32\)"),
        ("b1", np.zeros(32, dtype=np.float32), "float32"),
        ("w1", np.full((14, 32), np.nan), "NaN"),
        ("w3", np.full((32, 5), np.inf), "NaN or infinity"),
        ("b3", np.full(5, 1 / 3), "multiples"),
        ("b2", np.full(32, 9.0), "within"),
    ],
)
def test_wrong_arrays_are_refused(tmp_path: Path, name: str, value: np.ndarray, words: str) -> None:
    np.savez(tmp_path / "bad.npz", **{**shipped(), name: value})
    with pytest.raises(FairTestError, match=words):
        Prey.load(tmp_path / "bad.npz")


def test_a_missing_array_or_file_is_named(tmp_path: Path) -> None:
    arrays = shipped()
    del arrays["b2"]
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(FairTestError, match="no array 'b2'"):
        Prey.load(tmp_path / "bad.npz")
    with pytest.raises(FairTestError, match=r"absent\.npz do not exist"):
        Prey.load(tmp_path / "absent.npz")


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    """Cut anywhere, or with bytes changed: an error of ours, or (in an unused byte) the same prey."""
    whole, bad = SHIPPED.read_bytes(), tmp_path / "bad.npz"
    for length in [*range(0, len(whole), 997), len(whole) - 1]:
        bad.write_bytes(whole[:length])
        with pytest.raises(FairTestError, match="cannot be read"):
            Prey.load(bad)
    rng, good = np.random.default_rng(3), shipped()
    for _ in range(300):
        damaged = bytearray(whole)
        for at in rng.integers(0, len(whole), 4):
            damaged[at] = rng.integers(256)
        bad.write_bytes(damaged)
        try:
            read = Prey.load(bad)
        except FairTestError:
            continue
        assert all(np.array_equal(getattr(read, name), good[name]) for name in SHAPES)


class Tripwire:
    """Unpickling this leaves a file behind."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple:
        return Path.touch, (self.mark,)


@pytest.mark.parametrize("kind", ["object array", "bare pickle", "bare npy"])
def test_a_hostile_file_runs_no_code(tmp_path: Path, kind: str) -> None:
    mark, bad = tmp_path / "ran", tmp_path / "bad.npz"
    if kind == "object array":
        np.savez(bad, **{**shipped(), "w1": np.array([Tripwire(mark)], dtype=object)})
    elif kind == "bare pickle":
        bad.write_bytes(pickle.dumps(Tripwire(mark)))
    else:
        with bad.open("wb") as file:
            np.save(file, np.zeros(3))
    with pytest.raises(FairTestError, match="cannot be read"):
        Prey.load(bad)
    assert not mark.exists()


def test_the_trainers_physics_are_those_of_mpe2(trainer: ModuleType) -> None:
    """What was learned in the numpy worlds counts only if they move as the real ones do."""
    from mpe2 import simple_tag_v3

    env, rng = simple_tag_v3.parallel_env(max_cycles=50), np.random.default_rng(1)
    for seed in range(10):
        env.reset(seed=seed)
        raw = env.unwrapped
        worlds = trainer.Worlds(1, rng)
        worlds.pos[0] = [entity.state.p_pos for entity in raw.world.entities]
        for _ in range(50):
            aim = worlds.pos[:, 3, None] - worlds.pos[:, :3]
            actions = np.append(trainer.toward(aim, rng.random((1, 3)) < 0.5)[0], rng.integers(5))
            env.step(dict(zip(raw.possible_agents, actions.tolist(), strict=True)))
            worlds.physics(actions[None])
            sight = raw.scenario.observation(raw.world.agents[3], raw.world)
            np.testing.assert_allclose(worlds.observe()[0, :14], sight, rtol=0, atol=1e-9)


@few_and_many("episodes", 8, 30)
def test_ours_is_caught_far_less_and_stays(trainer: ModuleType, prey: Prey, episodes: int) -> None:
    still, _, _ = trainer.measure(lambda _: 0, episodes, 500)
    ours, mean, greatest = trainer.measure(prey.act, episodes, 500)
    assert ours < 0.25 * still
    assert mean < 1.0
    assert greatest < 3.0
    assert (ours, mean, greatest) == trainer.measure(prey.act, episodes, 500)
