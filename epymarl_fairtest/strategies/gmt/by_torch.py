"""A diffusion's network computed by torch: linear layers with rectifiers between them, its gradient, a step of AdamW.

The operations are those that torch's autograd and torch.optim.AdamW do, one by one and with the same bits, written into
memory that is there (docs/decisions/085).
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import relu_

from epymarl_fairtest.strategies.gmt.weights import Weights

Values = NDArray[np.float32]
MEANS, EPSILON, DECAY = (0.9, 0.999), 1e-8, 0.01  # of AdamW, where nothing else is said


def corrected(rate: float, steps: int) -> tuple[float, float]:
    """How far a step goes and what the root is divided by, after so many: both means began at 0."""
    first, second = MEANS
    return rate / (1 - first**steps), (1 - second**steps) ** 0.5


class ByTorch:
    def __init__(self, weights: Weights) -> None:
        self._layers, self._gradients = (
            [(torch.from_numpy(weight), torch.from_numpy(bias)) for weight, bias in layers]
            for layers in (weights.layers, weights.gradients)
        )
        state = weights.all, weights.gradient, weights.mean, weights.square, weights.root
        self._state = [*map(torch.from_numpy, state)]
        self._outputs, self._inputs = weights.sizes[1:], [torch.empty(0)]
        self._make_room(0)

    def _make_room(self, rows: int) -> None:
        """For what the layers give, and for what the loss changes with it."""
        self._given, self._pulls = ([torch.empty(rows, size) for size in self._outputs] for _ in range(2))

    @torch.no_grad()
    def answer(self, x: Values, told: Values) -> Values:
        rows, given = len(x), torch.from_numpy(x)
        if rows > len(self._given[0]):
            self._make_room(rows)
        self._inputs = [given]
        for number, ((weights, biases), room) in enumerate(zip(self._layers, self._given, strict=True)):
            if number:
                self._inputs.append(relu_(given))
            given = torch.addmm(biases, given, weights.t(), out=room[:rows])
            if not number:
                given.add_(torch.from_numpy(told))
        return given.numpy()

    @torch.no_grad()
    def find_gradient(self, pull: Values) -> None:
        pulled: Tensor = torch.from_numpy(pull)
        for number in range(len(self._layers) - 1, -1, -1):
            x, (of_weights, of_biases) = self._inputs[number], self._gradients[number]
            torch.sum(pulled, 0, out=of_biases)
            torch.mm(pulled.t(), x, out=of_weights)
            if number:
                pulled = torch.mm(pulled, self._layers[number][0], out=self._pulls[number - 1][: len(x)])
                torch.ops.aten.threshold_backward.grad_input(pulled, x, 0, grad_input=pulled)

    @torch.no_grad()
    def learn(self, rate: float, steps: int) -> None:
        """A step of AdamW (Loshchilov & Hutter 2019), of so many until now."""
        (first, second), (step, scale) = MEANS, corrected(rate, steps)
        values, gradient, mean, square, root = self._state
        values.mul_(1 - rate * DECAY)
        mean.lerp_(gradient, 1 - first)
        square.mul_(second).addcmul_(gradient, gradient, value=1 - second)
        torch.sqrt(square, out=root).div_(scale).add_(EPSILON)
        values.addcdiv_(mean, root, value=-step)
