"""The task of a recorded run, made again from what lies in its folder: the layout of states, nothing that moves.

Only environments of registered tasks are made, so that looking at a run imports nothing that the run names.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from epymarl_fairtest.core.episodes import Episodes
from epymarl_fairtest.tasks import TASKS
from epymarl_fairtest.tasks.contract import Task
from epymarl_fairtest.tasks.generic.rules import Unplaced
from epymarl_fairtest.team.places import environment_arguments


def task_of(path: Path, manifest: Mapping[str, Any], failures: Episodes) -> Task:
    """The task of the run in `path`; `Unplaced` where its states cannot be understood."""
    agents, size = failures.rewards.shape[-1], failures.states.shape[-1]
    known = TASKS.get(str(manifest.get("task")))
    if known is not None:
        try:
            task = known.rebuilt(agents, str(manifest.get("key", "")), environment_arguments(path, manifest))
        except Exception:  # arguments of a stranger's file, in whatever way an environment refuses them
            task = None
        if task is not None and _fits(task, failures):
            return task
    return Unplaced(agents, size)


def _fits(task: Task, failures: Episodes) -> bool:
    """Do agents and sizes agree, and is every agent on the field?"""
    if (task.n_agents, task.state_size) != (failures.rewards.shape[-1], failures.states.shape[-1]):
        return False
    at = task.positions(failures.states[:, 0])
    return bool(np.isfinite(at).all() and (at >= task.low - 1e-9).all() and (at <= task.high + 1e-9).all())
