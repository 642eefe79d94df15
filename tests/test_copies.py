"""Copies inside compiled code: what is asked for, and nothing beside it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba import njit
from numba.core.errors import TypingError

from epymarl_fairtest.tasks.kernels.copies import clear, copy, fetch


@njit
def _copy(to: Any, place: int, source: Any, first: int, count: int) -> None:
    copy(to, place, source, first, count)


@pytest.mark.parametrize("dtype", [np.int16, np.float32, np.float64])
@pytest.mark.parametrize("count", [0, 1, 7, 40])
def test_numbers_are_counted_through_all_axes(dtype: Any, count: int) -> None:
    source, to = np.arange(60).reshape(3, 4, 5).astype(dtype), np.full((10, 6), -1, dtype)
    expected = to.copy()
    expected.reshape(-1)[11 : 11 + count] = source.reshape(-1)[13 : 13 + count]
    _copy(to, 11, source, 13, count)
    np.testing.assert_array_equal(to, expected)


@pytest.mark.parametrize("source", [np.zeros((4, 6))[:, ::2], np.zeros((4, 6)).T, np.zeros(24, np.float32)])
def test_what_has_gaps_or_another_type_is_not_compiled(source: Any) -> None:
    with pytest.raises(TypingError, match="both must be contiguous and of one type"):
        _copy(np.zeros(24), 0, source, 0, 1)


@njit
def _fetch(to: Any, place: int, count: int) -> None:
    fetch(to, place, count)


@pytest.mark.parametrize(("place", "count"), [(0, 24), (5, 0), (3, 17), (-1000, 5), (10**12, 5)])
def test_to_tell_what_will_be_written_changes_nothing_and_any_place_will_do(place: int, count: int) -> None:
    for dtype in (np.int16, np.float32, np.float64):
        to = np.arange(24).astype(dtype)
        _fetch(to, place, count)
        np.testing.assert_array_equal(to, np.arange(24))


@njit
def _clear(to: Any, place: int, count: int) -> None:
    clear(to, place, count)


@pytest.mark.parametrize(("place", "count"), [(0, 24), (5, 0), (3, 17)])
def test_what_is_cleared_is_zero_and_nothing_beside_it(place: int, count: int) -> None:
    for dtype in (np.int16, np.float32, np.float64):
        to = np.arange(1, 25).astype(dtype).reshape(4, 6)
        expected = to.copy()
        expected.reshape(-1)[place : place + count] = 0
        _clear(to, place, count)
        np.testing.assert_array_equal(to, expected)
