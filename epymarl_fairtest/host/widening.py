"""A team's network with several copies of every hidden unit, which answers at first nearly as it did before."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

APART = 0.05  # by which copies differ in what they listen to: if they were alike, they would learn alike


def widened(agent: torch.nn.Module, weights: Mapping[str, Tensor], hidden: int, copies: int) -> dict[str, Tensor]:
    """Weights for this network from those of one with so many hidden units, each of which becomes so many copies.

    Every copy has its share of what the unit said. How they differ is drawn from torch's generator and adds up to
    nothing, so that it cancels out while all of them are active.
    """
    shapes = {name: wide.shape for name, wide in agent.state_dict().items()}
    return {name: _copied(weights[name], shape, hidden, copies) for name, shape in shapes.items()}


def _copied(narrow: Tensor, shape: torch.Size, hidden: int, copies: int) -> Tensor:
    if narrow.shape[-1] != shape[-1] and narrow.dim() == 2:  # what listens to hidden units
        narrow = narrow.repeat(1, copies) / copies
    if len(narrow) == shape[0]:
        return narrow
    gates = narrow.view(-1, 1, hidden, *narrow.shape[1:])  # of a memory three, one below the other
    differences = torch.randn(len(gates), copies, *gates.shape[2:])
    differences = APART * (differences - differences.mean(dim=1, keepdim=True))
    return (gates * (1 + differences)).reshape(shape)
