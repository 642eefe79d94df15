"""Randomness without state: a root seed gives named streams, an episode gives numbers by counting.

Nothing here knows episodes or environments. A number is a function of (stream, counter) alone, so
the same test draws the same numbers in any batch, on any engine and in any process.
"""

import hashlib

import numpy as np
from numpy.typing import NDArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def named(root_seed: int, *names: str | int) -> np.random.Generator:
    """A generator of its own for one purpose, e.g. `named(seed, "random", round)`."""
    return np.random.default_rng([root_seed, *(_number(name) for name in names)])


def _number(name: str | int) -> int:
    if isinstance(name, int):
        return name
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")


def mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The SplitMix64 finaliser: a bijection of 64-bit words that looks random."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def uniform(stream: NDArray[np.uint64], counter: NDArray[np.integer]) -> NDArray[np.float64]:
    """Numbers in [0, 1), one per (stream, counter); both broadcast."""
    return (words(stream, counter) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def words(stream: NDArray[np.uint64], counter: NDArray[np.integer]) -> NDArray[np.uint64]:
    """64-bit words, one per (stream, counter); both broadcast."""
    with np.errstate(over="ignore"):
        word: NDArray[np.uint64] = mix(mix(stream) + (counter.astype(np.uint64) + np.uint64(1)) * _GOLDEN)
    return word
