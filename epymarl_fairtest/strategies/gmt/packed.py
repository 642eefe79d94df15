"""The same network while its weights stand still: packed once, as compiled code reads them, for many answers."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from epymarl_fairtest.core import aligned
from epymarl_fairtest.strategies.gmt.compiled import product, size_of_parts
from epymarl_fairtest.strategies.gmt.weights import Weights
from epymarl_fairtest.team.products import REGISTER, TALL, WIDE

Values = NDArray[np.float32]


class Packed:
    """Torch adds up at most `longest` terms one by one."""

    def __init__(self, weights: Weights, longest: int) -> None:
        self._sizes = weights.sizes
        self._parts = [size_of_parts(inputs, longest) for inputs in weights.sizes[:-1]]
        self._nothing = aligned.zeros((max(weights.sizes) + WIDE,), np.float32)  # in the place of biases
        self._given = self._room(0)
        self._layers: list[tuple[Values, Values]] = []
        for (weight, bias), size in zip(weights.layers, self._parts, strict=True):
            outputs, inputs = weight.shape
            width = REGISTER if outputs % WIDE else WIDE
            tiles = aligned.zeros((-(-outputs // width) * width * inputs,), np.float32)
            _pack(weight, size, width, tiles)
            self._layers.append((tiles, np.pad(bias, (0, -outputs % width))))

    def _room(self, rows: int) -> list[Values]:
        """For cases and what each layer gives."""
        return [aligned.zeros((rows, size), np.float32) for size in self._sizes]

    def answer(self, x: Values, told: Values) -> Values:
        """For these cases; the first layer is told the same of all."""
        cases, last = len(x), len(self._layers) - 1
        rows = -(-cases // TALL) * TALL
        if rows > len(self._given[0]):
            self._given = self._room(rows)
        self._given[0][:cases] = x
        for number, (tiles, bias) in enumerate(self._layers):
            given, out, rectified = self._given[number], self._given[number + 1], 0 < number < last
            _layer(given[:rows], tiles, bias, self._nothing, out[:rows], self._parts[number], rectified)
            if not number:
                out[:cases] += told
                np.maximum(out[:cases], 0, out=out[:cases])
        return self._given[-1][:cases].copy()


@njit(cache=True, nogil=True)
def _pack(weight: Values, size: int, width: int, tiles: Values) -> None:
    """Parts of so many inputs behind each other, tile by tile, input by input."""
    outputs, inputs = weight.shape
    place = 0
    for first in range(0, inputs, size):
        for tile in range(0, outputs, width):
            for number in range(first, min(first + size, inputs)):
                for output in range(tile, min(tile + width, outputs)):
                    tiles[place + output - tile] = weight[output, number]
                place += width


@njit(cache=True, nogil=True)
def _layer(x: Values, tiles: Values, bias: Values, nothing: Values, out: Values, size: int, rectified: bool) -> None:
    inputs, room = x.shape[1], len(tiles) // x.shape[1]
    for first in range(0, inputs, size):
        end = min(first + size, inputs)
        some, added = tiles[first * room : end * room], nothing if first else bias
        product(x[:, first:end], some, added, out, rectified and end == inputs, first > 0)
