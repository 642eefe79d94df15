"""The paper's statistics of two samples of runs, Mann-Whitney U (two-sided) and Vargha and Delaney's A12; shares.

Knows numbers only. As in the paper, p-values are not corrected for the number of comparisons. scipy.stats takes a
second to import: only what needs it does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

LETTERS = ((0.71, "L"), (0.64, "M"), (0.56, "S"))  # large, medium, small; below: N, negligible
CONFIDENCE = 0.95  # of an interval, unless another is asked for
STARS = ((0.001, "***"), (0.01, "**"), (0.05, "*"))


@dataclass(frozen=True)
class Comparison:
    """A sample against another one."""

    p: float  # two-sided Mann-Whitney U
    a12: float  # probability that a run of the first exceeds one of the second, ties counted half
    letter: str  # N, S, M or L: how far a12 is from 0.5, in either direction

    @property
    def stars(self) -> str:
        return next((stars for limit, stars in STARS if self.p < limit), "")


def compare(a: Sequence[float], b: Sequence[float]) -> Comparison | None:
    """`a` against `b`; None where one of them is empty."""
    if not len(a) or not len(b):
        return None
    first, second, pairs = np.asarray(a, np.float64), np.sort(np.asarray(b, np.float64)), len(a) * len(b)
    more = int(np.searchsorted(second, first, "left").sum())
    less = pairs - int(np.searchsorted(second, first, "right").sum())
    ties = pairs - more - less
    # Both directions are counted, not subtracted from 1: that would miss a limit by one bit.
    a12, other = (more + ties / 2) / pairs, (less + ties / 2) / pairs
    letter = next((letter for limit, letter in LETTERS if max(a12, other) >= limit), "N")
    return Comparison(mann_whitney(a, b), a12, letter)


def mann_whitney(a: Sequence[float], b: Sequence[float]) -> float:
    """The p-value: exact for up to 8 runs without ties, else the normal approximation corrected for ties."""
    from scipy import stats

    if len({*map(float, a), *map(float, b)}) == 1:
        return 1.0  # all runs alike: nothing speaks against equality, and U has no variance to divide by
    return float(stats.mannwhitneyu(a, b, alternative="two-sided").pvalue)


@dataclass(frozen=True)
class Rate:
    """A share of some executions with its exact (Clopper-Pearson) interval."""

    count: int
    executions: int
    low: float
    high: float

    @property
    def estimate(self) -> float:
        return self.count / self.executions

    def __str__(self) -> str:
        return f"{self.estimate:.4f} [{self.low:.4f}, {self.high:.4f}]"

    def as_dict(self) -> dict[str, float]:
        """As summary.json holds the natural rate."""
        interval = {"rate": self.estimate, "low": self.low, "high": self.high}
        return {**interval, "unfair": self.count, "executions": self.executions}


def rate_of(count: int, executions: int, confidence: float = CONFIDENCE) -> Rate:
    """The interval leaves at most (1 - confidence) / 2 beyond each of its ends."""
    return Rate(count, executions, *_exact_interval(int(count), int(executions), confidence))


@cache  # a page asks for the same few shares again and again
def _exact_interval(count: int, executions: int, confidence: float) -> tuple[float, float]:
    from scipy import stats

    interval = stats.binomtest(count, executions).proportion_ci(confidence, method="exact")
    return float(interval.low), float(interval.high)


@dataclass(frozen=True)
class Mean:
    """Mean and standard deviation (n - 1) of some runs; None where they are undefined."""

    mean: float | None
    std: float | None
    runs: int


def mean_of(values: Sequence[float]) -> Mean:
    if not len(values):
        return Mean(None, None, 0)
    return Mean(float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else None, len(values))


def mean_error(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Half the width of the 95% interval (Student's t) of the mean of each column; NaN where one row says nothing."""
    from scipy.special import stdtrit

    if len(values) < 2:
        return np.full(values.shape[1:], np.nan)
    quantile = float(stdtrit(len(values) - 1, (1 + CONFIDENCE) / 2))
    error: NDArray[np.float64] = quantile * values.std(axis=0, ddof=1) / np.sqrt(len(values))
    return error


def area_interval(area: float, positive: int, negative: int) -> tuple[float, float]:
    """The 95% interval of an area under an ROC curve (Hanley and McNeil, 1982)."""
    if positive < 1 or negative < 1 or not 0 <= area <= 1:
        return 0.0, 1.0
    one, two = area / (2 - area), 2 * area**2 / (1 + area)
    spread = area * (1 - area) + (positive - 1) * (one - area**2) + (negative - 1) * (two - area**2)
    error = NormalDist().inv_cdf((1 + CONFIDENCE) / 2) * float(np.sqrt(max(spread, 0.0) / (positive * negative)))
    return max(area - error, 0.0), min(area + error, 1.0)


def sign_test(more: int, less: int) -> float:
    """How likely at least `more` of these would be by chance, were each direction equally likely: exact, one-sided."""
    from scipy import stats

    return float(stats.binomtest(more, more + less, alternative="greater").pvalue) if more + less else 1.0


def newcombe(b: Rate, a: Rate, confidence: float) -> tuple[float, float]:
    """Interval of the difference b - a of two independent shares, from their Wilson intervals (method 10)."""
    (p, p_low, p_high), (q, q_low, q_high) = ((r.estimate, *wilson(r, confidence)) for r in (b, a))
    return p - q - math.hypot(p - p_low, q_high - q), p - q + math.hypot(p_high - p, q - q_low)


def wilson(rate: Rate, confidence: float) -> tuple[float, float]:
    from scipy import stats

    z, n, p = float(stats.norm.ppf(0.5 + confidence / 2)), rate.executions, rate.estimate
    middle, width = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return (middle - width) / (1 + z * z / n), (middle + width) / (1 + z * z / n)
