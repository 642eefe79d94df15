"""FairTest, the paper's search: fitness functions, prioritisation, breeding, and Algorithm 1 (search.py)."""

from epymarl_fairtest.core.ledger import CANDIDATE, PREDICTOR
from epymarl_fairtest.strategies.contract import Strategy
from epymarl_fairtest.strategies.fairtest.options import FairTestOptions
from epymarl_fairtest.strategies.fairtest.plan import plan_of
from epymarl_fairtest.strategies.fairtest.search import fairtest

STRATEGY = Strategy(
    "fairtest",
    "FairTest",
    fairtest,
    FairTestOptions,
    random=(PREDICTOR, CANDIDATE),
    check=plan_of,
    observes=False,
    order=1000,  # last in tables: the others are compared with it
    doc="the paper's genetic search",
)
