"""Jain's fairness index (Eq. jfi): (Σx)² / (N Σx²)."""

import numpy as np

from epymarl_fairtest.core.indices.contract import Array, Index, scaled


def jfi(x: Array) -> Array:
    """Over the last axis; NaN where nobody received anything."""
    x = scaled(x)
    squares = x.shape[-1] * (x * x).sum(axis=-1)
    index: Array = np.divide(x.sum(axis=-1) ** 2, squares, out=np.full_like(squares, np.nan), where=squares > 0)
    return index


INDEX = Index("jfi", "Jain's index", jfi, lowest=lambda agents: 1 / agents, order=1)
