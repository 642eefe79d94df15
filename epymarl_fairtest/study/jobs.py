"""One job of a study: a team, a variant, a seed. Knows how it is run, resumed, locked and reported as failed.

A job is a run folder, `runs/TEAM/VARIANT/SEED`; it is finished once it holds summary.json. Everything here may happen
in any process on any machine: `run_job` is all that a backend needs.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import time
import traceback
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.files import json_bytes, make_folder, write_atomically, write_json
from epymarl_fairtest.core.version import __version__
from epymarl_fairtest.settings import Settings
from epymarl_fairtest.store.checksum import CHECKSUMS, sealed
from epymarl_fairtest.store.finished import read_summary
from epymarl_fairtest.store.lock import Lock
from epymarl_fairtest.store.run import RunFolder
from epymarl_fairtest.strategies import configure, strategy_of

if TYPE_CHECKING:
    from epymarl_fairtest.team.contract import Team

EXECUTED = ("failures.npz", "executions.npz", "evidence.npz", "natural.npz")  # what --keep-failures keeps
PREDICTED = "predictor"  # what a job of RQ3-a calls its method
NEEDED = ("seed", "theta", "executed_episodes", "wall_seconds", "cpu_seconds")  # by the summary of every job
PREDICTOR_EPISODES = 2500  # of a job of RQ3-a, unless predictor_episodes or a smaller budget is given


@dataclass(frozen=True, eq=False)
class Job:
    """One run of the grid, self-contained: a worker anywhere can run it."""

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
        return self.root / "runs" / self.team / self.variant / str(self.seed)

    @property
    def error_file(self) -> Path:
        return self.root / "failed" / f"{self.team}-{self.variant}-{self.seed}.txt"

    def __str__(self) -> str:
        return f"{self.team} {self.variant} seed {self.seed}"


def finished(job: Job) -> dict[str, Any] | None:
    """The summary of a finished job; a damaged one counts as unfinished, so the job is run again."""
    with contextlib.suppress(FairTestError):
        if not (job.path / CHECKSUMS).is_file() and job.study != "rq3a":  # early ones of RQ3-a have none
            return None
        summary, method = read_summary(job.path), PREDICTED if job.study == "rq3a" else job.settings["method"]
        complete = all(summary.get(name) is not None for name in NEEDED)
        if complete and (summary["seed"], summary["method"]) == (job.seed, method):
            return summary
    return None


@lru_cache(maxsize=8)
def load_team(folder: Path, allocation: str) -> Team:
    """A worker process loads a team once; nothing in it changes while it is tested."""
    from epymarl_fairtest.team.saved import saved_team

    return saved_team(folder, allocation)


def run_job(job: Job) -> dict[str, Any]:
    """Run one job, wherever this is. An error is returned, not raised: no backend should try it again."""
    warnings: list[str] = []
    try:
        if not (job.root / "study.json").is_file():
            raise FairTestError(
                f"Host {socket.gethostname()} does not see {str(job.root / 'study.json')!r}. On a cluster --out must"
                " be on a filesystem that all workers share, under the same path."
            )
        with locked(job):
            summary = finished(job)
            if summary is None:
                summary = _execute(job, warnings.append)
                job.error_file.unlink(missing_ok=True)
        return {"summary": summary, "warnings": warnings}
    except Exception as error:
        text = str(error) if isinstance(error, FairTestError) else traceback.format_exc()
        return {"error": text, "warnings": warnings}


def save_error(job: Job, text: str) -> None:
    make_folder(job.error_file.parent)
    write_atomically(job.error_file, lambda file: file.write(f"{job}\n\n{text}\n".encode()))


@contextlib.contextmanager
def locked(job: Job) -> Iterator[None]:
    """One process per job: a worker believed lost, or a second command, may still be running it."""
    path = job.path.with_name(f".{job.seed}.lock")
    for folder in reversed(job.path.parents[:3]):  # runs/TEAM/VARIANT
        make_folder(folder)
    lock = Lock(path, wait=True)
    try:
        yield
        lock.remove()  # whoever waits for it finds the job finished
    finally:
        lock.release()


def _execute(job: Job, warn: Callable[[str], None]) -> dict[str, Any]:
    chosen = configure(job.settings)
    team = load_team(job.policy, chosen.allocation)
    if team.origin["policy_digest"] != job.digest:
        raise FairTestError(f"The team in {str(job.policy)!r} has other weights than when the study was planned.")
    if job.study == "rq3a":
        return _predict(job, team, chosen, warn)
    from epymarl_fairtest.campaign.run import run
    from epymarl_fairtest.report.observer import Page

    observers = [Page(warn)] if chosen.report else []
    summary = run(team, chosen, _run_folder(job), seed=job.seed, command=job.command, warn=warn, observers=observers)
    if not job.keep_failures:  # thousands of jobs with thousands of episodes each would fill a disk
        for name in EXECUTED:
            (job.path / name).unlink(missing_ok=True)
    return summary


def _run_folder(job: Job) -> RunFolder:
    """The interrupted run of this job if it can be resumed, else a new one; what cannot be resumed is moved aside."""
    from epymarl_fairtest.team.checkpoint import differences

    if (job.path / "manifest.json").is_file() and not job.path.is_symlink():
        with contextlib.suppress(FairTestError):
            folder = RunFolder.resume(job.path)
            manifest = folder.manifest()
            team = load_team(job.policy, job.settings["allocation"])
            same = manifest["settings"] == json.loads(json.dumps(dict(job.settings)))
            if same and not differences(manifest, team.origin) and manifest["fairtest"] == __version__:
                return folder
    set_aside(job)
    return RunFolder(job.path)


def set_aside(job: Job) -> None:
    """Make room for a new run of this job. Nothing that holds a file is deleted; of a link, the link is moved."""
    if job.path.is_dir() and not job.path.is_symlink() and not any(path.is_file() for path in job.path.rglob("*")):
        shutil.rmtree(job.path)
    elif os.path.lexists(job.path):
        aside = job.root / "aside"
        make_folder(aside)
        number = sum(path.name.startswith(f"{job.team}-{job.variant}-{job.seed}.") for path in aside.iterdir())
        shutil.move(job.path, aside / f"{job.team}-{job.variant}-{job.seed}.{number}")


def _predict(job: Job, team: Team, chosen: Settings, warn: Callable[[str], None]) -> dict[str, Any]:
    """A job of RQ3-a: no search, the predictor's cross-validated AUC with and without fairness features."""
    from epymarl_fairtest.study.predictor import predictor_report

    wall, cpu = time.perf_counter(), time.process_time()
    episodes = strategy_of(chosen).chosen(chosen).predictor_episodes
    if episodes is None:
        episodes = min(chosen.budget, PREDICTOR_EPISODES)
    set_aside(job)
    job.path.mkdir(parents=True)
    manifest = {"fairtest": __version__, "task": team.task.name, "seed": job.seed, "command": job.command}
    write_json(job.path / "manifest.json", manifest | {"settings": dict(job.settings)} | team.origin)
    report = predictor_report(team, chosen, episodes, warn, "--set predictor_episodes=N").as_dict()
    summary = {
        "task": report.pop("task"),
        "method": PREDICTED,
        "preset": chosen.preset,
        "seed": job.seed,
        "index": chosen.index,
        "theta": report.pop("theta"),
        "executed_episodes": episodes,
        "charged_strict": episodes,
        "charged_paper": 0,
        "wall_seconds": round(time.perf_counter() - wall, 3),
        "cpu_seconds": round(time.process_time() - cpu, 3),
        "predictor": {"auc_abstract": report.pop("oob_abstract"), "auc_full": report.pop("oob_full"), **report},
    }
    write_json(job.path / CHECKSUMS, sealed({"files": {"summary.json": zlib.crc32(json_bytes(summary))}}))
    write_json(job.path / "summary.json", summary)
    return summary
