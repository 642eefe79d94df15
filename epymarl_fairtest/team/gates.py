"""The gates of a GRU after its matrix products, compiled: the bits that torch gives, in half of its time.

Most of torch's time is tanh. Here it is computed in double precision, which says the float that torch gives unless two
floats are almost equally near; for these few torch is asked. How near that is was measured with every float there is
(docs/decisions/068); on another machine torch may compute another way, so `agrees` looks before these gates are used.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

Values = NDArray[np.float32]
Rows = NDArray[np.int64]
Mask = NDArray[np.bool_]

# (2^f - 1) / f for f in [-0.5, 0.5], interpolated at Chebyshev's points: off by 2^-37 of its value at most.
C0, C1, C2, C3 = 0.6931471805568324, 0.24022650695888503, 0.055504109063258665, 0.009618129135236136
C4, C5, C6, C7 = 0.0013333478473685331, 0.00015403475186534046, 1.5303700711395797e-05, 1.32508055167583e-06
TWICE_LOG2_E = 2.0 / math.log(2.0)
ONE = 10.0  # from here on the nearest float is 1
# How near a tie, in parts of the value, torch may take the other float; twice what any float showed.
NEAR_TIE, NEAR_TIE_FROM_4 = 0.002 * 2.0**-23, 0.014 * 2.0**-23
WORD = 8  # doubts that are looked at together


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract"})
def _tanh(x: float) -> float:
    """Of a number that is not negative, off by less than 2^-36 of it; from e^2x - 1, which is exact near 0."""
    t = min(x, ONE) * TWICE_LOG2_E
    whole = np.rint(t)
    f = t - whole
    power = f * (C0 + f * (C1 + f * (C2 + f * (C3 + f * (C4 + f * (C5 + f * (C6 + f * C7)))))))
    scale = np.float64(np.int64(1) << np.int64(whole))
    grown = scale * power + (scale - 1.0)
    ratio: float = grown / (grown + 2.0)
    return ratio


@njit(cache=True, nogil=True, error_model="numpy")
def tanh(x: Values, out: Values, doubt: Mask) -> None:
    """Into `out`, and where torch has to be asked: near a tie, and for what is not a number."""
    for i in range(len(x)):
        size = np.float64(abs(x[i]))
        exact = _tanh(size)
        near = exact * (NEAR_TIE_FROM_4 if size >= 4.0 else NEAR_TIE)
        low, high = np.float32(exact - near), np.float32(exact + near)
        out[i] = math.copysign(low, x[i])
        doubt[i] = (low != high) | (x[i] != x[i])


@njit(cache=True, nogil=True, error_model="numpy")
def _close(of_input: Values, of_memory: Values, hidden: Values, where: Rows, asked: Values, before: Values) -> int:
    """The new memory over the old one, and how many numbers torch has to be asked about: `asked`, `where` in the memory
    they belong, and what was there `before`. `of_memory` (rows, 3, numbers) holds reset and update, ready to be used,
    and new as the products left it."""
    count, size = 0, hidden.shape[1]
    room = -(-size // WORD) * WORD
    x, old, new = np.zeros(room, np.float32), np.zeros(room, np.float32), np.zeros(room, np.float32)
    doubt = np.zeros(room, np.bool_)
    words = doubt.view(np.uint64)
    for row in range(len(hidden)):
        for i in range(size):
            old[i] = hidden[row, i]
            x[i] = of_input[row, 2, i] + of_memory[row, 2, i] * of_memory[row, 0, i]
        tanh(x, new, doubt)
        for word in range(len(words)):
            if words[word]:
                for i in range(WORD * word, WORD * word + WORD):
                    where[count], asked[count], before[count] = row * size + i, x[i], old[i]
                    count += doubt[i]
        for i in range(size):
            hidden[row, i] = (old[i] - new[i]) * of_memory[row, 1, i] + new[i]
    return count


@njit(cache=True, nogil=True)
def _settle(of_memory: Values, hidden: Values, where: Rows, new: Values, before: Values, count: int) -> None:
    """The memory where torch was asked."""
    for number in range(count):
        row, i = divmod(where[number], hidden.shape[1])
        hidden[row, i] = (before[number] - new[number]) * of_memory[row, 1, i] + new[number]


class Gates:
    """What becomes of gates in two tensors (rows, 3 * numbers), of the input and of the memory: reset, update, new."""

    def __init__(self, of_input: Tensor, of_memory: Tensor) -> None:
        rows, size = len(of_input), of_input.shape[1] // 3
        reset, update, _ = zip(of_memory.chunk(3, 1), of_input.chunk(3, 1), strict=True)
        self._pairs = reset, update  # one by one: how torch rounds a number depends on the length of its row
        self._of_input: Values = of_input.view(rows, 3, size).numpy()
        self._of_memory: Values = of_memory.view(rows, 3, size).numpy()
        most = rows * size + 1  # one is written before it is known whether it counts
        self._where, self._before = np.zeros(most, np.int64), np.zeros(most, np.float32)
        self._asked = torch.zeros(most)

    def close(self, hidden: Tensor) -> Tensor:
        """torch.gru_cell after its products, which stand in the gates: the new memory over `hidden`."""
        for gate, added in self._pairs:
            gate.add_(added).sigmoid_()
        memory, asked = hidden.numpy(), self._asked.numpy()
        count = _close(self._of_input, self._of_memory, memory, self._where, asked, self._before)
        self._asked[:count].tanh_()
        _settle(self._of_memory, memory, self._where, asked, self._before, count)
        return hidden


LEAST, MOST, STRIDE = 2.0**-20, 16.0, 211  # smaller numbers are their own tanh, larger ones have 1


@cache
def agrees() -> bool:
    """Does torch, on this machine, give what `tanh` does not doubt? Asked of two million numbers, 10 ms."""
    first, last = np.array([LEAST, MOST], np.float32).view(np.uint32).tolist()
    some = np.arange(first, last, STRIDE, dtype=np.uint32).view(np.float32)
    return all(disagreeing(numbers) == 0 for numbers in (some, -some))


def disagreeing(numbers: Values) -> int:
    """Of how many of these numbers torch gives another tanh, although it is not in doubt here."""
    ours, doubt = np.empty_like(numbers), np.zeros(len(numbers), np.bool_)
    tanh(numbers, ours, doubt)
    theirs = torch.tanh(torch.from_numpy(numbers)).numpy()
    return int(((ours.view(np.uint32) != theirs.view(np.uint32)) & ~doubt).sum())
