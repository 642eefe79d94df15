"""Memory that is used again: never while somebody holds an array, never beyond its bound, and no episode shows it."""

from __future__ import annotations

import gc
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from support import assert_identical, some_tests
from test_twin import twin

from epymarl_fairtest.core.episodes import Episodes, Tests
from epymarl_fairtest.engine import twin as twin_engine
from epymarl_fairtest.engine.memory import LEAST, LINE, Pool

SHAPE = (LEAST // 64, 4, 4)


def place(array: Any) -> int:
    return int(array.ctypes.data)


def test_memory_is_used_again_when_the_last_view_is_gone() -> None:
    pool = Pool(2**30)
    first = pool.used(SHAPE, np.float32)
    assert place(first) % LINE == 0
    was, view = place(first), first[3:, 1]
    del first
    other = pool.used(SHAPE, np.float32)
    assert place(other) != was
    view[:] = 1.0
    other[:] = 2.0
    assert (view == 1.0).all()
    del view
    assert place(pool.used((SHAPE[0] // 2, 4, 4), np.float64)) == was


def test_memory_is_not_lent_for_much_less() -> None:
    pool = Pool(2**30)
    was = place(pool.used((4 * LEAST,), np.uint8))
    little = pool.used((LEAST,), np.uint8)
    assert little.base is not None
    assert place(little) != was
    assert place(pool.used((3 * LEAST,), np.uint8)) == was
    assert pool.used((LEAST - 1,), np.uint8).base is None  # numpy's own


def test_memory_beyond_the_bound_is_not_kept() -> None:
    pool = Pool(LEAST + LINE)
    large, small = pool.used((4 * LEAST,), np.uint8), pool.used((LEAST,), np.uint8)
    del large
    assert pool._free == []
    del small
    assert [len(memory) for memory in pool._free] == [LEAST + LINE]


def test_memory_in_a_circle_comes_back_too() -> None:
    pool = Pool(2**30)
    circle: list[Any] = [pool.used(SHAPE)]
    circle.append(circle)
    del circle
    gc.collect()
    assert len(pool._free) == 1


class Scribbled:
    """Arrays full of what an earlier batch might have left."""

    @staticmethod
    def used(shape: tuple[int, ...], dtype: Any = np.float64) -> Any:
        return np.full(shape, 7, dtype)


@pytest.mark.parametrize("task", ["spread", "foraging"])
def test_no_episode_shows_what_was_in_its_memory(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, seeds = twin(task), some_tests(task, 40)
    monkeypatch.setattr(twin_engine, "BATCHES", type("Fresh", (), {"used": np.zeros}))
    first = engine.execute(seeds)
    step = (first.length // 2).astype(np.int32)
    middle = replace(seeds, start_step=step, start_state=first.states[np.arange(40), step], prefix=first)
    nothing = replace(first, **{name: getattr(first, name)[..., :0] for name in ("states", "obs", "q", "rewards")})
    kinds: list[Tests] = [seeds, middle, replace(middle, prefix=None), replace(middle, prefix=nothing)]
    fresh = [engine.execute(tests) for tests in kinds]
    monkeypatch.setattr(twin_engine, "BATCHES", Scribbled)
    for tests, expected in zip(kinds, fresh, strict=True):
        found = engine.execute(tests)
        assert_identical(found, expected)
        for field in fields(Episodes):
            assert getattr(found, field.name).tobytes() == getattr(expected, field.name).tobytes()
