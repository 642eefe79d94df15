"""1 minus the Gini coefficient, scaled so that a single receiver gets 0."""

import numpy as np

from epymarl_fairtest.core.indices.contract import Array, Index, ratio, scaled


def gini_index(x: Array) -> Array:
    x = scaled(x)
    gaps = np.abs(x[..., :, None] - x[..., None, :]).sum(axis=(-2, -1))
    size = 2 * (x.shape[-1] - 1) * np.abs(x).sum(axis=-1)
    return np.clip(1 - ratio(gaps, size), 0, 1)


INDEX = Index("gini", "1 − Gini", gini_index, order=2)
