"""`epymarl_fairtest:mpe-spread-v0`: simple_spread that pays the distance to the nearest landmark."""

from typing import Any, ClassVar

from epymarl_fairtest.tasks.mpe.environment import MpeEnv
from epymarl_fairtest.tasks.mpe.rules import MpeTask
from epymarl_fairtest.tasks.spread.rules import SpreadTask


class SpreadEnv(MpeEnv):
    """Further settings are those of simple_spread (N, render_mode, ...)."""

    task_class: ClassVar[type[MpeTask]] = SpreadTask

    def __init__(self, allocation: str = "nearest_landmark", **settings: Any) -> None:
        super().__init__(allocation, **settings)
