"""Algorithm 2: presence of joint abstract states, and fairness features in one-hot buckets. Sparse.

Every fairness feature is brought to [0, 1] before it is bucketed:

x_i            accumulated reward: (x - min) / (max - min) over the training data, clipped
x_i / Σx       reward share: |x_i| / Σ|x_j|; the same as the paper's where all rewards have one sign, and
               defined for mixed signs; 1/N each where nobody received anything
cv             coefficient of variation: std / |mean| / √(N-1), clipped; √(N-1) is its largest value for
               rewards of one sign. 1 where the mean is 0 and the rewards differ, 0 where all are 0
gini           Σ|x_i - x_j| / (2 (N-1) Σ|x|): 0 for equal rewards, 1 for a single receiver; 0 where all are 0
|x_i - x_j|    divided by the largest difference in the training data, clipped
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from epymarl_fairtest.predictor.abstraction import Abstraction
from epymarl_fairtest.predictor.traces import Traces

Array = NDArray[np.float64]


def ratio(top: Array, bottom: Array, otherwise: float) -> Array:
    """top / bottom, and `otherwise` where bottom is 0."""
    quotient: Array = np.divide(top, bottom, out=np.full(np.broadcast(top, bottom).shape, otherwise), where=bottom > 0)
    return quotient


def share(x: Array) -> Array:
    size = np.abs(x)
    return ratio(size, size.sum(axis=1, keepdims=True), 1 / x.shape[1])


def variation(x: Array) -> Array:
    spread, mean = x.std(axis=1), np.abs(x.mean(axis=1))
    largest = np.sqrt(x.shape[1] - 1)
    return np.clip(np.where(spread == 0, 0.0, ratio(spread, mean, np.inf) / largest), 0, 1)


def gini(x: Array) -> Array:
    gaps = np.abs(x[:, :, None] - x[:, None, :]).sum(axis=(1, 2))
    return np.clip(ratio(gaps, 2 * (x.shape[1] - 1) * np.abs(x).sum(axis=1), 0.0), 0, 1)


def differences(x: Array) -> Array:
    """|x_i - x_j| for every pair i < j."""
    return np.stack([np.abs(x[:, i] - x[:, j]) for i, j in combinations(range(x.shape[1]), 2)], axis=1)


@dataclass(frozen=True)
class Scaling:
    """The ranges that were seen in the training data."""

    low: Array  # (agents,)
    high: Array
    gap: float  # largest difference between two agents

    def apply(self, x: Array) -> Array:
        """All fairness features of each episode in [0, 1]: (episodes, 2N + 2 + N(N-1)/2)."""
        width = np.where(self.high > self.low, self.high - self.low, 1.0)
        columns = (
            np.clip((x - self.low) / width, 0, 1),
            share(x),
            variation(x)[:, None],
            gini(x)[:, None],
            np.clip(differences(x) / (self.gap or 1.0), 0, 1),
        )
        return np.concatenate(columns, axis=1)


def scaling(x: Array) -> Scaling:
    return Scaling(x.min(axis=0), x.max(axis=0), float(differences(x).max()))


def presence(traces: Traces, abstraction: Abstraction) -> sparse.csr_matrix:
    """1 where a joint abstract state appears in an episode: (episodes, vocabulary)."""
    column = abstraction.columns(traces.q)
    known = column >= 0
    ones = np.ones(int(known.sum()), np.float32)
    counts = sparse.csr_matrix((ones, (traces.episode[known], column[known])), shape=(len(traces), len(abstraction)))
    counts.data[:] = 1  # repeated visits were added up
    return counts


def buckets(values: Array, number: int) -> sparse.csr_matrix:
    """One-hot buckets of equal width, one block of `number` columns per feature."""
    rows, features = values.shape
    bucket = np.minimum((values * number).astype(np.int64), number - 1)
    column = (bucket + number * np.arange(features)).ravel()
    row = np.repeat(np.arange(rows), features)
    return sparse.csr_matrix((np.ones(rows * features, np.float32), (row, column)), shape=(rows, features * number))


def features(traces: Traces, abstraction: Abstraction, scale: Scaling | None, number: int) -> sparse.csr_matrix:
    """v(e) of Algorithm 2; without `scale` the abstract states alone."""
    states = presence(traces, abstraction)
    if scale is None:
        return states
    return sparse.hstack([states, buckets(scale.apply(traces.received), number)], format="csr")
