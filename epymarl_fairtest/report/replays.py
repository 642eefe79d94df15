"""The failures that a page shows: the most unfair and representative ones, each as scene, film and still."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.report import drawing
from epymarl_fairtest.report.layout import task_of
from epymarl_fairtest.report.scenes import Scene, scene_of
from epymarl_fairtest.report.selection import representative, worst
from epymarl_fairtest.store.failures import load_failures
from epymarl_fairtest.store.finished import FinishedRun
from epymarl_fairtest.tasks.contract import Task

EACH = 5  # most unfair ones, and as many representative ones
LONGEST = 120  # steps; films of longer episodes would outweigh the rest of the page


@dataclass(frozen=True)
class Replay:
    scene: Scene
    film: bytes | None  # GIF; None for a long episode
    still: bytes  # PNG

    def as_json(self) -> dict[str, Any]:
        """What the player needs."""
        scene = self.scene
        return scene.as_json() | {"changed": scene.changed, "happened": scene.happened, "worse": scene.worse.tolist()}


@dataclass(frozen=True)
class Replays:
    worst: list[Replay]
    representative: list[Replay]
    placed: bool  # are the agents' places known?

    @property
    def all(self) -> list[Replay]:
        return self.worst + self.representative


def replays_of(record: FinishedRun, task: Task | None = None) -> Replays:
    """`task` spares making it again; failures that a replay did not confirm are not shown."""
    if not record.failures:
        return Replays([], [], False)
    episodes = load_failures(record.path / "failures.npz")
    task = task or task_of(record.path, record.manifest, episodes)
    stable = np.flatnonzero(record.failures["status"] != "unstable")
    lowest = stable[worst(record.failures["index"][stable], EACH, record.failures["root_seed"][stable])]
    others = np.setdiff1d(stable, lowest)
    typical = others[representative(task, episodes.take(others), EACH)] if len(others) else others

    def shown_at(rows: NDArray[np.int64]) -> list[Replay]:
        index = str(record.summary.get("index", "jfi"))
        return [replay_of(scene_of(task, episodes, row, index, record.theta, record.agents)) for row in rows.tolist()]

    shown = Replays(shown_at(lowest), shown_at(typical), False)
    return Replays(shown.worst, shown.representative, any(one.scene.field.kind != "none" for one in shown.all))


def replay_of(scene: Scene) -> Replay:
    return Replay(scene, drawing.gif(scene) if scene.steps <= LONGEST else None, drawing.png(scene))
