"""Numbers as terminal, page and log write them. Knows no sentence."""

from __future__ import annotations

import math
from collections.abc import Sequence


def percent(share: float) -> str:
    """Two digits that matter, and 100% for all alone: 12%, 1.9%, 0.015%, 99.6%."""
    value = 100 * share
    if value == 0 or not math.isfinite(value):
        return "0%"
    if 99 < value < 100:
        digits = -math.floor(math.log10(100 - value))
    else:
        digits = max(1 - math.floor(math.log10(abs(value))), 0)
    return f"{value:.{digits}f}%"


def as_given(share: float) -> str:
    """A share that somebody set, as they would write it: 2%, 0.5%, 99.9%."""
    return f"{100 * share:.4g}%"


def estimate(value: float, low: float, high: float) -> tuple[str, str, str]:
    """A share and the ends of its interval, with as many digits as tell the ends apart."""
    width = 100 * (high - low)
    digits = min(max(1 - math.floor(math.log10(width)), 0), 6) if width > 0 else 0
    first, second, third = (f"{100 * x:.{digits}f}%" if 0 < x < 1 else percent(x) for x in (value, low, high))
    return first, second, third


def with_interval(value: float, low: float, high: float) -> str:
    """In one cell of a table: 3.4% (2.0% to 5.4%)."""
    first, second, third = estimate(value, low, high)
    return f"{first} ({second} to {third})"


def amount(value: float) -> str:
    return f"{value:.{1 if abs(value) >= 100 else 2 if abs(value) >= 1 else 3}f}".replace("-", "−")


def listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]
