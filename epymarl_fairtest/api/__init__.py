"""The Python interface, and what the commands share with it: test a team, look at a run, compare two, repair."""

from epymarl_fairtest.api.comparing import Comparison
from epymarl_fairtest.api.repaired import Repaired
from epymarl_fairtest.api.result import Result
from epymarl_fairtest.api.shown import Replay, Why
from epymarl_fairtest.api.use import compare, load, repair, resume, test

__all__ = ["Comparison", "Repaired", "Replay", "Result", "Why", "compare", "load", "repair", "resume", "test"]
