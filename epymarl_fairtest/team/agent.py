"""The hosts' agent on arrays, layer by layer: compiled where torch has the same bits, by torch where it has not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core import aligned
from epymarl_fairtest.team.agreement import agreed
from epymarl_fairtest.team.products import Order, product

Values = NDArray[np.float32]
Call = Callable[[], object]
STRIPE = 8  # rows that compiled layers and gates take together
PART = 384  # rows whose gates lie near the processor


class Agent:
    """Linear, then GRU cell or linear, then linear; parameters named as the hosts save them. `rows` are what torch is
    asked about at once: in what is compiled a row is the same among any number of rows."""

    def __init__(self, weights: Mapping[str, Values], recurrent: bool, rows: int) -> None:
        middle = ["rnn.{}_ih", "rnn.{}_hh"] if recurrent else ["rnn.{}"]
        pairs = [
            (weights[name.format("weight")], weights[name.format("bias")]) for name in ("fc1.{}", *middle, "fc2.{}")
        ]
        known = [agreed(*weight.shape, rows) for weight, _ in pairs]
        self._layers = [_layer(*pair, order) for pair, order in zip(pairs, known, strict=True)]
        self.hidden_size: int = len(pairs[0][0])  # of a layer, whether or not it is remembered
        self.recurrent = recurrent
        self.needs_torch = recurrent or not all(known)
        alone = all(known) and (not recurrent or _gates().steady())  # a row is the same among any number of rows
        self._stripe, self._part = (STRIPE, PART if recurrent else rows) if alone else (rows, rows)

    def rows_for(self, count: int) -> int:
        """How many rows are computed where so many are asked for."""
        return -(-count // self._stripe) * self._stripe

    def between(self) -> Between:
        return Between(self._part, self.hidden_size, self.recurrent)

    def calls(self, inputs: Values, hidden: Values, between: Between, scores: Values) -> list[Call]:
        """What gives scores and memory when it is called in this order, written into arrays that are there: `scores`,
        and the memory over `hidden`."""
        parts = [slice(first, min(first + self._part, len(inputs))) for first in range(0, len(inputs), self._part)]
        return [call for part in parts for call in self._calls(inputs[part], hidden[part], between, scores[part])]

    def _calls(self, inputs: Values, hidden: Values, between: Between, scores: Values) -> list[Call]:
        """Of as many rows as there is room for between the layers."""
        rows = len(inputs)
        first, *middle, last = self._layers
        one, two = between.first[:rows], between.second[:rows]
        if not self.recurrent:
            return [first(inputs, one, True), middle[0](one, two, True), last(two, scores, False)]
        of_input, of_memory = middle
        x, h = between.of_input[:rows], between.of_memory[:rows]
        products = [of_input(one, x, False), of_memory(hidden, h, False)]
        return [first(inputs, one, True), *products, between.closing(x, h, hidden), last(hidden, scores, False)]


class Between:
    """Room for what rows are between the layers of an agent, used again and again."""

    def __init__(self, rows: int, size: int, recurrent: bool) -> None:
        self.first, self.second = (aligned.zeros((rows, size), np.float32) for _ in range(2))
        if recurrent:
            self.of_input, self.of_memory = (aligned.zeros((rows, 3 * size), np.float32) for _ in range(2))
            self.closing = _gates().Gates(rows, size).closing


def _layer(weight: Values, bias: Values, order: Order | None) -> Callable[[Values, Values, bool], Call]:
    if order:
        return product(weight, bias, order)
    from epymarl_fairtest.team import by_torch

    return by_torch.layer(weight, bias)


def _gates() -> Any:
    """Torch is part of them, and a team without a memory does without."""
    from epymarl_fairtest.team import gates

    return gates
