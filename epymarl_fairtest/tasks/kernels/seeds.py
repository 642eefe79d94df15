"""numpy's seeded generator inside compiled code: SeedSequence and PCG64 for one 32-bit seed, word for word.

gymnasium seeds an environment with `Generator(PCG64(SeedSequence(seed)))`. Making that object costs more
than an episode; this is the same stream as plain integer arithmetic.
"""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

# The stream is six words: state (high, low), increment (high, low), a spare 32-bit half and whether it is there. Behind
# it are four words in which a seed is mixed.
WORDS, POOL = 10, 6
Words = NDArray[np.uint64]

_M32 = np.uint64(0xFFFFFFFF)
_MULTIPLIER_HIGH, _MULTIPLIER_LOW = np.uint64(0x2360ED051FC65DA4), np.uint64(0x4385DF649FCCF645)
_MIXED, _MIXED_FACTOR = np.uint64(0x43B0D7E5), np.uint64(0x931E8875)
_GIVEN, _GIVEN_FACTOR = np.uint64(0x8B51F9DD), np.uint64(0x58F38DED)
_LEFT, _RIGHT = np.uint64(0xCA01F9DD), np.uint64(0x4973F715)
# Constants by name: numba takes longer to compile a call of np.uint64.
_0, _1, _11, _16, _32, _58, _63, _64 = (np.uint64(number) for number in (0, 1, 11, 16, 32, 58, 63, 64))


@njit(cache=True, nogil=True, inline="always")
def seed_stream(seed: np.uint64, stream: Words) -> None:
    """Fill `stream` with the start that numpy gives to `seed` (below 2^32)."""
    constant = _MIXED
    for i in range(4):
        value = (_0 if i else seed) ^ constant
        constant = constant * _MIXED_FACTOR & _M32
        value = value * constant & _M32
        stream[POOL + i] = value ^ (value >> _16)
    for source in range(4):
        for target in range(4):
            if source != target:
                value = stream[POOL + source] ^ constant
                constant = constant * _MIXED_FACTOR & _M32
                value = value * constant & _M32
                value = (_LEFT * stream[POOL + target] - _RIGHT * (value ^ (value >> _16))) & _M32
                stream[POOL + target] = value ^ (value >> _16)
    constant = _GIVEN
    for i in range(8):
        value = stream[POOL + i % 4] ^ constant
        constant = constant * _GIVEN_FACTOR & _M32
        value = value * constant & _M32
        value ^= value >> _16
        stream[i // 2] = stream[i // 2] | (value << _32) if i % 2 else value
    high, low = (stream[2] << _1) | (stream[3] >> _63), (stream[3] << _1) | _1
    total = low + stream[1]
    stream[0], stream[1] = high + stream[0] + np.uint64(total < low), total
    stream[2], stream[3], stream[5] = high, low, _0
    next_word(stream)


@njit(cache=True, nogil=True)
def next_word(stream: Words) -> np.uint64:
    """64 random bits (XSL-RR): state = state * multiplier + increment, modulo 2^128."""
    low = stream[1]
    a1, a0, b1, b0 = low >> _32, low & _M32, _MULTIPLIER_LOW >> _32, _MULTIPLIER_LOW & _M32
    least = a0 * b0
    middle = a1 * b0 + (least >> _32)
    carry = a0 * b1 + (middle & _M32)
    product = (carry << _32) | (least & _M32)
    high = a1 * b1 + (middle >> _32) + (carry >> _32) + low * _MULTIPLIER_HIGH + stream[0] * _MULTIPLIER_LOW + stream[2]
    low = product + stream[3]
    high += np.uint64(low < product)
    stream[0], stream[1] = high, low
    value, rotation = high ^ low, high >> _58
    word: np.uint64 = (value >> rotation) | (value << ((_64 - rotation) & _63))
    return word


@njit(cache=True, nogil=True, inline="always")
def next_double(stream: Words) -> float:
    return np.float64(next_word(stream) >> _11) * (1.0 / 9007199254740992.0)


@njit(cache=True, nogil=True)
def _next_half(stream: Words) -> np.uint64:
    """32 random bits; numpy hands out the low half of a word first and keeps the high one."""
    if stream[5]:
        stream[5] = _0
        kept: np.uint64 = stream[4]
        return kept
    word = next_word(stream)
    stream[4], stream[5] = word >> _32, _1
    return word & _M32


@njit(cache=True, nogil=True)
def next_integer(stream: Words, low: Any, high: Any) -> Any:
    """`Generator.integers(low, high)`: Lemire's method on 32 bits. One possible value draws nothing."""
    span = np.uint64(high - low)
    if span <= _1:
        return low
    while True:
        product = _next_half(stream) * span
        left = product & _M32
        if left >= span or left >= (np.uint64(0x100000000) - span) % span:
            return low + np.int64(product >> _32)


@njit(cache=True, nogil=True)
def next_permutation(stream: Words, order: NDArray[np.int64]) -> None:
    """`Generator.permutation(len(order))`: shuffling draws by masking and rejecting, unlike `integers`."""
    for i in range(len(order)):
        order[i] = i
    for i in range(len(order) - 1, 0, -1):
        mask = _1
        while mask < np.uint64(i):
            mask = (mask << _1) | _1
        j = _next_half(stream) & mask
        while j > np.uint64(i):
            j = _next_half(stream) & mask
        order[i], order[np.int64(j)] = order[np.int64(j)], order[i]
