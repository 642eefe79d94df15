"""The network of a diffusion: compiled where that has the bits of torch, else computed by torch.

Whether it has them is asked in every process, for each number of cases: how torch adds up depends on both.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.strategies.gmt.by_torch import ByTorch, learn
from epymarl_fairtest.strategies.gmt.compiled import COLUMNS, Compiled
from epymarl_fairtest.strategies.gmt.weights import Weights
from epymarl_fairtest.team.products import can_fuse

Values = NDArray[np.float32]
Way = ByTorch | Compiled
LONGEST = 192, 256, 384, 512  # terms that torch may add up one by one
FEW = 3  # cases that torch computes in less time


class Network:
    """Linear layers with rectifiers between them, and their gradient; `learn` is a step of AdamW with this rate."""

    def __init__(self, sizes: Sequence[int], generator: np.random.Generator, rate: float) -> None:
        self.weights = Weights(sizes, generator)
        self._rate, self._steps = rate, 0
        self._ways: dict[int, Way] = {}  # by the number of cases
        self._made: dict[tuple[int | None, int], Way] = {}

    def answer(self, x: Values, told: Values) -> Values:
        """For these cases; the first layer is told something more of each, or the same of all."""
        cases = len(x)
        if cases not in self._ways:
            self._ways[cases] = self._way(cases)
        self._answered = self._ways[cases]
        return self._answered.answer(x, told)

    def _way(self, cases: int) -> Way:
        longest, columns = agreed(self.weights.sizes, cases), columns_for(cases)
        if (longest, columns) not in self._made:
            made = ByTorch(self.weights) if longest is None else Compiled(self.weights, longest, columns)
            self._made[longest, columns] = made
        return self._made[longest, columns]

    def find_gradient(self, pull: Values) -> None:
        """Of the weights; `pull` is how the loss changes with the last answer."""
        self._answered.find_gradient(pull)

    def learn(self) -> None:
        self._steps += 1
        learn(self.weights, self._rate, self._steps)


def columns_for(cases: int) -> int:
    """As few as are compiled; 0 where there are not enough."""
    return next((columns for columns in COLUMNS if cases <= columns), 0)


@cache
def agreed(sizes: tuple[int, ...], cases: int) -> int | None:
    """How many terms torch adds up one by one, if what is compiled has its bits for so many cases, in less time."""
    if not can_fuse() or cases <= FEW or not columns_for(cases):
        return None
    weights, numbers = Weights(sizes, np.random.default_rng(0)), np.random.default_rng(cases)
    x, told, pull = (numbers.standard_normal((cases, size), np.float32) for size in (sizes[0], sizes[1], sizes[-1]))

    def given(way: Way) -> tuple[bytes, bytes]:
        answer = way.answer(x, told).tobytes()
        way.find_gradient(pull)
        return answer, weights.gradient.tobytes()

    wanted = given(ByTorch(weights))
    tried = ((longest, Compiled(weights, longest, columns_for(cases))) for longest in LONGEST)
    return next((longest for longest, way in tried if given(way) == wanted), None)
