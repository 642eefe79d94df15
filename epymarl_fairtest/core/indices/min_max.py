"""What the agent with least received over what the one with most did, in size; 0 for mixed signs."""

import numpy as np

from epymarl_fairtest.core.indices.contract import Array, Index, ratio, scaled


def min_max_index(x: Array) -> Array:
    x = scaled(x)
    size = np.abs(x)
    mixed = (x > 0).any(axis=-1) & (x < 0).any(axis=-1)
    return np.where(mixed, 0.0, ratio(size.min(axis=-1), size.max(axis=-1)))


INDEX = Index("min_max", "min / max", min_max_index, order=3)
