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


def amount(value: float) -> str:
    return f"{value:.{1 if abs(value) >= 100 else 2 if abs(value) >= 1 else 3}f}".replace("-", "−")


def listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]
