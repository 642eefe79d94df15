"""Saved teams play for a curve: one job per team, anywhere, kept so that the same command resumes where it stopped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.files import json_bytes, write_bytes
from epymarl_fairtest.curve.checkpoints import WEIGHTS, Checkpoint
from epymarl_fairtest.curve.player import Player, curve_tests
from epymarl_fairtest.curve.point import Played, Point, curve_judge, point_of, read_point
from epymarl_fairtest.curve.series import asked_for
from epymarl_fairtest.settings import Settings
from epymarl_fairtest.store.checksum import sealed, unsealed
from epymarl_fairtest.team.checkpoint import digest, load_weights, reading_of
from epymarl_fairtest.team.contract import Team
from epymarl_fairtest.team.saved import saved_team

POINTS = "points"  # folder of what was measured, a file per step


@dataclass(frozen=True)
class Job:
    """One team and what it must play."""

    checkpoint: Checkpoint
    settings: Settings
    seed: int
    episodes: int
    out: Path


class Players:
    """The environment in which teams of one training play, one after the other: made and proved once."""

    def __init__(self) -> None:
        self._players: dict[str, tuple[Player, Team]] = {}
        self.warnings: list[str] = []

    def team(self, checkpoint: Checkpoint, settings: Settings) -> Team:
        return saved_team(checkpoint.folder, settings.allocation, checkpoint.record)

    def play(self, checkpoint: Checkpoint, settings: Settings, seed: int, episodes: int, *names: str) -> Played:
        """`names` tell sets of executions apart: those of the curve have none."""
        team = self.team(checkpoint, settings)
        shape = {k: v for k, v in asdict(checkpoint.record).items() if k not in ("training_steps", "test_return")}
        key = repr((shape, settings))
        if key not in self._players:
            judge = curve_judge(settings, team.task)
            self._players[key] = Player(team, settings, judge, self.warnings.append), team
        player, _ = self._players[key]
        return player.play(team.policy, curve_tests(team, episodes, seed, *names))


_PLAYERS = Players()  # of this process: a worker gets many teams of one training


def measure(job: Job) -> dict[str, Any]:
    """The point of one saved team, read back if it was measured before; {"error": …} where it cannot be."""
    try:
        _PLAYERS.warnings.clear()
        team = digest(load_weights(job.checkpoint.folder / WEIGHTS))
        asked = asked_of(job)
        path = job.out / POINTS / f"{job.checkpoint.step}.json"
        point = _read_back(path, asked, team)
        if point is None:
            point = point_of(job.checkpoint.step, _PLAYERS.play(job.checkpoint, job.settings, job.seed, job.episodes))
            path.parent.mkdir(parents=True, exist_ok=True)
            content = sealed({"asked": asked, "weights": team, "point": point.as_dict()})
            write_bytes(path, json_bytes(content))
        return {"point": point.as_dict(), "asked": asked, "warnings": list(_PLAYERS.warnings)}
    except FairTestError as error:
        return {"error": str(error)}
    except Exception as error:  # a stranger's environment, in whatever way it fails
        return {"error": f"{type(error).__name__}: {error}"}


def asked_of(job: Job) -> dict[str, Any]:
    """What the points of these jobs have in common."""
    from epymarl_fairtest.tasks import task_for
    from epymarl_fairtest.team.saved import make_environment

    task = task_for(make_environment(job.checkpoint.record))
    theta = curve_judge(job.settings, task).theta
    settings = job.settings.played_by(reading_of(job.checkpoint.record))
    return asked_for(
        settings, task=task.name, theta=theta, allocation=job.settings.allocation, seed=job.seed,
        episodes=job.episodes,
    )  # fmt: skip


def _read_back(path: Path, asked: Mapping[str, Any], team: str) -> Point | None:
    """What was measured before, if it is whole and was asked in the same way of the same weights."""
    try:
        kept = unsealed(path.read_bytes())
        same = kept["asked"] == asked and kept["weights"] == team
        return read_point(kept["point"]) if same else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
