"""The network of a diffusion: linear layers with rectifiers between them, its gradient, and a step of AdamW.

The operations are those that torch's autograd and torch.optim.AdamW do, one by one and with the same bits, written into
memory that is there: all weights lie behind each other, and so do their gradients and moments. That takes two thirds of
their time (docs/decisions/085).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import relu_

MEANS, EPSILON, DECAY = (0.9, 0.999), 1e-8, 0.01  # of AdamW, where nothing else is said


class Network:
    def __init__(self, sizes: Sequence[int], generator: np.random.Generator, rate: float) -> None:
        drawn = []
        for inputs, outputs in pairwise(sizes):
            values = (generator.uniform(-1, 1, (outputs, inputs + 1)) / np.sqrt(inputs)).astype(np.float32)
            drawn += [values[:, :-1], values[:, -1]]
        shapes = [part.shape for part in drawn]
        self.size, self._outputs = sizes[0], sizes[1:]
        self._all = torch.from_numpy(np.concatenate([part.ravel() for part in drawn]))
        self.gradient, self._mean, self._square, self._root = (torch.zeros_like(self._all) for _ in range(4))
        self.layers, self._gradients = _pairs(self._all, shapes), _pairs(self.gradient, shapes)
        self._rate, self._steps, self._inputs = rate, 0, [torch.empty(0)]
        self._make_room(0)

    def _make_room(self, rows: int) -> None:
        """For what the layers give, and for what the loss changes with it."""
        self._given, self._pulls = ([torch.empty(rows, size) for size in self._outputs] for _ in range(2))

    @torch.no_grad()
    def answer(self, x: Tensor, told: Tensor) -> Tensor:
        """For these rows, of which the first layer is told something more; it stands until the next question."""
        rows = len(x)
        if rows > len(self._given[0]):
            self._make_room(rows)
        self._inputs = [x]
        for number, ((weights, biases), room) in enumerate(zip(self.layers, self._given, strict=True)):
            if number:
                self._inputs.append(relu_(x))
            x = torch.addmm(biases, x, weights.t(), out=room[:rows])
            if not number:
                x.add_(told)
        return x

    @torch.no_grad()
    def find_gradient(self, pull: Tensor) -> None:
        """Into `gradient`; `pull` is how the loss changes with the last answer."""
        for number in range(len(self.layers) - 1, -1, -1):
            x, (of_weights, of_biases) = self._inputs[number], self._gradients[number]
            torch.sum(pull, 0, out=of_biases)
            torch.mm(pull.t(), x, out=of_weights)
            if number:
                pull = torch.mm(pull, self.layers[number][0], out=self._pulls[number - 1][: len(x)])
                torch.ops.aten.threshold_backward.grad_input(pull, x, 0, grad_input=pull)

    @torch.no_grad()
    def learn(self) -> None:
        """A step of AdamW (Loshchilov & Hutter 2019)."""
        self._steps += 1
        first, second = MEANS
        step, scale = self._rate / (1 - first**self._steps), (1 - second**self._steps) ** 0.5
        self._all.mul_(1 - self._rate * DECAY)
        self._mean.lerp_(self.gradient, 1 - first)
        self._square.mul_(second).addcmul_(self.gradient, self.gradient, value=1 - second)
        torch.sqrt(self._square, out=self._root).div_(scale).add_(EPSILON)
        self._all.addcdiv_(self._mean, self._root, value=-step)


def _pairs(flat: Tensor, shapes: Sequence[tuple[int, ...]]) -> list[tuple[Tensor, Tensor]]:
    """Weights and biases of each layer, where they are."""
    parts = [part.view(shape) for part, shape in zip(flat.split([*map(math.prod, shapes)]), shapes, strict=True)]
    return list(zip(parts[::2], parts[1::2], strict=True))
