"""scikit-learn's gradient boosting, bit for bit, with the edges of the bins of all features found at once.

scikit-learn sorts each feature twice, and looks for its edges one by one: that was a quarter of a fit.
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

        Features of few values, or with missing ones, are left to scikit-learn, and so is one of the others: where its
        edges are not ours (another version of scikit-learn), it finds all of them.
        """
        mapper, ordered = self._bin_mapper, np.sort(rows.T, axis=1)
        changes = (ordered[:, 1:] != ordered[:, :-1]).sum(axis=1)
        ours = np.flatnonzero((changes >= self.max_bins) & (ordered[:, -1] < HUGE)).tolist()
        if not ours or len(rows) > (mapper.subsample or len(rows)):
            return super()._bin_data(rows, *args, **kwargs)
        edges = dict(zip(ours, _edges(ordered[ours], self.max_bins), strict=True))
        theirs = [feature for feature in range(rows.shape[1]) if feature not in ours[1:]]
        found = dict(zip(theirs, mapper.fit(rows[:, theirs]).bin_thresholds_, strict=True))
        if not np.array_equal(found[ours[0]], edges[ours[0]]):
            return super()._bin_data(rows, *args, **kwargs)
        both = edges | found
        mapper.bin_thresholds_ = [both[feature] for feature in range(rows.shape[1])]
        mapper.n_bins_non_missing_ = np.array([len(one) + 1 for one in mapper.bin_thresholds_], np.uint32)
        mapper.is_categorical_ = np.zeros(rows.shape[1], np.uint8)
        return mapper.transform(rows)


def _edges(ordered: Array, bins: int) -> list[Array]:
    """Where rows of sorted values are cut into bins of equally many; between two values, half way."""
    shares = np.linspace(0, 100, bins + 1)[1:-1]
    at = np.percentile(np.arange(ordered.shape[1]), shares, method="averaged_inverted_cdf")
    low, high = ordered[:, np.floor(at).astype(np.int64)], ordered[:, np.ceil(at).astype(np.int64)]
    edges = high - (high - low) * 0.5
    return [row if (row[1:] != row[:-1]).all() else np.unique(row) for row in edges]
