"""numpy's seeded generator inside compiled code: SeedSequence and PCG64 for one 32-bit seed, word for word.

gymnasium seeds an environment with `Generator(PCG64(SeedSequence(seed)))`. Making that object costs more
than an episode; this is the same stream as plain integer arithmetic.
"""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

# The stream is six words: state (high, low), increment (high, low), a spare 32-bit half and whether it is there.
WORDS = 6

_M32 = np.uint64(0xFFFFFFFF)
_MULTIPLIER_HIGH = np.uint64(0x2360ED051FC65DA4)
_MULTIPLIER_LOW = np.uint64(0x4385DF649FCCF645)


@njit(cache=True, nogil=True)
def _multiply(a: np.uint64, b: np.uint64) -> tuple[np.uint64, np.uint64]:
    """The 128-bit product of two words, high and low."""
    mask, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    a1, a0, b1, b0 = a >> half, a & mask, b >> half, b & mask
    low = a0 * b0
    middle = a1 * b0 + (low >> half)
    carry = a0 * b1 + (middle & mask)
    return a1 * b1 + (middle >> half) + (carry >> half), (carry << half) | (low & mask)


@njit(cache=True, nogil=True)
def _advance(stream: NDArray[np.uint64]) -> None:
    """state = state * multiplier + increment, modulo 2^128."""
    high, low = _multiply(stream[1], _MULTIPLIER_LOW)
    high += stream[1] * _MULTIPLIER_HIGH + stream[0] * _MULTIPLIER_LOW
    total = low + stream[3]
    stream[0] = high + stream[2] + np.uint64(total < low)
    stream[1] = total


@njit(cache=True, nogil=True)
def seed_stream(seed: np.uint64, stream: NDArray[np.uint64]) -> None:
    """Fill `stream` with the start that numpy gives to `seed` (below 2^32)."""
    pool = np.zeros(4, np.uint64)
    constant = np.uint64(0x43B0D7E5)
    for i in range(4):
        value = (seed if i == 0 else np.uint64(0)) ^ constant
        constant = (constant * np.uint64(0x931E8875)) & _M32
        value = (value * constant) & _M32
        pool[i] = value ^ (value >> np.uint64(16))
    for source in range(4):
        for target in range(4):
            if source != target:
                value = pool[source] ^ constant
                constant = (constant * np.uint64(0x931E8875)) & _M32
                value = (value * constant) & _M32
                value ^= value >> np.uint64(16)
                mixed = (np.uint64(0xCA01F9DD) * pool[target] - np.uint64(0x4973F715) * value) & _M32
                pool[target] = mixed ^ (mixed >> np.uint64(16))
    words = np.zeros(8, np.uint64)
    constant = np.uint64(0x8B51F9DD)
    for i in range(8):
        value = pool[i % 4] ^ constant
        constant = (constant * np.uint64(0x58F38DED)) & _M32
        value = (value * constant) & _M32
        words[i] = value ^ (value >> np.uint64(16))
    start_high, start_low = words[0] | (words[1] << np.uint64(32)), words[2] | (words[3] << np.uint64(32))
    sequence_high, sequence_low = words[4] | (words[5] << np.uint64(32)), words[6] | (words[7] << np.uint64(32))
    stream[2] = (sequence_high << np.uint64(1)) | (sequence_low >> np.uint64(63))
    stream[3] = (sequence_low << np.uint64(1)) | np.uint64(1)
    stream[0], stream[1] = np.uint64(0), np.uint64(0)
    stream[4], stream[5] = np.uint64(0), np.uint64(0)
    _advance(stream)
    total = stream[1] + start_low
    stream[0] += start_high + np.uint64(total < start_low)
    stream[1] = total
    _advance(stream)


@njit(cache=True, nogil=True)
def next_word(stream: NDArray[np.uint64]) -> np.uint64:
    """64 random bits (XSL-RR)."""
    _advance(stream)
    value = stream[0] ^ stream[1]
    rotation = stream[0] >> np.uint64(58)
    word: np.uint64 = (value >> rotation) | (value << ((np.uint64(64) - rotation) & np.uint64(63)))
    return word


@njit(cache=True, nogil=True)
def next_double(stream: NDArray[np.uint64]) -> float:
    return np.float64(next_word(stream) >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@njit(cache=True, nogil=True)
def _next_half(stream: NDArray[np.uint64]) -> np.uint64:
    """32 random bits; numpy hands out the low half of a word first and keeps the high one."""
    if stream[5]:
        stream[5] = np.uint64(0)
        kept: np.uint64 = stream[4]
        return kept
    word = next_word(stream)
    stream[4], stream[5] = word >> np.uint64(32), np.uint64(1)
    return word & np.uint64(0xFFFFFFFF)


@njit(cache=True, nogil=True)
def next_integer(stream: NDArray[np.uint64], low: Any, high: Any) -> Any:
    """`Generator.integers(low, high)`: Lemire's method on 32 bits. One possible value draws nothing."""
    span = np.uint64(high - low)
    if span <= np.uint64(1):
        return low
    product = _next_half(stream) * span
    left = product & np.uint64(0xFFFFFFFF)
    if left < span:
        threshold = (np.uint64(0x100000000) - span) % span
        while left < threshold:
            product = _next_half(stream) * span
            left = product & np.uint64(0xFFFFFFFF)
    return low + np.int64(product >> np.uint64(32))


@njit(cache=True, nogil=True)
def next_permutation(stream: NDArray[np.uint64], order: NDArray[np.int64]) -> None:
    """`Generator.permutation(len(order))`: shuffling draws by masking and rejecting, unlike `integers`."""
    for i in range(len(order)):
        order[i] = i
    for i in range(len(order) - 1, 0, -1):
        mask = np.uint64(1)
        while mask < np.uint64(i):
            mask = (mask << np.uint64(1)) | np.uint64(1)
        j = _next_half(stream) & mask
        while j > np.uint64(i):
            j = _next_half(stream) & mask
        order[i], order[np.int64(j)] = order[np.int64(j)], order[i]
