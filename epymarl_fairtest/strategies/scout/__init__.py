"""Scout, a search of our own: it looks at many starts before it executes few of them (docs/search.md)."""

from epymarl_fairtest.strategies.contract import Strategy
from epymarl_fairtest.strategies.scout.options import ScoutOptions
from epymarl_fairtest.strategies.scout.search import UNGUIDED, scout

STRATEGY = Strategy(
    "scout",
    "Scout",
    scout,
    ScoutOptions,
    random=(UNGUIDED,),
    observes=False,
    order=900,
    doc="a surrogate of the start, bred starts and distances (ours)",
)
