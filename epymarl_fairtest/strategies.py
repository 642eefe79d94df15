"""The registry of strategies: a new one is one file and one line here."""

from collections.abc import Callable

from epymarl_fairtest.baselines.random import random
from epymarl_fairtest.campaign import Context, Strategy
from epymarl_fairtest.search.fairtest import fairtest

STRATEGIES: dict[str, Callable[[Context], Strategy]] = {
    "fairtest": fairtest,
    "random": random,
}
