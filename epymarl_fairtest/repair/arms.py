"""One arm of a repair as a job: train (or not), play, and leave a folder that is there whole or not at all."""

from __future__ import annotations

import json
import shutil
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from epymarl_fairtest.core import rng
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.files import cannot_write, write_arrays, write_json
from epymarl_fairtest.curve.player import Player, curve_tests
from epymarl_fairtest.curve.point import Played, curve_judge
from epymarl_fairtest.repair.contract import Lesson, Trainer
from epymarl_fairtest.repair.plan import REPEATED
from epymarl_fairtest.repair.regressions import repeated
from epymarl_fairtest.settings import Settings
from epymarl_fairtest.store.read import read_arrays
from epymarl_fairtest.team.checkpoint import digest, load_weights
from epymarl_fairtest.team.saved import saved_team

MEASURED, RESULT = "measured.npz", "arm.json"


@dataclass(frozen=True, eq=False)
class Arm:
    """A team that is judged, and how it comes about. Self-contained: a worker anywhere can run it."""

    name: str  # as the user reads it
    folder: Path
    policy: Path  # that is trained on or, without a lesson, judged as it is
    lesson: Lesson | None
    trainer: Trainer | None
    settings: Settings
    sets: dict[str, int]  # starts by the name of their set

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
        result = json.loads((arm.folder / RESULT).read_bytes())
        team = arm.folder if arm.lesson else arm.policy
        same: bool = result["weights"] == digest(load_weights(team / "agent.th")) and result["sets"] == arm.sets
        return same and (arm.folder / MEASURED).is_file()
    except (OSError, ValueError, KeyError, TypeError, FairTestError):
        return False


def run_arm(arm: Arm) -> dict[str, Any]:
    """Train and play. An error is returned, not raised: no backend should try it again, and other arms go on."""
    half = arm.folder.with_name(f".{arm.folder.name}.tmp")
    try:
        if is_finished(arm):
            return json.loads((arm.folder / RESULT).read_bytes())  # type: ignore[no-any-return]
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
        result = {"weights": digest(load_weights(team / "agent.th")), "sets": arm.sets, "notes": notes, "steps": steps,
                "training_cpu_seconds": round(seconds, 1)}  # fmt: skip
        write_json(half / RESULT, result)
        shutil.rmtree(arm.folder, ignore_errors=True)
        half.rename(arm.folder)
        return result
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
        tests = curve_tests(team, count, settings.root_seed(), "repair", name)
        if name == REPEATED:
            tests = repeated(tests, rng.named(settings.root_seed(), "repair", name, "streams"))
        played = player.play(team.policy, tests)
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
