"""What the settings of the genetic strategies have in common: how scores become probabilities and abstract states."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core.scores import scaled_temperature
from epymarl_fairtest.predictor import Traces
from epymarl_fairtest.settings import Rule, between, is_number

TEMPERATURE = Rule("a number above 0, or scaled", lambda v: v == "scaled" or (is_number(v) and v > 0))
LEVEL = between(0, 1e12, open_low=True, optional=True)


def temperature_of(given: float | str, traces: Traces, available: NDArray[np.bool_]) -> float:
    """The softmax temperature that a setting under the rule TEMPERATURE means for these traces."""
    return scaled_temperature(traces.q, available) if given == "scaled" else float(given)
