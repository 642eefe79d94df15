"""The tasks FairTest knows, and which of them an environment is. One folder each; `fairtest.tasks` adds more."""

from __future__ import annotations

from typing import Any

from epymarl_fairtest.core.registry import Registry
from epymarl_fairtest.tasks.contract import Task, complaint

TASKS: Registry[type[Task]] = Registry(
    "task", package="epymarl_fairtest.tasks", attribute="TASK", group="fairtest.tasks", complaint=complaint
)
"""In the order in which they are asked; generic, which takes whatever the others leave, is the last."""


def task_for(env: Any) -> Task:
    """The task `env` is, sizes read from it."""
    return next(task for task in TASKS.values() if task.recognises(env))(env)


def register_environments() -> None:
    """Make the gymnasium ids of our own tasks known. Entry points are strings: nothing heavy is imported."""
    import gymnasium

    for task in TASKS.own():
        for name, entry_point in task.environments.items():
            if name not in gymnasium.registry:
                # The host adds its own TimeLimit, and the checker is as slow as the environments.
                gymnasium.register(name, entry_point=entry_point, disable_env_checker=True)


__all__ = ["TASKS", "Task", "register_environments", "task_for"]
