"""The three fitness functions, all minimised. A missing value is infinite: never best, never a reason to keep."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.predictor import Predictor, Traces

OBJECTIVES = ("f1", "f2", "f3")


def decision_certainty(traces: Traces, temperature: float) -> NDArray[np.float64]:
    """f3 (Eq. f3): the mean of Σ_k p_k² over agents and steps, p the softmax of the Q-values."""
    q = traces.q.astype(np.float64) / temperature
    weight = np.exp(q - q.max(axis=-1, keepdims=True))
    p = weight / weight.sum(axis=-1, keepdims=True)
    per_step = (p * p).sum(axis=-1).mean(axis=-1)
    steps = np.bincount(traces.episode, minlength=len(traces))
    return np.bincount(traces.episode, per_step, minlength=len(traces)) / np.maximum(steps, 1)


def scaled_temperature(traces: Traces) -> float:
    """The median Q range of an agent at a step: at temperature 1, QMIX's small utilities make f3 constant."""
    ranges = np.ptp(traces.q, axis=-1)
    median = float(np.median(ranges)) if ranges.size else 0.0
    return median if median > 0 else 1.0


class Fitness:
    """f1, f2 and f3 of a batch: columns that are switched off are left out."""

    def __init__(self, predictor: Predictor, temperature: float, objectives: tuple[str, ...]) -> None:
        self.predictor, self.temperature, self.objectives = predictor, temperature, objectives

    def __call__(self, index: NDArray[np.float64], traces: Traces) -> NDArray[np.float64]:
        """(B, 3); `index` is NaN where an episode was not executed or nobody received anything."""
        f1 = np.where(np.isnan(index), np.inf, index)
        return np.stack([f1, self.predictor.fair_probability(traces), decision_certainty(traces, self.temperature)], 1)

    def active(self, scores: NDArray[np.float64], among: tuple[str, ...] = OBJECTIVES) -> NDArray[np.float64]:
        """The columns of `scores` that guide the search."""
        return scores[:, [i for i, name in enumerate(OBJECTIVES) if name in self.objectives and name in among]]
