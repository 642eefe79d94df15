"""The weights of a diffusion's network and what training keeps of each, one behind the other in one array."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core import aligned

Values = NDArray[np.float32]
Layer = tuple[Values, Values]
ROWS = 8  # a layer has room for whole eights of outputs: what is compiled takes so many at once


class Weights:
    """Linear layers of these sizes, drawn as torch draws them, and an array each for their gradient, its two moments
    and a root. What belongs to no output is 0 in all of them, and stays 0."""

    def __init__(self, sizes: Sequence[int], generator: np.random.Generator) -> None:
        self.sizes = tuple(sizes)
        rooms = [(-(-outputs // ROWS) * ROWS, inputs) for inputs, outputs in pairwise(sizes)]
        self._shapes = [shape for rows, inputs in rooms for shape in ((rows, inputs), (rows,))]
        total = sum(map(math.prod, self._shapes))
        self.all, self.gradient, self.mean, self.square, self.root = aligned.zeros((5, total), np.float32)
        self.roomy, self.roomy_gradients = self._layers(self.all), self._layers(self.gradient)
        self.layers, self.gradients = self._cut(self.roomy), self._cut(self.roomy_gradients)
        for weight, bias in self.layers:
            outputs, inputs = weight.shape
            drawn = generator.uniform(-1, 1, (outputs, inputs + 1)) / np.sqrt(inputs)
            weight[:], bias[:] = drawn[:, :-1], drawn[:, -1]

    def _layers(self, flat: Values) -> list[Layer]:
        """Weights and biases of each layer, with the room that they have."""
        ends = np.cumsum([math.prod(shape) for shape in self._shapes])[:-1]
        parts = [part.reshape(shape) for part, shape in zip(np.split(flat, ends), self._shapes, strict=True)]
        return list(zip(parts[::2], parts[1::2], strict=True))

    def _cut(self, layers: Sequence[Layer]) -> list[Layer]:
        return [(weight[:size], bias[:size]) for (weight, bias), size in zip(layers, self.sizes[1:], strict=True)]
