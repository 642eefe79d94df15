"""Scout: learn which starts are unfair, breed more of them, keep them apart, and only then execute."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np

from epymarl_fairtest.core.episodes import random_tests
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.judged import Judged
from epymarl_fairtest.core.ledger import EXECUTION, purpose
from epymarl_fairtest.strategies.contract import Context, Request, Search
from epymarl_fairtest.strategies.scout.lookout import Lookout

UNGUIDED = purpose("unguided", "random executions among those that scout chooses", strict=True, paper=True)


def scout(context: Context) -> Search:
    refuse_without_states(context)
    lookout, generator = Lookout(context, context.options), context.generator("tests")
    tests = random_tests(context.options.initial, context.task.state_size, generator)
    lookout.learn((yield Request(tests, UNGUIDED)))
    while (left := context.budget - len(lookout)) > 0:
        yield from look_and_execute(context, lookout, left, generator, EXECUTION, UNGUIDED)


def look_and_execute(
    context: Context, lookout: Lookout, most: int, generator: np.random.Generator, guided: str, unguided: str
) -> Generator[Request, Judged, list[Judged]]:
    """One batch of at most `most` executions: those that the lookout chooses, and some that nobody chooses."""
    wanted, random = lookout.next_batch(most)
    executed: list[Judged] = []
    if wanted:
        chosen = lookout.choose(wanted, generator)
        executed.append((yield Request(chosen.tests, guided)))
        lookout.learn(executed[-1], chosen)
    if random:
        tests = random_tests(random, context.task.state_size, generator)
        executed.append((yield Request(tests, unguided)))
        lookout.learn(executed[-1])
    return executed


def refuse_without_states(context: Context) -> None:
    if not context.task.state_size:
        raise FairTestError(
            f"fairtest_args.method={context.settings.method!r} looks at starts, and the task {context.task.name!r} does"
            " not show its states here. Choose method=random."
        )
