"""The hosts' agent on arrays, layer by layer: compiled where torch has the same bits, by torch where it has not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core import aligned
from epymarl_fairtest.team.agreement import agreed
from epymarl_fairtest.team.products import Into, Order, product

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
        self._cell = Cell(pairs[1:3], known[1:3], self._layers[1:3]) if recurrent else None
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
        first, *middle, last = self._layers
        one, *rest = (room[: len(inputs)] for room in between.rooms)
        if self._cell is None:
            return [first(inputs, one, True), middle[0](one, rest[0], True), last(rest[0], scores, False)]
        products = self._cell.calls(one, hidden, *rest)
        return [first(inputs, one, True), *products, between.closing(*rest, hidden), last(hidden, scores, False)]


class Between:
    """Room for what rows are between the layers of an agent, used again and again."""

    def __init__(self, rows: int, size: int, recurrent: bool) -> None:
        sizes = [size, 2 * size, size, size] if recurrent else [size, size]
        self.rooms = [aligned.zeros((rows, numbers), np.float32) for numbers in sizes]
        if recurrent:
            self.closing = _gates().Gates(rows, size).closing


class Cell:
    """The products of a GRU cell: those for reset and update are added up where they are computed."""

    def __init__(
        self, pairs: Sequence[tuple[Values, Values]], orders: Sequence[Order | None], layers: Sequence[Into]
    ) -> None:
        self._size, self._layers = len(pairs[0][0]) // 3, layers
        gates, new = slice(0, 2 * self._size), slice(2 * self._size, None)
        parts = [(0, gates, False), (1, gates, True), (0, new, False), (1, new, False)]
        if any(order is not Order.ONE_BY_ONE for order in orders):
            parts = []
        self._products = [
            product(pairs[of][0][part], pairs[of][1][part], Order.ONE_BY_ONE, onto) for of, part, onto in parts
        ]

    def calls(self, x: Values, hidden: Values, gates: Values, of_input: Values, of_memory: Values) -> list[Call]:
        """Into `gates` for reset and update, and into the others for the new memory."""
        if self._products:
            wanted = (x, gates), (hidden, gates), (x, of_input), (hidden, of_memory)
            return [made(*pair, False) for made, pair in zip(self._products, wanted, strict=True)]
        whole = [np.empty((len(x), 3 * self._size), np.float32) for _ in range(2)]

        def part() -> None:
            (reset_x, of_input[:]), (reset_h, of_memory[:]) = (np.split(one, [2 * self._size], axis=1) for one in whole)
            np.add(reset_h, reset_x, out=gates)

        of_x, of_hidden = self._layers
        return [of_x(x, whole[0], False), of_hidden(hidden, whole[1], False), part]


def _layer(weight: Values, bias: Values, order: Order | None) -> Into:
    if order:
        return product(weight, bias, order)
    from epymarl_fairtest.team import by_torch

    return by_torch.layer(weight, bias)


def _gates() -> Any:
    """Torch is part of them, and a team without a memory does without."""
    from epymarl_fairtest.team import gates

    return gates
