"""Random: random starts, stochastic execution of the policy, no guidance."""

from __future__ import annotations

from dataclasses import dataclass

from epymarl_fairtest.core.episodes import random_tests
from epymarl_fairtest.core.ledger import EXECUTION
from epymarl_fairtest.settings import AT_ONCE, setting, whole
from epymarl_fairtest.strategies.contract import Context, Request, Search, Strategy


@dataclass(frozen=True)
class RandomOptions:
    batch: int = setting(whole(1, AT_ONCE), "tests that are executed at once", 256, flat=True)


def random(context: Context) -> Search:
    return random_executions(context, context.options.batch)


def random_executions(context: Context, batch: int) -> Search:
    generator = context.generator("tests")
    while True:
        yield Request(random_tests(batch, context.task.state_size, generator), EXECUTION)


STRATEGY = Strategy(
    "random", "Random", random, RandomOptions, observes=False, random=(EXECUTION,), order=1, doc="chance"
)
