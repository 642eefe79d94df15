"""The three fitness functions, all minimised. A missing value is infinite: never best, never a reason to keep."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core.blocks import in_blocks
from epymarl_fairtest.core.scores import across, by_action, probabilities
from epymarl_fairtest.predictor import Predictor, Traces
from epymarl_fairtest.strategies.fairtest.options import OBJECTIVES


def decision_certainty(
    traces: Traces, available: NDArray[np.bool_], reading: str, temperature: float
) -> NDArray[np.float64]:
    """f3 (Eq. f3): the mean of Σ_k p_k² over agents and steps, p the probabilities of the actions."""

    def certainty(q: NDArray[np.float32]) -> NDArray[np.float64]:
        p = probabilities(by_action(q), available, reading, temperature)
        squares = np.ascontiguousarray(across(np.add, p * p)[..., 0])
        mean: NDArray[np.float64] = across(np.add, squares)[..., 0] / squares.shape[-1]
        return mean

    return traces.mean_over_steps(in_blocks(certainty, traces.q, np.float64))


class Fitness:
    """f1, f2 and f3 of a batch: columns that are switched off are left out."""

    def __init__(
        self, predictor: Predictor, certainty: Callable[[Traces], NDArray[np.float64]], objectives: tuple[str, ...]
    ) -> None:
        self.predictor, self._certainty, self.objectives = predictor, certainty, objectives

    def __call__(self, index: NDArray[np.float64], traces: Traces) -> NDArray[np.float64]:
        """(B, 3); `index` is NaN where an episode was not executed or nobody received anything."""
        f1 = np.where(np.isnan(index), np.inf, index)
        return np.stack([f1, self.predictor.fair_probability(traces), self._certainty(traces)], 1)

    def active(self, scores: NDArray[np.float64], among: tuple[str, ...] = OBJECTIVES) -> NDArray[np.float64]:
        """The columns of `scores` that guide the search."""
        return scores[:, [i for i, name in enumerate(OBJECTIVES) if name in self.objectives and name in among]]
