"""`fairtest gate --not-worse-than RUN`: is a team shown to be less fair, or to return less, than another one?"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from epymarl_fairtest.core.numbers import as_given

if TYPE_CHECKING:
    from epymarl_fairtest.store.finished import FinishedRun

Compared = tuple[str, float, float, bool, str]  # criterion, the other's value, ours, passed, in words


def compared_with(run: FinishedRun, other: FinishedRun, confidence: float) -> Iterator[Compared]:
    """Rate and return of the random executions. A difference fails once its interval lies on the wrong side of 0."""
    from epymarl_fairtest.api.comparing import refuse_if_incomparable
    from epymarl_fairtest.core.statistics import newcombe

    refuse_if_incomparable(other, run, None)
    ours, theirs = run.needed_rate(), other.needed_rate()
    low, high = newcombe(ours, theirs, confidence)
    words = (
        f"natural rate {ours.estimate:.4f}, {theirs.estimate:.4f} there; the difference is {low:+.4f} to {high:+.4f}"
    )
    yield "other-rate", theirs.estimate, ours.estimate, low <= 0, _told(words, low <= 0, confidence)
    mine, its = (one.random_executions["received"].sum(axis=1) for one in (run, other))
    low, high = _difference(mine, its, confidence)
    words = f"return {mine.mean():.4g}, {its.mean():.4g} there; the difference is {low:+.4g} to {high:+.4g}"
    yield "other-return", float(its.mean()), float(mine.mean()), high >= 0, _told(words, high >= 0, confidence)


def _difference(a: NDArray[Any], b: NDArray[Any], confidence: float) -> tuple[float, float]:
    """Interval of the difference of two means of independent executions."""
    from scipy.stats import norm

    width = float(norm.ppf(0.5 + confidence / 2)) * math.sqrt(a.var() / len(a) + b.var() / len(b))
    middle = float(a.mean() - b.mean())
    return middle - width, middle + width


def _told(words: str, passed: bool, confidence: float) -> str:
    return f"{words} ({as_given(confidence)} confidence): {'not shown to be worse' if passed else 'worse'}"
