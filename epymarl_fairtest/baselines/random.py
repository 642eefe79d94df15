"""Random: random initial states, stochastic execution of the policy, no guidance."""

import numpy as np

from epymarl_fairtest.campaign import Context, Request, Strategy
from epymarl_fairtest.episode import Tests, tests_from_seeds


def random(context: Context) -> Strategy:
    generator = context.generator("tests")
    while True:
        yield Request(random_tests(context.settings.batch, context.task.state_size, generator), "execution")


def random_tests(count: int, state_size: int, generator: np.random.Generator) -> Tests:
    """Fresh seeds and fresh exploration streams."""
    seeds = generator.integers(0, 2**31, count, dtype=np.int64)
    streams = generator.integers(0, 2**64, count, dtype=np.uint64)
    return tests_from_seeds(seeds, streams, state_size)
