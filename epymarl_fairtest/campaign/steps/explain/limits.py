"""How many failures are explained: as many as the setting says, or fewer where one takes more work than it counts on.

Work is counted, never timed, so that the same run explains the same failures on any machine: the steps of all single
decisions, which are the largest part and follow from the lengths of the failures alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from epymarl_fairtest.campaign.steps.contract import Aftermath
from epymarl_fairtest.core.episodes import Episodes
from epymarl_fairtest.core.judged import places_of

USUAL = 1250  # steps of a failure's single decisions, that the setting `explain` counts on
FEWEST, FEWEST_WITH_MEMORY = 20, 10  # failures that are explained in any case, if the setting says as many
UNLESS_TWIN = 3  # failures that are explained where there is no compiled twin and `explain` is a number
WITH_MEMORY = 10.0  # steps without a memory that one with a memory takes as long as


@dataclass(frozen=True)
class Limit:
    """What explain.json says of how many could be explained."""

    held_to: int | None = None  # where that is fewer than the setting says
    work: float | None = None  # of one failure, in units of what the setting counts on; None where nobody asked


def steps_of(context: Aftermath, failures: Episodes) -> float:
    """Of all single decisions of these failures; one with a memory counts for as many as it takes as long as."""
    left = (failures.length - failures.start_step).astype(np.float64)
    judged = places_of(context.judge.agents, len(context.team.available))
    others = int((context.team.available[judged].sum(axis=1) - 1).sum())
    weight = WITH_MEMORY if context.team.policy.hidden_size else 1.0
    return weight * others * float((left * (left + 1) / 2).sum())


def limit_of(context: Aftermath, steps: float) -> Limit:
    """Of failures whose single decisions take so many steps each."""
    wanted = context.settings.explain
    if wanted == "all":
        return Limit()
    if context.engine != "twin":
        return Limit(UNLESS_TWIN if int(wanted) > UNLESS_TWIN else None)
    work = steps / USUAL
    fewest = FEWEST_WITH_MEMORY if context.team.policy.hidden_size else FEWEST
    most = max(fewest, int(int(wanted) / max(work, 1.0)))
    return Limit(most if most < int(wanted) else None, float(f"{work:.3g}"))
