"""One cell of a study: a team, a variant, a seed. Knows how it is run, gone on with, locked and told to have failed.

A cell is a run folder, `cells/TEAM/VARIANT/SEED`; it is finished once it holds summary.json. Everything here may happen
in any process on any machine: `run_cell` is all that a backend needs.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import socket
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epymarl_fairtest import __version__
from epymarl_fairtest.config import Settings, settings
from epymarl_fairtest.errors import FairTestError
from epymarl_fairtest.store.run import RunFolder
from epymarl_fairtest.store.write import write_atomically, write_json

if TYPE_CHECKING:
    from epymarl_fairtest.run import Subject

EXECUTED = ("failures.npz", "executions.npz", "evidence.npz")  # what --keep-failures keeps
PREDICTOR_EPISODES = 2500  # of a cell of RQ3-a, unless predictor_episodes or a smaller budget is given


@dataclass(frozen=True, eq=False)
class Cell:
    """One run of the grid, complete in itself: a worker anywhere can run it."""

    study: str
    root: Path
    policy: Path
    team: str
    variant: str
    seed: int
    settings: Mapping[str, Any]
    digest: str  # of the team's weights
    command: str
    keep_failures: bool

    @property
    def path(self) -> Path:
        return self.root / "cells" / self.team / self.variant / str(self.seed)

    @property
    def error_file(self) -> Path:
        return self.root / "failed" / f"{self.team}-{self.variant}-{self.seed}.txt"

    def __str__(self) -> str:
        return f"{self.team} {self.variant} seed {self.seed}"


def read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise FairTestError(f"{str(path)!r} is damaged ({error}).") from error
    if not isinstance(value, dict):
        raise FairTestError(f"{str(path)!r} is damaged (no set of names and values).")
    return value


def finished(cell: Cell) -> dict[str, Any] | None:
    """The summary of a finished cell; one that is damaged is run again."""
    with contextlib.suppress(FairTestError):
        return read_json(cell.path / "summary.json")
    return None


@lru_cache(maxsize=8)
def load_team(folder: Path, allocation: str) -> Subject:
    """A worker process loads a team once; nothing in it changes while it is tested."""
    from epymarl_fairtest.subject import saved_subject

    return saved_subject(folder, allocation)


def run_cell(cell: Cell) -> dict[str, Any]:
    """Run one cell, wherever this is. A mistake is told, not raised: no backend shall try it again."""
    warnings: list[str] = []
    try:
        if not (cell.root / "study.json").is_file():
            raise FairTestError(
                f"Host {socket.gethostname()} does not see {str(cell.root / 'study.json')!r}. On a cluster --out must"
                " lie on a filesystem that all workers share, under the same path."
            )
        with locked(cell):
            summary = finished(cell)
            if summary is None:
                summary = _execute(cell, warnings.append)
                cell.error_file.unlink(missing_ok=True)
        return {"summary": summary, "warnings": warnings}
    except Exception as error:
        text = str(error) if isinstance(error, FairTestError) else traceback.format_exc()
        return {"error": text, "warnings": warnings}


def save_error(cell: Cell, text: str) -> None:
    cell.error_file.parent.mkdir(exist_ok=True)
    write_atomically(cell.error_file, lambda file: file.write(f"{cell}\n\n{text}\n".encode()))


@contextlib.contextmanager
def locked(cell: Cell) -> Iterator[None]:
    """One process per cell: a worker that was thought lost may still be at it, or a second command may be."""
    path = cell.path.with_name(f".{cell.seed}.lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a") as file:
        with contextlib.suppress(OSError):  # a filesystem without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        file.truncate(0)
        file.write(f"{socket.gethostname()} {os.getpid()}\n")
        file.flush()
        yield
        path.unlink(missing_ok=True)  # whoever waits for it finds the cell finished


def _execute(cell: Cell, warn: Callable[[str], None]) -> dict[str, Any]:
    chosen = settings(cell.settings)
    subject = load_team(cell.policy, chosen.allocation)
    if subject.origin["policy_digest"] != cell.digest:
        raise FairTestError(f"The team in {str(cell.policy)!r} has other weights than when the study was planned.")
    if cell.study == "rq3a":
        return _predict(cell, subject, chosen, warn)
    from epymarl_fairtest.run import run

    summary = run(
        subject, chosen, _run_folder(cell), seed=cell.seed, command=cell.command, terminal=False, warn=warn
    )  # fmt: skip
    if not cell.keep_failures:  # documented: thousands of cells with thousands of episodes each
        for name in EXECUTED:
            (cell.path / name).unlink(missing_ok=True)
    return summary


def _run_folder(cell: Cell) -> RunFolder:
    """The interrupted run of this cell if it can go on, else a new one; what cannot go on is moved aside."""
    if (cell.path / "manifest.json").is_file():
        with contextlib.suppress(FairTestError):
            folder = RunFolder.resume(cell.path)
            manifest = folder.manifest()
            same = manifest["settings"] == json.loads(json.dumps(dict(cell.settings)))
            if same and manifest["policy_digest"] == cell.digest and manifest["fairtest"] == __version__:
                return folder
    set_aside(cell)
    return RunFolder(cell.path)


def set_aside(cell: Cell) -> None:
    """Make room for a new run of this cell. Nothing that holds a file is deleted."""
    if cell.path.exists() and not any(path.is_file() for path in cell.path.rglob("*")):
        shutil.rmtree(cell.path)
    elif cell.path.exists():
        aside = cell.root / "aside"
        aside.mkdir(exist_ok=True)
        number = sum(path.name.startswith(f"{cell.team}-{cell.variant}-{cell.seed}.") for path in aside.iterdir())
        shutil.move(cell.path, aside / f"{cell.team}-{cell.variant}-{cell.seed}.{number}")


def _predict(cell: Cell, subject: Subject, chosen: Settings, warn: Callable[[str], None]) -> dict[str, Any]:
    """A cell of RQ3-a: no search, the predictor's cross-validated AUC with and without fairness features."""
    from epymarl_fairtest.experiment.predictor import predictor_report

    wall, cpu = time.perf_counter(), time.process_time()
    episodes = chosen.predictor_episodes
    if episodes is None:
        episodes = min(chosen.budget, PREDICTOR_EPISODES)
    set_aside(cell)
    cell.path.mkdir(parents=True)
    manifest = {"fairtest": __version__, "task": subject.task.name, "seed": cell.seed, "command": cell.command}
    write_json(cell.path / "manifest.json", manifest | {"settings": dict(cell.settings)} | subject.origin)
    report = predictor_report(subject, chosen, episodes, warn, "--set predictor_episodes=N").as_dict()
    summary = {
        "task": report.pop("task"),
        "method": "predictor",
        "preset": chosen.preset,
        "seed": cell.seed,
        "index": chosen.index,
        "theta": report.pop("theta"),
        "executed_episodes": episodes,
        "charged_strict": episodes,
        "charged_paper": 0,
        "wall_seconds": round(time.perf_counter() - wall, 3),
        "cpu_seconds": round(time.process_time() - cpu, 3),
        "predictor": {"auc_abstract": report.pop("oob_abstract"), "auc_full": report.pop("oob_full"), **report},
    }
    write_json(cell.path / "summary.json", summary)
    return summary
