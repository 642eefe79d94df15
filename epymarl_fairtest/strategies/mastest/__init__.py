"""MASTest: forcing a few actions in critical situations, in cases chosen by energy."""

from epymarl_fairtest.strategies.contract import Strategy
from epymarl_fairtest.strategies.mastest.search import MASTestOptions, mastest

STRATEGY = Strategy(
    "mastest",
    "MASTest",
    mastest,
    MASTestOptions,
    order=3,
    doc="forcing a few actions in critical situations, in cases chosen by energy",
)
