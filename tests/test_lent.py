"""Memory that is lent again: to one array at a time, only where it fits closely, and never without end."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from epymarl_fairtest.core import lent

SHAPE = 100, 1000  # of float64: 800 kB


@pytest.fixture(autouse=True)
def nothing_waits() -> Iterator[None]:
    gc.collect()
    lent._waiting.clear()
    yield
    lent._waiting.clear()


def place(array: Any) -> int:
    return int(array.ctypes.data)


def test_memory_waits_until_the_last_view_is_gone_and_is_lent_again() -> None:
    array = lent.empty(SHAPE)
    before, view = place(array), array[3:5].T
    del array
    other = lent.empty(SHAPE)
    assert place(other) != before
    del view
    assert place(lent.empty((1000, 200), np.float32)) == before


def test_arrays_are_as_numpys() -> None:
    array = lent.empty((40, 3, 700), np.float32)
    array[:] = 2
    assert (array.shape, array.dtype, array.flags.c_contiguous, array.flags.writeable) == (
        (40, 3, 700), np.float32, True, True,
    )  # fmt: skip
    assert array.sum() == 40 * 3 * 700 * 2
    assert lent.empty((0, 5)).shape == (0, 5)


@pytest.mark.parametrize("rows", [101, 80, 10])
def test_an_array_that_does_not_fit_closely_gets_memory_of_its_own(rows: int) -> None:
    array = lent.empty(SHAPE)
    before = place(array)
    del array
    other = lent.empty((rows, SHAPE[1]))
    assert len(lent._waiting) == 1
    assert place(other) != before


def test_what_has_waited_longest_goes_when_more_waits_than_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lent, "KEPT", 2_000_000)
    arrays = [lent.empty(SHAPE) for _ in range(4)]
    places = [place(array) for array in arrays]
    while arrays:
        arrays.pop(0)
    assert [place(block.memory) for block in lent._waiting] == places[2:]


def test_threads_never_share_memory() -> None:
    def use(number: int) -> bool:
        array = lent.empty(SHAPE)
        array[:] = number
        return bool((array == number).all())

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(use, range(200)))
