"""The surrogate: what will each agent receive from a start that nobody has executed?

One model for all agents, which sees a start as each agent does: three agents are three rows to learn from. The index of
what it predicts is far better a guess than a model of the index itself (docs/search.md).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.strategies.scout.options import ScoutOptions

Array = NDArray[np.float64]
SMALL = 1000  # rows; more of them leave room for larger leaves


class Surrogate:
    """Gradient boosting; nothing is drawn: no rows are held out, no features left out."""

    def __init__(self, features: Array, received: Array, options: ScoutOptions) -> None:
        """Features (B, agents, F) and what each agent received (B, agents)."""
        least = 5 if received.size <= SMALL else 10
        made = {"rounds": options.rounds, "rate": options.rate, "leaves": options.leaves, "least": least}
        self._model = fastest_model()(**made).fit(_rows(features), received.ravel())

    def received(self, features: Array) -> Array:
        """What each agent is expected to receive (B, agents)."""
        expected: Array = self._model.predict(_rows(features))
        return expected.reshape(features.shape[:2])


@cache
def fastest_model() -> Any:
    """Looked up when something is to be fitted: numba takes a while to import, and may be missing."""
    try:
        from epymarl_fairtest.strategies.scout.boosting import Boosting
    except ImportError:
        return PlainBoosting
    return Boosting


class PlainBoosting:
    """scikit-learn's, fitted and asked in one thread: more would add up in another order."""

    def __init__(self, *, rounds: int, rate: float, leaves: int, least: int) -> None:
        from sklearn.ensemble import HistGradientBoostingRegressor
        from threadpoolctl import ThreadpoolController

        self._threads = ThreadpoolController()
        self._model: Any = HistGradientBoostingRegressor(
            max_iter=rounds,
            learning_rate=rate,
            max_leaf_nodes=leaves,
            min_samples_leaf=least,
            max_bins=64,
            early_stopping=False,
            random_state=0,
        )

    def fit(self, rows: Array, target: Array) -> PlainBoosting:
        with self._threads.limit(limits=1):
            self._model.fit(rows, target)
        return self

    def predict(self, rows: Array) -> Array:
        with self._threads.limit(limits=1):
            expected: Array = self._model.predict(rows)
        return expected


def _rows(features: Array) -> Array:
    """A row per agent. The model knows what to do with a missing number, not with an infinite one."""
    rows = features.reshape(-1, features.shape[-1])
    return np.where(np.isinf(rows), np.nan, rows)
