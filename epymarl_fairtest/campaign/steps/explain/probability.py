"""How often a start is unfair: P(unfair) under fresh exploration with its exact interval, and without exploration."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.campaign.steps.explain.cases import Asking, Cases
from epymarl_fairtest.campaign.steps.explain.onward import NAME, Onward
from epymarl_fairtest.campaign.steps.explain.sharing import going_on
from epymarl_fairtest.core.statistics import Rate, rate_of

STREAMS = 32
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Chance:
    """Case by case."""

    p_unfair: list[Rate]
    greedy_unfair: NDArray[np.bool_]
    unfair: NDArray[np.bool_]  # (cases, STREAMS), and what the judged agents received there (cases, STREAMS, agents)
    received: Array


def chance(cases: Cases, onward: Onward) -> Asking[Chance]:
    """Every case from where it began: STREAMS times with fresh exploration, and once without any."""
    judge, every = cases.context.judge, np.arange(len(cases))
    received = yield from going_on(cases, cases.streams(NAME, STREAMS), every, cases.first.astype(np.int64))
    onward.keep(every, cases.first, received[:, : onward.unfair.shape[2]])
    greedy = yield from cases.outcomes(every, cases.first, greedy=True)
    unfair = judge.unfair(received)
    rates = [rate(int(number), STREAMS) for number in unfair.sum(axis=1)]
    return Chance(rates, judge.unfair(greedy), unfair, received)


@cache
def rate(unfair: int, executions: int) -> Rate:
    """An exact interval takes a millisecond to find, and there are few different ones."""
    return rate_of(unfair, executions)
