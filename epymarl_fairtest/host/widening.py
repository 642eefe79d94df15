"""A team's network with more hidden units, which answers as before at first: nobody listens to the new ones yet."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


def widened(agent: torch.nn.Module, weights: Mapping[str, Tensor], hidden: int) -> dict[str, Tensor]:
    """For this network, the weights of one that has only so many hidden units, and is else the same.

    New units begin as those of a new network, drawn from torch's generator: units alike would learn alike.
    """
    for part in agent.modules():
        if isinstance(part, (torch.nn.Linear, torch.nn.RNNCellBase)):
            part.reset_parameters()
    return {name: _within(fresh.clone(), weights[name], hidden) for name, fresh in agent.state_dict().items()}


def _within(wide: Tensor, narrow: Tensor, hidden: int) -> Tensor:
    """`narrow` in the first rows and columns, zeros to the right of it."""
    gates = 1 if len(wide) == len(narrow) else len(narrow) // hidden  # of a memory, one below the other
    for new, old in zip(wide.chunk(gates), narrow.chunk(gates), strict=True):
        new[: len(old)] = 0
        new[tuple(map(slice, old.shape))] = old
    return wide
