"""The surrogate: what will each agent receive from a start that nobody has executed?

One model for all agents, which sees a start as each agent does: three agents are three rows to learn from. The index of
what it predicts is far better a guess than a model of the index itself (docs/search.md).
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.strategies.scout.options import ScoutOptions

Array = NDArray[np.float64]
SMALL = 1000  # rows; more of them leave room for larger leaves
HUGE, SAMPLED = 1e300, 200_000  # scikit-learn moves edges beyond it, and draws so many rows where there are more


class Surrogate:
    """Gradient boosting, fitted when it is asked: ours, and scikit-learn's own with the same bits where ours cannot."""

    def __init__(self, features: Array, received: Array, options: ScoutOptions) -> None:
        """Features (B, agents, F) and what each agent received (B, agents)."""
        self._rows, self._target, self._options = _rows(features), received.ravel(), options
        self._least = 5 if received.size <= SMALL else 10
        self._plain = len(self._rows) <= SAMPLED and _are_plain(self._rows)

    def received(self, features: Array) -> Array:
        """What each agent is expected to receive (B, agents)."""
        rows = _rows(features)
        model = self._ours if self._plain and _are_plain(rows) else self._theirs
        expected: Array = model.predict(rows)
        return expected.reshape(features.shape[:2])

    @cached_property
    def _ours(self) -> Any:
        from epymarl_fairtest.strategies.scout.boosting import Boosting

        known = self._options
        return Boosting(
            self._rows, self._target, rounds=known.rounds, rate=known.rate, leaves=known.leaves, least=self._least
        )

    @cached_property
    def _theirs(self) -> Any:
        from sklearn.ensemble import HistGradientBoostingRegressor

        return HistGradientBoostingRegressor(
            max_iter=self._options.rounds,
            learning_rate=self._options.rate,
            max_leaf_nodes=self._options.leaves,
            min_samples_leaf=self._least,
            max_bins=64,
            early_stopping=False,
            random_state=0,  # nothing is drawn: no rows are held out, no features left out
        ).fit(self._rows, self._target)


def _rows(features: Array) -> Array:
    """A row per agent. scikit-learn's model knows what to do with a missing number, not with an infinite one."""
    rows = features.reshape(-1, features.shape[-1])
    return np.where(np.isinf(rows), np.nan, rows)


def _are_plain(rows: Array) -> bool:
    """No number is missing or huge."""
    return bool((np.abs(rows) < HUGE).all())
