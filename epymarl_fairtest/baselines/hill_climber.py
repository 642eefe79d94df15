"""Hill climbing: mutate the most unfair episode so far; a child that is at least as unfair takes its place.

An opponent of our own, not a published method: it shows what the raw number of failures is worth. Most children of
an unfair episode are unfair too, so the number is large and the roots are few. A batch of children has one parent; the
most unfair child of the batch is compared with it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from epymarl_fairtest.baselines.random import random_tests
from epymarl_fairtest.campaign import Context, Request, Strategy
from epymarl_fairtest.config import setting, whole
from epymarl_fairtest.episode import Episodes
from epymarl_fairtest.fairness import totals
from epymarl_fairtest.search.operators import Rows, mutate


@dataclass(frozen=True)
class HillClimberOptions:
    initial: int = setting(whole(1), "random executions, the most unfair of which is climbed from", 200)
    batch: int = setting(whole(1), "children of the most unfair episode that are executed at once", 64)


def hill_climber(context: Context) -> Strategy:
    task, options, generator = context.task, context.options, context.generator("tests")
    while True:  # once, unless there is nothing to climb from or nothing to mutate
        initial = random_tests(options.initial, task.state_size, generator)
        best = most_unfair((yield Request(initial, "execution")), context)
        while len(best):
            children, refused = mutate(best, _only_parent, options.batch, task, generator)
            context.count("mutations_refused", refused)
            if not len(children):
                context.count("restarts", 1)
                break
            offspring = yield Request(children, "mutant")
            best = most_unfair(Episodes.concatenate([offspring, best]), context)  # a child first: it wins a tie


def most_unfair(episodes: Episodes, context: Context) -> Episodes:
    """The first of the episodes with the lowest index; none where no index is defined."""
    index = context.index(totals(episodes.rewards))
    if np.isnan(index).all():
        return episodes.take(slice(0))
    return episodes.take([np.nanargmin(index)])


def _only_parent(count: int) -> Rows:
    return np.zeros(count, np.int64)
