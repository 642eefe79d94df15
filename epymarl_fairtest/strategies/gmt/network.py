"""The network of a diffusion: compiled where that has the bits of torch, else computed by torch.

Whether it has them is asked in every process, for each number of cases: how torch adds up depends on both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.strategies.gmt.by_torch import ByTorch
from epymarl_fairtest.strategies.gmt.compiled import COLUMNS, Compiled
from epymarl_fairtest.strategies.gmt.packed import Packed
from epymarl_fairtest.strategies.gmt.weights import Weights
from epymarl_fairtest.team.products import can_fuse

Values = NDArray[np.float32]
Sizes = tuple[int, ...]
LONGEST = 192, 256, 384, 512  # terms that torch may add up one by one
FEW = 3  # cases that torch computes in less time


class Network:
    """Linear layers with rectifiers between them, which learn at this rate."""

    def __init__(self, sizes: Sequence[int], generator: np.random.Generator, rate: float) -> None:
        self.weights = Weights(sizes, generator)
        self._rate, self._steps = rate, 0
        self._by_torch = ByTorch(self.weights)
        self._learning: dict[int, Compiled | ByTorch] = {}  # by the number of cases
        self._packed: dict[int, Packed] = {}  # by how torch adds up; of the weights since the last step

    def answer(self, x: Values, told: Values) -> Values:
        """For these cases, whose gradient is then found; the first layer is told something of each."""
        cases = len(x)
        if cases not in self._learning:
            longest = learning_as_torch(self.weights.sizes, cases)
            way = self._by_torch if longest is None else Compiled(self.weights, longest, columns_for(cases))
            self._learning[cases] = way
        self._answered = self._learning[cases]
        return self._answered.answer(x, told)

    def find_gradient(self, pull: Values) -> None:
        """Of the weights; `pull` is how the loss changes with the last answer."""
        self._answered.find_gradient(pull)

    def learn(self) -> None:
        """A step along the gradient."""
        self._steps += 1
        self._answered.learn(self._rate, self._steps)
        self._packed.clear()

    def ask(self, x: Values, told: Values) -> Values:
        """The answer alone, for any number of cases; the first layer is told the same of all."""
        longest = packed_as_torch(self.weights.sizes, len(x))
        if longest is None:
            return self._by_torch.answer(x, told)
        if longest not in self._packed:
            self._packed[longest] = Packed(self.weights, longest)
        return self._packed[longest].answer(x, told)


def columns_for(cases: int) -> int:
    """As few as are compiled; 0 where there are not enough."""
    return next((columns for columns in COLUMNS if cases <= columns), 0)


@cache
def learning_as_torch(sizes: Sizes, cases: int) -> int | None:
    """How many terms torch adds up one by one, if what is compiled learns from so many cases with its bits."""
    columns = columns_for(cases)
    if not can_fuse() or not columns:
        return None
    numbers = np.random.default_rng(cases)
    x, told, pull = (numbers.standard_normal((cases, size), np.float32) for size in (sizes[0], sizes[1], sizes[-1]))

    def learned(made: Callable[[Weights], ByTorch | Compiled]) -> tuple[bytes, bytes]:
        weights = Weights(sizes, np.random.default_rng(0))
        way = made(weights)
        for step in (1, 2):
            answer = way.answer(x, told).tobytes()
            way.find_gradient(pull)
            way.learn(0.01, step)
        return answer, weights.all.tobytes()

    wanted = learned(ByTorch)
    compiled = partial(Compiled, columns=columns)
    return next((longest for longest in LONGEST if learned(partial(compiled, longest=longest)) == wanted), None)


@cache
def packed_as_torch(sizes: Sizes, cases: int) -> int | None:
    """The same of answers alone, where that takes less time."""
    if not can_fuse() or cases <= FEW:
        return None
    weights, numbers = Weights(sizes, np.random.default_rng(0)), np.random.default_rng(cases)
    x, told = numbers.standard_normal((cases, sizes[0]), np.float32), numbers.standard_normal(sizes[1], np.float32)
    wanted = ByTorch(weights).answer(x, told).tobytes()
    return next((longest for longest in LONGEST if Packed(weights, longest).answer(x, told).tobytes() == wanted), None)
