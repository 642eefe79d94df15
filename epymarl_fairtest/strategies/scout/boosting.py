"""scikit-learn's gradient boosting, bit for bit, with the edges of the bins of all features found at once.

scikit-learn sorts each feature twice and parts it once more, one after another: that was a fifth of a fit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor

Array = NDArray[np.float64]
HUGE = 1e300  # scikit-learn moves edges beyond it


class Boosting(HistGradientBoostingRegressor):  # type: ignore[misc]  # scikit-learn has no types
    def _bin_data(self, rows: Array, *args: Any, **kwargs: Any) -> Any:
        """The number of the bin of each value; the edges are kept in the mapper, as `fit` expects it.

        Features with missing values are left to scikit-learn, and so are two of the others, one of many values and one
        of few: where its edges are not ours (another version of scikit-learn), it finds all of them.
        """
        mapper, ordered = self._bin_mapper, np.sort(rows.T, axis=1)
        if len(rows) > (mapper.subsample or len(rows)):
            return super()._bin_data(rows, *args, **kwargs)
        new = ordered[:, 1:] != ordered[:, :-1]
        known, changes = ordered[:, -1] < HUGE, new.sum(axis=1)
        many, few = known & (changes >= self.max_bins), known & (changes < self.max_bins)
        ours = dict(zip(np.flatnonzero(many).tolist(), _quantiles(ordered[many], self.max_bins), strict=True))
        ours |= {feature: _middles(ordered[feature], new[feature]) for feature in np.flatnonzero(few).tolist()}
        asked = ~known
        for kind in (many, few):
            asked[np.where(kind, changes, -1).argmax()] = True
        theirs = dict(zip(np.flatnonzero(asked).tolist(), mapper.fit(rows[:, asked]).bin_thresholds_, strict=True))
        if not all(np.array_equal(theirs[feature], ours[feature]) for feature in theirs.keys() & ours.keys()):
            return super()._bin_data(rows, *args, **kwargs)
        mapper.bin_thresholds_ = [edges for _, edges in sorted((ours | theirs).items())]
        mapper.n_bins_non_missing_ = np.array([len(edges) + 1 for edges in mapper.bin_thresholds_], np.uint32)
        mapper.is_categorical_ = np.zeros(rows.shape[1], np.uint8)
        return mapper.transform(rows)


def _quantiles(ordered: Array, bins: int) -> list[Array]:
    """Where rows of sorted values are cut into bins of equally many; between two values, half way."""
    shares = np.linspace(0, 100, bins + 1)[1:-1]
    at = np.percentile(np.arange(ordered.shape[1]), shares, method="averaged_inverted_cdf")
    low, high = ordered[:, np.floor(at).astype(np.int64)], ordered[:, np.ceil(at).astype(np.int64)]
    return [_different(row) for row in high - (high - low) * 0.5]


def _middles(row: Array, new: NDArray[np.bool_]) -> Array:
    """Half way between sorted values; `new` is where one differs from the one before."""
    values = np.concatenate([row[:1], row[1:][new]])
    return _different((values[1:] + values[:-1]) / 2)


def _different(edges: Array) -> Array:
    return edges if (edges[1:] != edges[:-1]).all() else np.unique(edges)
