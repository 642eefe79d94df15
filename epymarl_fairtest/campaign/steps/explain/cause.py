"""Why a failure happened, in one word: noise, policy or start. What each says and does not say: docs/explaining.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.campaign.steps.explain.better import compared
from epymarl_fairtest.campaign.steps.explain.cases import Asking, Cases, Plans, Rows

NOISE, POLICY, START = CAUSES = ("noise", "policy", "start")
RARE = 0.1  # P(unfair) below which a failure was bad luck
ROUNDS = (32, 64)  # plans of several random decisions at once, tried where no single one helps and until one does
RATES = (0.1, 0.3, 0.6)  # shares of the decisions that they change
ONE, HERE_ONLY, SEVERAL = "one decision", "one decision, under this exploration only", "several decisions"


@dataclass(frozen=True)
class Found:
    """What would have made a case better, and how many deviations were tried in all."""

    avoided_by: str | None
    tried: int


def causes(p_unfair: Sequence[float], greedy_unfair: Sequence[bool], found: Sequence[Found]) -> list[str]:
    return [
        NOISE if p < RARE and not greedy else POLICY if one.avoided_by else START
        for p, greedy, one in zip(p_unfair, greedy_unfair, found, strict=True)
    ]


def several_decisions(cases: Cases, which: Rows) -> Asking[tuple[NDArray[np.bool_], Rows]]:
    """Which cases come out better when many of their decisions are changed at random, and how many such plans were
    tried? Only in the cases `which`."""
    found, tried = np.zeros(len(cases), bool), np.zeros(len(cases), np.int64)
    plans = {int(one): _random_plans(cases, int(one)) for one in which}
    for first, last in zip((0, *ROUNDS), ROUNDS, strict=False):
        which = which[~found[which]]
        if not len(which):
            break
        case = np.repeat(which, last - first)
        some = Plans(np.concatenate([plans[int(one)][first:last] for one in which]))
        received = yield from cases.outcomes(case, _begins(cases, case, some), None, some)
        better = compared(cases.context.judge, cases.received[case], received).better
        found[which] = better.reshape(len(which), -1).any(axis=1)
        tried[which] = last
    return found, tried


def _begins(cases: Cases, case: Rows, plans: Plans) -> Rows:
    """Where each plan may first change something: until then the failure is as it was."""
    planned = (plans.actions >= 0).any(axis=2) & cases.decided[case]
    first: Rows = np.where(planned.any(axis=1), planned.argmax(axis=1), cases.episodes.length[case] - 1)
    return first


def _random_plans(cases: Cases, case: int) -> NDArray[np.int16]:
    """Each changes its share of the judged agents' decisions to any action that there is."""
    generator = cases.context.generator("explain", "several", int(cases.episodes.id[case]))
    available, plans = cases.context.team.available, cases.unforced(ROUNDS[-1])
    share = np.resize(RATES, ROUNDS[-1])[:, None]
    for agent in cases.agents:
        drawn = generator.choice(np.flatnonzero(available[agent]), plans.shape[:2]).astype(np.int16)
        plans[:, :, agent] = np.where(generator.random(plans.shape[:2]) < share, drawn, -1)
    return plans
