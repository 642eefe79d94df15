"""STARLA: a genetic search guided by reward, indecision and a forest on abstract states."""

from epymarl_fairtest.strategies.contract import Strategy
from epymarl_fairtest.strategies.starla.search import StarlaOptions, starla

STRATEGY = Strategy(
    "starla",
    "STARLA",
    starla,
    StarlaOptions,
    order=4,
    doc="a genetic search guided by reward, indecision and a forest on abstract states",
)
