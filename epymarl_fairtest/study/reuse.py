"""Runs that a study need not repeat, because another study has finished them. Knows when two runs are the same.

They are if version, team, seed and every setting that the method reads are equal, whatever the names of team and
variant.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.files import copy_atomically, write_json
from epymarl_fairtest.core.ledger import is_charged
from epymarl_fairtest.core.version import __version__
from epymarl_fairtest.store.checksum import CHECKSUMS, sealed, verify
from epymarl_fairtest.store.finished import read_manifest, read_summary
from epymarl_fairtest.strategies import STRATEGIES, Strategy
from epymarl_fairtest.study.jobs import EXECUTED, Job, finished, locked, set_aside
from epymarl_fairtest.study.plan import Study, differences_of, read_study

PLACE = {"progress", "workers", "out"}

Run = dict[str, Any]  # what decides what a run does
Reuse = tuple[Path, Job]


def reusable_runs(jobs: Sequence[Job], study: Study, other: Path, warn: Callable[[str], None]) -> list[Reuse]:
    """Finished runs of another study that are these jobs of this one, each with its job."""
    if not (other / "study.json").is_file():
        raise FairTestError(f"--runs-from {str(other)!r} is not a study: it holds no study.json.")
    theirs = dict(_finished_runs(other.resolve()))
    path_of = {_key(run): path for path, run in theirs.items()}
    teams = study.record()["policies"]
    ours = [_what_is_run(__version__, job.study, teams[job.team], job.settings) for job in jobs]
    equal = [(path, job) for job, run in zip(jobs, ours, strict=True) if (path := path_of.get(_key(run)))]
    usable = [(path, job) for path, job in equal if (path / EXECUTED[0]).is_file() or not job.keep_failures]
    if equal and not usable:
        warn(f"--runs-from {other}: its runs did not keep their failures, so nothing is copied")
    elif jobs and not equal:
        warn(f"--runs-from {other} has no run that is missing here{_nearest(theirs.values(), ours)}")
    return [(path, job) for path, job in usable if _is_whole(path, job, warn)]


def _is_whole(source: Path, job: Job, warn: Callable[[str], None]) -> bool:
    """Are the files that would be copied what the run wrote?"""
    try:
        for name in _copied(source, job):
            verify(source / name)
    except FairTestError as error:
        warn(f"--runs-from: {error} It is not copied, and {job} is run.")
        return False
    return True


def _copied(source: Path, job: Job) -> list[str]:
    """The files that a copy has beside the manifest; the summary last: it makes the job finished."""
    names = ["failures.csv", "journal.jsonl", *(EXECUTED if job.keep_failures else ()), CHECKSUMS, "summary.json"]
    return [name for name in names if (source / name).is_file()]


def _nearest(theirs: Iterable[Run], ours: Sequence[Run]) -> str:
    """How the most similar run of the same method differs from ours; empty if there is no such run."""
    first = {run["settings"]["method"]: run for run in reversed(ours)}
    pairs = ((run, first[run["settings"]["method"]]) for run in theirs if run["settings"]["method"] in first)
    differences = sorted((list(differences_of(*pair)) for pair in pairs), key=len)
    return f"; the nearest differs in {'; '.join(differences[0])}" if differences else ""


def copy_run(source: Path, job: Job) -> bool:
    """Whether it was copied: another process may have finished the job meanwhile."""
    with locked(job):
        if finished(job) is not None:
            return False
        set_aside(job)
        job.path.mkdir(parents=True)
        write_json(job.path / "manifest.json", sealed(read_manifest(source) | {"copied_from": str(source)}))
        for name in _copied(source, job):
            copy_atomically(source / name, job.path / name)
        job.error_file.unlink(missing_ok=True)
    return True


def _finished_runs(other: Path) -> Iterator[tuple[Path, Run]]:
    """Those that are complete, of the study's own team, and charged as their settings say."""
    record = read_study(other)
    study = record.get("study")
    for team, identity in record["policies"].items():
        for path in sorted((other / "runs" / team).glob("*/*/summary.json")):
            with suppress(FairTestError):
                summary, manifest = read_summary(path.parent), read_manifest(path.parent)
                run = _what_is_run(manifest.get("fairtest"), study, identity, manifest.get("settings", {}))
                complete = study == "rq3a" or all(path.with_name(n).is_file() for n in ("failures.csv", CHECKSUMS))
                same_team = manifest.get("policy_digest") == identity.get("policy_digest")
                alike = summary.get("charged_strict") == summary.get("charged_paper")
                if complete and same_team and (alike or "accounting" in run["settings"]):
                    yield path.parent, run


def _what_is_run(version: str | None, study: str | None, team: Mapping[str, Any], settings: Mapping[str, Any]) -> Run:
    """Everything that decides what a run does. rq3a runs no search, though its settings are those of one."""
    method, unread = "predictor" if study == "rq3a" else settings.get("method"), set(PLACE)
    strategy = STRATEGIES.get(str(method))
    if strategy is not None and not _charged_differently(strategy):
        unread |= {"preset"}
        if settings.get("theta") != "auto":  # only strict accounting charges the executions that calibrate it
            unread |= {"accounting"}
    read = {name: value for name, value in settings.items() if name not in unread}
    key: dict[str, Any] = json.loads(
        json.dumps({"fairtest": version, "team": team, "settings": read | {"method": method}})
    )
    return key


def _charged_differently(strategy: Strategy) -> bool:
    """Does strict accounting charge random executions of this strategy that the paper's does not?"""
    return any(is_charged(purpose, "strict") != is_charged(purpose, "paper") for purpose in strategy.random)


def _key(run: Mapping[str, Any]) -> str:
    return json.dumps(run, sort_keys=True)
