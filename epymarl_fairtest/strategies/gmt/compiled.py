"""The same network, compiled: cases lie beside each other, so that a layer's weights are read where they are.

Everything is added up in torch's order. Of many terms its products add up parts, each from 0 on, and then the parts;
how long a part is depends on the processor (docs/decisions/086).
"""

from __future__ import annotations

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray

from epymarl_fairtest.core import aligned
from epymarl_fairtest.strategies.gmt.by_torch import DECAY, EPSILON, MEANS, corrected
from epymarl_fairtest.strategies.gmt.weights import Weights
from epymarl_fairtest.team.products import REGISTER, WIDE, narrow, wide

Values = NDArray[np.float32]
COLUMNS = REGISTER, WIDE  # places for cases
SUMMED = 16  # cases that torch adds up before it adds them to others


class Compiled:
    """Of at most so many cases as there are columns; those in which none stands are computed, too. Torch adds up at
    most `longest` terms one by one."""

    def __init__(self, weights: Weights, longest: int, columns: int) -> None:
        self._weights, self._longest, self._cases = weights, longest, 0
        sizes = weights.sizes[0], *(len(bias) for _, bias in weights.roomy)
        self._given, self._pulls = ([aligned.zeros((size, columns), np.float32) for size in sizes] for _ in range(2))
        widths = [REGISTER if size % WIDE else WIDE for size in sizes[:-1]]
        self._tiles = [
            aligned.zeros((-(-size // width), columns, width), np.float32)
            for size, width in zip(sizes, widths, strict=False)
        ]
        self._nothing = aligned.zeros((max(sizes) + WIDE,), np.float32)  # in the place of biases

    def answer(self, x: Values, told: Values) -> Values:
        self._cases = cases = len(x)
        self._given[0][:, :cases] = x.T
        last = len(self._weights.roomy) - 1
        for number, (weight, bias) in enumerate(self._weights.roomy):
            given, out = self._given[number : number + 2]
            _layer(weight, bias, given, self._nothing, out, self._longest, 0 < number < last)
            if not number:
                out[:, :cases] += told.T
                np.maximum(out, 0, out=out)
        return out[: self._weights.sizes[-1], :cases].T.copy()

    def find_gradient(self, pull: Values) -> None:
        pulled = self._pulls[-1]
        pulled[: pull.shape[1], : self._cases], pulled[:, self._cases :] = pull.T, 0
        torch.sum(torch.from_numpy(pull), 0, out=torch.from_numpy(self._weights.gradients[-1][1]))
        for number in range(len(self._weights.roomy) - 1, -1, -1):
            given, gradients = self._given[number], self._weights.roomy_gradients
            _find_gradient(pulled, given, self._tiles[number], self._nothing, gradients[number][0])
            if number:
                weight, out = self._weights.roomy[number][0], self._pulls[number]
                _pull(weight, pulled, given, self._nothing, out, gradients[number - 1][1], self._longest)
                pulled = out

    def learn(self, rate: float, steps: int) -> None:
        """Around torch's square root, which is not the processor's."""
        (first, second), (step, scale) = MEANS, corrected(rate, steps)
        weights, single = self._weights, np.float32
        moments = weights.gradient, weights.mean, weights.square
        _move_moments(*moments, single(1 - first), single(second), single(1 - second))
        torch.sqrt(torch.from_numpy(weights.square), out=torch.from_numpy(weights.root))
        kept, least = single(1 - rate * DECAY), single(EPSILON)
        _take_step(weights.all, weights.mean, weights.root, kept, single(-step), single(scale), least)


@njit(cache=True, nogil=True, fastmath={"contract"})  # products and sums are rounded together
def _move_moments(
    gradient: Values, mean: Values, square: Values, new: np.float32, kept: np.float32, added: np.float32
) -> None:
    for number in range(len(gradient)):
        mean[number] += new * (gradient[number] - mean[number])
        square[number] = kept * square[number]
        square[number] += added * gradient[number] * gradient[number]


@njit(cache=True, nogil=True, error_model="numpy")
def _take_step(
    values: Values, mean: Values, root: Values, kept: np.float32, step: np.float32, scale: np.float32, least: np.float32
) -> None:
    for number in range(len(values)):
        values[number] = kept * values[number] + step * mean[number] / (root[number] / scale + least)


@njit(cache=True, nogil=True)
def _layer(
    weight: Values, bias: Values, given: Values, nothing: Values, out: Values, longest: int, rectified: bool
) -> None:
    terms, size = len(given), size_of_parts(len(given), longest)
    for number in range(len(out)):
        out[number] = bias[number]
    for first in range(0, terms, size):
        last = first + size >= terms
        part = given[first : first + size].reshape(-1)
        product(weight[:, first : first + size], part, nothing, out, rectified and last, True)


@njit(cache=True, nogil=True)
def _pull(
    weight: Values, pulled: Values, given: Values, nothing: Values, out: Values, of_biases: Values, longest: int
) -> None:
    """How the loss changes with what the layer below gave before its rectifier, and the sum of that over the cases."""
    terms, size, zero = len(pulled), size_of_parts(len(pulled), longest), np.float32(0)
    for first in range(0, terms, size):
        part = pulled[first : first + size].reshape(-1)
        product(weight[first : first + size].T, part, nothing, out, False, first > 0)
    for number in range(len(out)):
        for case in range(out.shape[1]):
            out[number, case] = out[number, case] if given[number, case] > zero else zero
        total = zero
        for first in range(0, out.shape[1], SUMMED):
            some = zero
            for case in range(first, first + SUMMED):
                some += out[number, case]
            total += some
        of_biases[number] = total


@njit(cache=True, nogil=True)
def size_of_parts(terms: int, longest: int) -> int:
    """Halves where two parts would do."""
    return (terms + 1) // 2 if longest < terms < 2 * longest else longest


@njit(cache=True, nogil=True)
def product(x: Values, tiles: Values, bias: Values, out: Values, rectified: bool, onto: bool) -> None:
    """In tiles as wide as what is written allows."""
    if out.shape[1] % WIDE:
        narrow(x, tiles, bias, out, rectified, onto)
    else:
        wide(x, tiles, bias, out, rectified, onto)


@njit(cache=True, nogil=True)
def _find_gradient(pulled: Values, given: Values, tiles: Values, nothing: Values, of_weights: Values) -> None:
    """Of the weights, which are as wide as what the layer was given has numbers."""
    width = tiles.shape[2]
    for number in range(len(given)):
        for case in range(given.shape[1]):
            tiles[number // width, case, number % width] = given[number, case]
    product(pulled, tiles.reshape(-1), nothing, of_weights, False, False)
