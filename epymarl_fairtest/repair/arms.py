"""One arm of a repair as a job: train (or not), play, and leave a folder that is there whole or not at all."""

from __future__ import annotations

import json
import shutil
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.files import cannot_write, write_arrays, write_json
from epymarl_fairtest.curve.player import Player, curve_tests
from epymarl_fairtest.curve.point import Played, curve_judge
from epymarl_fairtest.repair.contract import Lesson, Trainer
from epymarl_fairtest.repair.plan import FRESH, VALIDATION
from epymarl_fairtest.settings import Settings
from epymarl_fairtest.store.read import read_arrays
from epymarl_fairtest.team.checkpoint import digest, load_weights
from epymarl_fairtest.team.saved import saved_team

MEASURED, TOLD = "measured.npz", "arm.json"


@dataclass(frozen=True, eq=False)
class Arm:
    """A team that is judged, and how it comes about. Self-contained: a worker anywhere can run it."""

    name: str  # as the user reads it
    folder: Path
    policy: Path  # that is trained on or, without a lesson, judged as it is
    lesson: Lesson | None
    trainer: Trainer | None
    settings: Settings
    sets: dict[str, int]  # executions by the name of their set

    def __str__(self) -> str:
        return self.name


def measured(folder: Path, name: str) -> Played:
    """What the team of a finished arm made of a set of executions."""
    columns = read_arrays(folder / MEASURED)
    try:
        return Played(*(columns[f"{name}_{part}"] for part in ("received", "index", "unfair")))
    except KeyError as error:
        raise FairTestError(
            f"{str(folder / MEASURED)!r} lacks {error}; delete {str(folder)!r} to do it again."
        ) from error


def is_finished(arm: Arm) -> bool:
    """Is everything there, of the same weights?"""
    try:
        told = json.loads((arm.folder / TOLD).read_bytes())
        team = arm.folder if arm.lesson else arm.policy
        same: bool = told["weights"] == digest(load_weights(team / "agent.th")) and told["sets"] == arm.sets
        return same and (arm.folder / MEASURED).is_file()
    except (OSError, ValueError, KeyError, TypeError, FairTestError):
        return False


def run_arm(arm: Arm) -> dict[str, Any]:
    """Train and play. An error is returned, not raised: no backend should try it again, and other arms go on."""
    half = arm.folder.with_name(f".{arm.folder.name}.tmp")
    try:
        if is_finished(arm):
            return json.loads((arm.folder / TOLD).read_bytes())  # type: ignore[no-any-return]
        began = time.process_time()
        shutil.rmtree(half, ignore_errors=True)
        half.mkdir(parents=True)
        notes: list[str] = []
        steps = 0
        if arm.lesson is not None and arm.trainer is not None:
            trained = arm.trainer.train(arm.lesson, half)
            notes, steps = list(trained.notes), trained.steps
        seconds = time.process_time() - began
        team = half if arm.lesson else arm.policy
        write_arrays(half / MEASURED, play(team, arm.settings, arm.sets))
        told = {"weights": digest(load_weights(team / "agent.th")), "sets": arm.sets, "notes": notes, "steps": steps,
                "training_cpu_seconds": round(seconds, 1)}  # fmt: skip
        write_json(half / TOLD, told)
        shutil.rmtree(arm.folder, ignore_errors=True)
        half.rename(arm.folder)
        return told
    except FairTestError as error:
        return {"error": str(error)}
    except OSError as error:
        return {"error": str(cannot_write(arm.folder, error))}
    except Exception:  # a stranger's environment or host, in whatever way it fails
        return {"error": traceback.format_exc()}
    finally:
        shutil.rmtree(half, ignore_errors=True)


def play(policy: Path, settings: Settings, sets: dict[str, int]) -> dict[str, Any]:
    """The team's random executions, set by set; the same starts for every team of a repair."""
    team = saved_team(policy, settings.allocation)
    player = Player(team, settings, curve_judge(settings, team.task), lambda message: None)
    columns: dict[str, Any] = {}
    for name, count in sets.items():
        played = player.play(team.policy, curve_tests(team, count, settings.root_seed(), "repair", name))
        columns |= {f"{name}_{part}": getattr(played, part) for part in ("received", "index", "unfair")}
    return columns


def copy_arm(source: Path, target: Path) -> None:
    """The chosen arm under the name it is asked for by; whole or not at all."""
    half = target.with_name(f".{target.name}.tmp")
    try:
        shutil.rmtree(half, ignore_errors=True)
        shutil.copytree(source, half)
        shutil.rmtree(target, ignore_errors=True)
        half.rename(target)
    except OSError as error:
        raise cannot_write(target, error) from error


def sets_of(validation: int, fresh: int) -> dict[str, int]:
    return {VALIDATION: validation, FRESH: fresh}


def fair_before_unfair_now(before: Played, now: Played) -> float:
    """The share of starts that were fair and are unfair now."""
    fair = ~before.unfair & ~np.isnan(before.index)
    return float(now.unfair[fair].mean()) if fair.any() else 0.0
