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
    """Gradient boosting, fitted and asked in one thread: more would add up in another order."""

    def __init__(self, features: Array, received: Array, options: ScoutOptions) -> None:
        """Features (B, agents, F) and what each agent received (B, agents)."""
        from epymarl_fairtest.strategies.scout.boosting import Boosting

        self._threads = _threads()
        self._model: Any = Boosting(
            max_iter=options.rounds,
            learning_rate=options.rate,
            max_leaf_nodes=options.leaves,
            min_samples_leaf=5 if received.size <= SMALL else 10,
            max_bins=64,
            early_stopping=False,
            random_state=0,  # nothing is drawn: no rows are held out, no features left out
        )
        with self._threads.limit(limits=1):
            self._model.fit(_rows(features), received.ravel())

    def received(self, features: Array) -> Array:
        """What each agent is expected to receive (B, agents)."""
        with self._threads.limit(limits=1):
            expected: Array = self._model.predict(_rows(features))
        return expected.reshape(features.shape[:2])


@cache
def _threads() -> Any:
    """Once, with scikit-learn imported: looking through the libraries of the process takes as long as a small fit."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def _rows(features: Array) -> Array:
    """A row per agent. The model knows what to do with a missing number, not with an infinite one."""
    rows = features.reshape(-1, features.shape[-1])
    return np.where(np.isinf(rows), np.nan, rows)
