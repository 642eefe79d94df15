"""GMT (Li et al. 2023): a diffusion model proposes starts, drawn towards rare terminal states."""

from epymarl_fairtest.strategies.contract import Strategy
from epymarl_fairtest.strategies.gmt.options import GmtOptions
from epymarl_fairtest.strategies.gmt.search import gmt

STRATEGY = Strategy(
    "gmt",
    "GMT",
    gmt,
    GmtOptions,
    needs=("proposable",),
    observes=False,
    order=2,
    doc="a diffusion model that proposes initial states",
)
