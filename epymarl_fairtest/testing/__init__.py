"""Contract tests to run on your own strategies, tasks, engines, indices and steps; docs/extending.md shows how.

Each `check_…` goes through the contracts of its kind, the functions in `CONTRACTS` of the module of that name, and
raises an AssertionError that says what is not kept. No fixtures, no plug-in: call them from any test.
"""

from epymarl_fairtest.testing.engines import check_engine
from epymarl_fairtest.testing.indices import check_index
from epymarl_fairtest.testing.steps import StepCase, check_step
from epymarl_fairtest.testing.strategies import StrategyCase, check_strategy
from epymarl_fairtest.testing.tasks import TaskCase, check_task
from epymarl_fairtest.testing.teams import engine_of, random_team, save_random_team

__all__ = [
    "StepCase",
    "StrategyCase",
    "TaskCase",
    "check_engine",
    "check_index",
    "check_step",
    "check_strategy",
    "check_task",
    "engine_of",
    "random_team",
    "save_random_team",
]
