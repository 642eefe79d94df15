"""1 minus the coefficient of variation over its largest value √(N-1) for rewards of one sign."""

import numpy as np

from epymarl_fairtest.core.indices.contract import Array, Index, scaled


def cv_index(x: Array) -> Array:
    x = scaled(x)
    nothing = (x == 0).all(axis=-1)
    mean = np.abs(x.mean(axis=-1))
    variation = np.divide(x.std(axis=-1), mean, out=np.full(mean.shape, np.inf), where=mean > 0)
    return np.where(nothing, np.nan, np.clip(1 - variation / np.sqrt(x.shape[-1] - 1), 0, 1))


INDEX = Index("cv", "1 − variation", cv_index, order=4)
