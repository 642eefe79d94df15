"""What an index promises, and what indices share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core.registry import LATER, is_name, is_text, missing_parts

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Index:
    """A fairness index: `of` what each agent received (..., agents), to (...)."""

    name: str
    label: str  # as people read it
    of: Callable[[Array], Array]
    lowest: Callable[[int], float] = lambda agents: 0.0  # the least it can be for that many agents
    order: int = LATER  # among all indices

    def __call__(self, received: Array) -> Array:
        return self.of(received)


def complaint(entry: Any) -> str | None:
    """What a foreign object lacks to be an index."""
    parts: dict[str, Callable[[Any], bool]] = {"name": is_name, "label": is_text, "of": callable, "lowest": callable}
    return missing_parts(entry, Index, parts)


def scaled(x: Array) -> Array:
    """No index changes with scale; dividing by the largest keeps squares and sums finite and above zero."""
    x = np.asarray(x, dtype=np.float64)
    largest = np.abs(x).max(axis=-1, keepdims=True)
    shares: Array = np.divide(x, largest, out=np.zeros_like(x), where=largest > 0)
    return shares


def ratio(top: Array, bottom: Array) -> Array:
    """NaN where there is nothing to divide by."""
    quotient: Array = np.divide(top, bottom, out=np.full(bottom.shape, np.nan), where=bottom > 0)
    return quotient
