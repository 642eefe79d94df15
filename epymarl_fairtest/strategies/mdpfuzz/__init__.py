"""MDPFuzz: mutating starts that react to small changes or lead to states that were not seen before."""

from epymarl_fairtest.strategies.contract import Strategy
from epymarl_fairtest.strategies.mdpfuzz.search import MDPFuzzOptions, mdpfuzz

STRATEGY = Strategy(
    "mdpfuzz",
    "MDPFuzz",
    mdpfuzz,
    MDPFuzzOptions,
    needs=("proposable",),
    observes=False,
    order=5,
    doc="mutating starts that react to small changes or lead to states not seen before",
)
