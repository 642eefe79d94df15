"""The registry of strategies: a new one is one file and one line here."""

from epymarl_fairtest.baselines.random import random
from epymarl_fairtest.campaign import Method
from epymarl_fairtest.search.fairtest import fairtest

STRATEGIES: dict[str, Method] = {
    "fairtest": Method(fairtest),
    "random": Method(random),
}
