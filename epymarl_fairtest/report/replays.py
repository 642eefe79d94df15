"""The failures that a page shows: the most unfair and representative ones, each as scene, film and still."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from epymarl_fairtest.campaign.selection import failures_to_watch, trajectories_of
from epymarl_fairtest.report import drawing
from epymarl_fairtest.report.choices import choices_of
from epymarl_fairtest.report.layout import task_of
from epymarl_fairtest.report.packed import BLOCK, packed
from epymarl_fairtest.report.scenes import Played, Scene, played, scene_of
from epymarl_fairtest.report.view import table_order
from epymarl_fairtest.report.why import Small, Why, smalls_of, whys_of
from epymarl_fairtest.store.failures import FailureRows
from epymarl_fairtest.store.finished import FinishedRun
from epymarl_fairtest.tasks.contract import Task

LONGEST = 120  # steps; films of longer episodes would outweigh the rest of the page
AT_ONCE = 80_000_000  # bytes of failures that are read before they are put in order: fewer than a search has freed
ROOM = 3_700_000  # characters for the steps of all failures and, as far as they leave any, for films


@dataclass(frozen=True)
class Replay:
    scene: Scene
    film: bytes | None  # GIF; None for a long episode, or where the page is full
    still: bytes  # PNG
    why: Why | Small | None = None  # where it was explained
    choices: dict[str, Any] | None = None  # what its agents thought of their actions

    def as_json(self) -> dict[str, Any]:
        """What the player needs."""
        scene = self.scene
        plain = {"changed": scene.changed, "happened": scene.happened, "worse": scene.worse.tolist()}
        plain |= {"choices": self.choices} if self.choices else {}
        return scene.as_json() | plain | (self.why.as_json() if self.why else {})


@dataclass(frozen=True)
class Replays:
    worst: list[Replay]
    representative: list[Replay]
    placed: bool  # are the agents' places known?
    smallest: list[Replay] = field(default_factory=list)  # smallest examples, beside their fair neighbours
    packed: list[str] = field(default_factory=list)  # failures in the order of the table, as many as there is room for

    @property
    def all(self) -> list[Replay]:
        """The failures themselves."""
        return self.worst + self.representative

    @property
    def scenes(self) -> list[Replay]:
        """Everything that has a player."""
        return self.all + self.smallest


def replays_of(record: FinishedRun, task: Task | None = None) -> Replays:
    """`task` spares making it again; failures that a replay did not confirm are not shown."""
    if not record.failures:
        return Replays([], [], False)
    failures = FailureRows(record.path / "failures.npz", verified=True)  # by `record.failures`
    task = task or task_of(record.path, record.manifest, failures.take(slice(BLOCK)))
    stable = np.flatnonzero(record.failures["status"] != "unstable")
    index, roots = record.failures["index"], record.failures["root_seed"]
    lowest, typical = failures_to_watch(index, roots, stable, lambda rows: trajectories_of(task, failures.take(rows)))

    whys, name = whys_of(record, task), str(record.summary.get("index", "jfi"))
    steps = packed(in_table(record, task, failures), record.agents, ROOM)
    room = ROOM - sum(map(len, steps))

    def shown_at(row: int) -> Replay:
        nonlocal room
        one = failures.take([row])
        scene = scene_of(task, one, 0, name, record.theta, record.agents)
        film = drawing.gif(scene) if room > 0 and scene.steps <= LONGEST else b""
        room -= len(film) * 4 // 3  # as base64
        choices = choices_of(task, one.q[0, : scene.steps], scene.actions)
        film = film if room >= 0 else b""
        return Replay(scene, film or None, drawing.png(scene), whys.get(scene.id), choices)

    worst, representative = ([shown_at(row) for row in rows.tolist()] for rows in (lowest, typical))
    drawn = [(one.course, one) for one in smalls_of(record, task)]
    small = [Replay(it.scene, None, drawing.png(it.scene), one, it.choices) for it, one in drawn]
    placed = any(one.scene.field.kind != "none" for one in worst)
    return Replays(worst, representative, placed, small, steps)


def in_table(record: FinishedRun, task: Task, failures: FailureRows) -> Iterator[Played]:
    """All failures in the order of the table, a block at a time; few enough are read at once, which takes less."""
    order, names = table_order(record.failures), ("states", "rewards", "length")
    whole = failures.columns(slice(None), names) if failures.nbytes(names) <= AT_ONCE else None
    for first in range(0, len(order), BLOCK):
        rows = order[first : first + BLOCK]
        some = {name: whole[name][rows] for name in names} if whole else failures.columns(rows, names)
        yield played(task, some["states"], some["rewards"], some["length"])
