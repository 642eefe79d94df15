"""The task of a recorded run, made again from what lies in its folder: the layout of states, nothing that moves.

Only FairTest's own environments are made, so that looking at a run imports nothing that the run names.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from epymarl_fairtest.episode import Episodes
from epymarl_fairtest.tasks.base import Task
from epymarl_fairtest.tasks.generic import GenericTask

LAYOUT = {
    "spread": ("N",),
    "tag": ("num_good", "num_adversaries", "num_obstacles"),
    "foraging": ("players", "field_size", "max_num_food"),
}
"""Task -> the arguments of its environment on which the layout of a state depends."""


class Unplaced(GenericTask):
    """Where agents are is not known; what each of them sees first stands for it, as in any generic task."""

    def __init__(self, agents: int, state_size: int) -> None:
        self.n_agents, self.state_size = agents, state_size
        self._sizes = [state_size // agents] * agents if agents and state_size % agents == 0 else []


def task_of(path: Path, manifest: dict[str, Any], failures: Episodes) -> Task:
    """The task of the run in `path`; `Unplaced` where its states cannot be understood."""
    agents, size = failures.rewards.shape[-1], failures.states.shape[-1]
    name = str(manifest.get("task"))
    if name in LAYOUT:
        try:
            task = _made(name, _arguments(path, manifest, name, agents))
        except Exception:  # arguments of a stranger's file, in whatever way an environment refuses them
            task = None
        if task is not None and _fits(task, failures):
            return task
    return Unplaced(agents, size)


def _made(name: str, arguments: dict[str, Any]) -> Task:
    if name == "spread":
        from epymarl_fairtest.tasks.spread import SpreadEnv

        return SpreadEnv("env", **arguments).task
    if name == "tag":
        from epymarl_fairtest.tasks.tag import TagEnv

        return TagEnv("env", "still", **arguments).task
    from epymarl_fairtest.tasks.foraging import ForagingTask, make_foraging_env

    return ForagingTask(make_foraging_env(**arguments))


def _arguments(path: Path, manifest: dict[str, Any], name: str, agents: int) -> dict[str, Any]:
    """From the manifest, else the team's policy.yaml, else what the key and the failures say."""
    given = manifest.get("env_args")
    for folder in (path / "policy", Path(str(manifest.get("policy", "")))):
        if given is None and (folder / "policy.yaml").is_file():
            described = yaml.safe_load((folder / "policy.yaml").read_text())
            given = described.get("env_args") if isinstance(described, dict) else None
    guesses: dict[str, dict[str, Any]] = {
        "spread": {"N": agents},
        "tag": {"num_adversaries": agents},
        "foraging": {"players": agents},
    }
    guessed = guesses[name]
    size = re.search(r"-(\d+)x(\d+)-\d+p-(\d+)f", str(manifest.get("key", "")))  # as lbforaging names its fields
    if name == "foraging" and size:
        rows, cols, food = map(int, size.groups())
        guessed |= {"field_size": (rows, cols), "max_num_food": food}
        guessed |= {"min_player_level": 1, "max_player_level": 2}
    known = {key: value for key, value in (given or {}).items() if key in LAYOUT[name]}
    if name == "foraging" and known.get("players", agents) != 3:  # the default levels are for three
        guessed |= {"min_player_level": 1, "max_player_level": 2}
    return guessed | known


def _fits(task: Task, failures: Episodes) -> bool:
    """Do agents and sizes agree, and is every agent on the field?"""
    if (task.n_agents, task.state_size) != (failures.rewards.shape[-1], failures.states.shape[-1]):
        return False
    at = task.positions(failures.states[:, 0])
    return bool(np.isfinite(at).all() and (at >= task.low - 1e-9).all() and (at <= task.high + 1e-9).all())
