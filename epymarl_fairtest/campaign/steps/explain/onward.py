"""How often a failure ends unfair if it goes on from one of its steps under fresh exploration; a step is asked once.

What is continued from the step after a decision is the failure with that decision as it was: the arm that every other
decision at that step is compared with.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.campaign.steps.explain.cases import Array, Asking, Cases, Rows
from epymarl_fairtest.campaign.steps.explain.sharing import going_on

STREAMS = 10
NAME = "onward"  # of its streams; the first of those that tell how likely the failure was at its start


@dataclass(frozen=True)
class Onward:
    """Case by case and step by step, the end of an episode included; only where `known`."""

    cases: Cases
    known: NDArray[np.bool_]  # (cases, steps + 1)
    unfair: NDArray[np.bool_]  # (cases, steps + 1, STREAMS)
    received: Array  # (cases, steps + 1, judged agents), summed over streams

    @staticmethod
    def of(cases: Cases) -> Onward:
        shape = len(cases), cases.episodes.limit + 1
        agents = cases.received.shape[1]
        return Onward(cases, np.zeros(shape, bool), np.zeros((*shape, STREAMS), bool), np.zeros((*shape, agents)))

    def keep(self, case: Rows, step: NDArray[np.integer], received: Array) -> None:
        """What the judged agents received (rows, STREAMS, judged agents) on these streams."""
        self.known[case, step] = True
        self.unfair[case, step] = self.cases.context.judge.unfair(received)
        self.received[case, step] = received.sum(axis=1)

    def look(self, case: Rows, step: Rows) -> Asking[None]:
        """From these steps on, those that are known aside."""
        steps = self.known.shape[1]
        places = np.unique(case * steps + step)
        case, step = np.divmod(places[~self.known.ravel()[places]], steps)
        drawn = self.cases.streams(NAME, STREAMS)
        self.keep(case, step, (yield from going_on(self.cases, drawn, case, step)))

    def p_unfair(self) -> Array:
        """(cases, steps); NaN where nobody looked."""
        share = np.where(self.known, self.unfair.mean(axis=2), np.nan)[:, :-1]
        ended = np.arange(share.shape[1]) >= self.cases.episodes.length[:, None]
        return np.where(ended, np.nan, share)
