"""The gates of a GRU after its matrix products: the bits that torch gives, in half of its time.

Torch is asked for sigmoids and tanh, what is between them is compiled. On AMD most of torch's time is tanh. There it is
computed in double precision, which says the float that torch gives unless two floats are almost equally near; for these
few torch is asked. How near that is was measured with every float there is (docs/decisions/068). On Intel torch has
another tanh, faster than ours (docs/decisions/081), so `agrees` looks before ours is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray

Values = NDArray[np.float32]
Rows = NDArray[np.int64]
Mask = NDArray[np.bool_]

# tanh(g) / g by powers of g^2 for g within a quarter of ln 2, interpolated at Chebyshev's points: off by 2^-41 at most.
C0, C1, C2 = 0.9999999999995898, -0.33333333265029647, 0.13333315114633162
C3, C4 = -0.05395121858203856, 0.021217054756894105
TWICE_LOG2_E, HALF_LN_2 = 2.0 / math.log(2.0), math.log(2.0) / 2.0
# What is added to this is rounded to a whole number, whose last bits are the exponent of that power of 2.
TO_WHOLE = 1.5 * 2.0**52 + 1023.0
ONE, FOUR = np.float32(10.0), np.float32(4.0)  # from ONE on the nearest float is 1
# How near the middle of two floats, in parts of their distance, torch may take the other one; twice what any showed.
NEAR, NEAR_FROM_4 = 0.004, 0.028
BELOW = 29  # bits of a double below the last one of a float
FAR, FAR_FROM_4 = (np.uint64((0.5 - near) * 2.0**64) for near in (NEAR, NEAR_FROM_4))
WORD = 8  # doubts that are looked at together
BLOCK = 8  # rows after which the next thing is done to their numbers


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract"})
def _tanh(x: float) -> float:
    """Of a number from 0 to ONE, off by less than 2^-40 of it. x is g and half of a power of 2's logarithm: their tanh
    are u and (a / b), by which that of the sum is known."""
    shifted = x * TWICE_LOG2_E + TO_WHOLE
    g = x - (shifted - TO_WHOLE) * HALF_LN_2
    square = g * g
    u = g * (C0 + square * (C1 + square * (C2 + square * (C3 + square * C4))))
    power = np.int64(np.float64(shifted).view(np.int64) << 52).view(np.float64)
    a, b = power - 1.0, power + 1.0
    ratio: float = (a + b * u) / (b + a * u)
    return ratio


@njit(cache=True, nogil=True, error_model="numpy")
def tanh(x: Values, out: Values, doubt: Mask) -> None:
    """Into `out`, and where torch has to be asked: near the middle of two floats, and for what is not a number."""
    for i in range(len(x)):
        size = min(abs(x[i]), ONE)
        exact = np.float64(_tanh(np.float64(size)))
        out[i] = math.copysign(np.float32(exact), x[i])
        # What a float has no room for, as a signed number: the farther from 0, the nearer to the middle.
        rest = np.uint64(abs(exact.view(np.int64) << (64 - BELOW)))
        doubt[i] = (rest >= (FAR_FROM_4 if size >= FOUR else FAR)) | (x[i] != x[i])


@njit(cache=True, nogil=True, error_model="numpy")
def _close(
    gates: Values, of_input: Values, of_memory: Values, memory: Values, where: Rows, asked: Values, before: Values
) -> int:
    """The new memory over the old one, and how many numbers torch has to be asked about: `asked`, `where` in the memory
    they belong, and what was there `before`. `gates` (rows, 2, numbers) holds reset and update, ready to be used. The
    number of rows is one of whole blocks."""
    count, (rows, _, size) = 0, gates.shape
    x, new = np.empty(BLOCK * size, np.float32), np.empty(BLOCK * size, np.float32)
    doubt = np.empty(BLOCK * size, np.bool_)
    words = doubt.view(np.uint64)
    for first in range(0, rows, BLOCK):
        old = memory[first * size : (first + BLOCK) * size]
        for row in range(BLOCK):
            for i in range(size):
                x[row * size + i] = of_input[first + row, i] + of_memory[first + row, i] * gates[first + row, 0, i]
        tanh(x, new, doubt)
        for word in range(len(words)):
            if words[word]:
                for i in range(WORD * word, WORD * word + WORD):
                    if doubt[i]:
                        where[count], asked[count], before[count] = first * size + i, x[i], old[i]
                        count += 1
        for row in range(BLOCK):
            for i in range(size):
                at = row * size + i
                old[at] = (old[at] - new[at]) * gates[first + row, 1, i] + new[at]
    return count


@njit(cache=True, nogil=True)
def _settle(gates: Values, memory: Values, where: Rows, new: Values, before: Values, count: int) -> None:
    """The memory where torch was asked."""
    for number in range(count):
        row, i = divmod(where[number], gates.shape[2])
        memory[where[number]] = (before[number] - new[number]) * gates[row, 1, i] + new[number]


@njit(cache=True, nogil=True)
def _new(gates: Values, of_input: Values, of_memory: Values) -> None:
    """What tanh makes the new memory of, over `of_memory`."""
    rows, _, size = gates.shape
    for row in range(rows):
        for i in range(size):
            of_memory[row, i] = of_input[row, i] + of_memory[row, i] * gates[row, 0, i]


@njit(cache=True, nogil=True)
def _blend(gates: Values, memory: Values, new: Values) -> None:
    """The new memory over the old one."""
    rows, _, size = gates.shape
    for row in range(rows):
        for i in range(size):
            memory[row, i] = (memory[row, i] - new[row, i]) * gates[row, 1, i] + new[row, i]


class Gates:
    """What becomes of the gates of at most so many rows."""

    def __init__(self, rows: int, size: int) -> None:
        self._size, whole = size, rows * size
        self._parts = [slice(0, 2 * size)] if together(size) else [slice(0, size), slice(size, 2 * size)]
        self._room = np.zeros(whole, np.int64), np.zeros(whole, np.float32), np.zeros(whole, np.float32)

    def closing(self, gates: Values, of_input: Values, of_memory: Values, hidden: Values) -> Callable[[], None]:
        """A call of torch.gru_cell after its products: the new memory over `hidden`. `gates` (rows, 2 * numbers) is the
        sum of the products for reset and update, of the input and of the memory; the others (rows, numbers) are those
        for the new memory. They do not stay."""
        memory, room = hidden.reshape(-1), self._room
        parts = [torch.from_numpy(gates)[:, part] for part in self._parts]
        given, new = gates.reshape(len(gates), 2, self._size), torch.from_numpy(of_memory)

        def ask_little() -> None:
            count = _close(given, of_input, of_memory, memory, *room)
            torch.from_numpy(room[1][:count]).tanh_()
            _settle(given, memory, *room, count)

        def ask_all() -> None:
            _new(given, of_input, of_memory)
            new.tanh_()
            _blend(given, hidden, of_memory)

        remember = ask_little if agrees() else ask_all

        def call() -> None:
            for part in parts:
                part.sigmoid_()
            remember()

        return call


@cache
def together(size: int) -> bool:
    """Does torch round reset and update at once as it rounds rows of one of them? Not where its wide registers leave a
    rest of a row, which it computes in another way."""
    gates = torch.randn(1024, 3 * size, generator=torch.Generator().manual_seed(0))
    halves = [gates[:, :size].sigmoid(), gates[:, size : 2 * size].sigmoid()]
    return torch.equal(gates[:, : 2 * size].contiguous().sigmoid(), torch.cat(halves, 1))


LEAST, MOST, STRIDE = 2.0**-20, 16.0, 211  # smaller numbers are their own tanh, larger ones have 1
FEW = 56  # eight rows of seven, which do not fill the last of the wide registers


def _some() -> Values:
    first, last = np.array([LEAST, MOST], np.float32).view(np.uint32).tolist()
    return np.arange(first, last, STRIDE, dtype=np.uint32).view(np.float32)


@cache
def agrees() -> bool:
    """Does torch, on this machine, give what `tanh` does not doubt? Asked of two million numbers, 10 ms."""
    return all(disagreeing(numbers) == 0 for numbers in (_some(), -_some()))


@cache
def steady() -> bool:
    """Is the tanh of a number the same among few as among many?"""
    if agrees():
        return True
    numbers = torch.from_numpy(_some()[::16].copy())
    return torch.equal(numbers.tanh(), torch.cat([few.tanh() for few in numbers.split(FEW)]))


def disagreeing(numbers: Values) -> int:
    """Of how many of these numbers torch gives another tanh, although it is not in doubt here."""
    ours, doubt = np.empty_like(numbers), np.zeros(len(numbers), np.bool_)
    tanh(numbers, ours, doubt)
    theirs = torch.tanh(torch.from_numpy(numbers)).numpy()
    return int(((ours.view(np.uint32) != theirs.view(np.uint32)) & ~doubt).sum())
