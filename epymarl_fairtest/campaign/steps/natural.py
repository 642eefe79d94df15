"""The natural rate: how often the team is unfair when nobody searches for it, with its exact 95% interval.

It comes from random executions: the team as it is, from starts that nobody chose. Many methods make none. Then some are
made here, on an account of their own, so that there is always a rate; what the method found is not touched by them.
"""

from __future__ import annotations

import numpy as np

from epymarl_fairtest.campaign.steps.contract import Aftermath, Execute, Outcome, Step, Steps
from epymarl_fairtest.campaign.tally import Columns, execution_rows
from epymarl_fairtest.core.episodes import random_tests
from epymarl_fairtest.core.ledger import purpose
from epymarl_fairtest.core.statistics import rate_of

UNLESS_GIVEN = 200  # executions, where the method makes no random ones
WITH_TWIN = 500  # random executions there are at least where a twin executes them: that takes a fraction of a second
AT_ONCE = 1000
NATURAL = purpose("natural", "random executions for the natural rate, after the search (not charged)")


def natural(context: Aftermath) -> Steps:
    """All random executions count alike, those of the search and those made here."""
    unfair, executions = context.random
    wanted = context.settings.natural_episodes
    if wanted is None:
        wanted = unless_given(executions, context.engine)
    tests = random_tests(wanted, context.team.task.state_size, context.generator("natural"))
    parts: list[Columns] = []
    for first in range(0, wanted, AT_ONCE):
        judged = context.judge((yield Execute(tests.take(slice(first, first + AT_ONCE)))))
        unfair, executions = unfair + int(judged.unfair.sum()), executions + len(judged)
        parts.append({**execution_rows(judged, NATURAL, random=True), "stream": judged.episodes.stream})
    rows = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]} if parts else {}
    rate = rate_of(unfair, executions).as_dict() if executions else None
    return Outcome(summary={"natural_rate": rate}, files={"natural.npz": rows} if rows else {}, executions=rows)


def unless_given(executions: int, engine: str) -> int:
    """How many more there should be, if the search made so many."""
    if not executions:
        return UNLESS_GIVEN
    return max(0, WITH_TWIN - executions) if engine == "twin" else 0


STEP = Step("natural", "executing at random", NATURAL, natural, order=2)
