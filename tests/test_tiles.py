"""Layers in tiles: numpy's product where every sum is exact, in all rows and columns of the tile and no other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba import njit
from numba.core.errors import TypingError

from epymarl_fairtest.tasks.kernels.tiles import ACROSS, OUTPUTS, tile


@njit
def _tile(x: Any, inputs: int, weight: Any, bias: Any, out: Any, output: int, column: int) -> None:
    tile(x, inputs, weight, bias, out, output, column)


@pytest.mark.parametrize("inputs", [0, 1, 14, 32])
def test_a_tile_is_its_part_of_the_layer(inputs: int) -> None:
    generator = np.random.default_rng(inputs)
    x, weight, bias = (
        np.rint(generator.normal(size=size) * 1024) / 1024
        for size in ((40, 3 * ACROSS), (40, 2 * OUTPUTS), (2 * OUTPUTS,))
    )
    out, expected = np.full((2, 2 * OUTPUTS, 3 * ACROSS), -1.0)
    rows, columns = slice(OUTPUTS, 2 * OUTPUTS), slice(ACROSS, 2 * ACROSS)
    expected[rows, columns] = (weight[:inputs].T @ x[:inputs] + bias[:, None])[rows, columns]
    _tile(x, inputs, weight, bias, out, OUTPUTS, ACROSS)
    assert out.tobytes() == expected.tobytes()


def test_what_is_no_number_stays_none_in_its_column_alone() -> None:
    x, out = np.ones((4, ACROSS)), np.zeros((OUTPUTS, ACROSS))
    x[2, 3] = np.nan
    _tile(x, 4, np.ones((4, OUTPUTS)), np.zeros(OUTPUTS), out, 0, 0)
    assert np.isnan(out[:, 3]).all()
    assert (np.delete(out, 3, axis=1) == 4.0).all()


@pytest.mark.parametrize("x", [np.zeros((4, 2 * ACROSS))[:, ::2], np.zeros((4, ACROSS), np.float32)])
def test_what_has_gaps_or_another_type_is_not_compiled(x: Any) -> None:
    with pytest.raises(TypingError, match="contiguous arrays of float64"):
        _tile(x, 4, np.zeros((4, OUTPUTS)), np.zeros(OUTPUTS), np.zeros((OUTPUTS, ACROSS)), 0, 0)
