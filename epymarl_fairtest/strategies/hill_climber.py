"""Hill climbing: mutate the most unfair episode so far; a child that is at least as unfair takes its place.

A baseline of our own, not a published method: it shows what the raw number of failures is worth. Most children of an
unfair episode are unfair too, so the number is large and the starts are few. All children of a batch have one parent,
and the most unfair of them is compared with it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from epymarl_fairtest.core.episodes import random_tests
from epymarl_fairtest.core.judged import Judged
from epymarl_fairtest.core.ledger import EXECUTION, MUTANT
from epymarl_fairtest.settings import AT_ONCE, setting, whole
from epymarl_fairtest.strategies.contract import Context, Request, Search, Strategy
from epymarl_fairtest.strategies.genetic.operators import Rows, mutate


@dataclass(frozen=True)
class HillClimberOptions:
    initial: int = setting(whole(1, AT_ONCE), "random executions, the most unfair of which is climbed from", 200)
    batch: int = setting(whole(1, AT_ONCE), "children of the most unfair episode that are executed at once", 64)


def hill_climber(context: Context) -> Search:
    task, options, generator = context.task, context.options, context.generator("tests")
    while True:  # once, unless there is nothing to climb from or nothing to mutate
        initial = random_tests(options.initial, task.state_size, generator)
        best = most_unfair((yield Request(initial, EXECUTION)))
        while len(best):
            children, refused = mutate(best.episodes, _only_parent, options.batch, task, generator)
            context.count("mutations_refused", refused)
            if not len(children):
                context.count("restarts", 1)
                break
            offspring = yield Request(children, MUTANT)
            best = most_unfair(Judged.concatenate([offspring, best]))  # a child first: it wins a tie


def most_unfair(judged: Judged) -> Judged:
    """The first of the episodes with the lowest index; none where no index is defined."""
    if judged.undefined.all():
        return judged.take(slice(0))
    return judged.take([np.nanargmin(judged.index)])


def _only_parent(count: int) -> Rows:
    return np.zeros(count, np.int64)


STRATEGY = Strategy(
    "hill_climber",
    "Hill climber",
    hill_climber,
    HillClimberOptions,
    needs=("restorable",),
    observes=False,
    order=21,
    doc="mutating the most unfair episode so far (ours; it shows what a raw count is worth)",
)
