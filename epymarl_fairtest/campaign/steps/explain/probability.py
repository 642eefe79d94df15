"""How often a start is unfair: P(unfair) under fresh exploration with its exact interval, and without exploration."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.campaign.steps.explain.cases import Asking, Cases
from epymarl_fairtest.core.statistics import Rate, rate_of

STREAMS = 48
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Chance:
    """Case by case."""

    p_unfair: list[Rate]
    greedy_unfair: NDArray[np.bool_]
    unfair: NDArray[np.bool_]  # (cases, STREAMS), and what the judged agents received there (cases, STREAMS, agents)
    received: Array


def chance(cases: Cases) -> Asking[Chance]:
    """Every case from where it began: STREAMS times with fresh exploration, and once without any."""
    judge, count = cases.context.judge, len(cases)
    every = np.repeat(np.arange(count), STREAMS)
    received = yield from cases.outcomes(every, cases.first[every], cases.streams("chance", STREAMS).ravel())
    unfair = judge.unfair(received).reshape(count, STREAMS)
    once = np.arange(count)
    greedy = yield from cases.outcomes(once, cases.first, greedy=True)
    rates = [rate(int(number), STREAMS) for number in unfair.sum(axis=1)]
    return Chance(rates, judge.unfair(greedy), unfair, received.reshape(count, STREAMS, -1))


@cache
def rate(unfair: int, executions: int) -> Rate:
    """An exact interval takes a millisecond to find, and there are few different ones."""
    return rate_of(unfair, executions)
