"""`fairtest runs`: which runs are in some folders, in what state, with their numbers. Reads, never repairs."""

from __future__ import annotations

import json
import os
import shlex
import zipfile
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path, PurePath
from typing import Any

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.numbers import with_interval

ORDER = 50
DEFAULT = ("results", "runs", ".")
DEPTH = 10  # results/sacred/ALGORITHM/KEY/NUMBER/fairtest is six, in a folder that may be a few deep itself
SKIPPED = {"node_modules", "site-packages", "__pycache__", "batches", "parts", "fixtures"}  # nobody's results
FINISHED, RUNNING, INTERRUPTED, DAMAGED = "finished", "running", "interrupted", "damaged"
COLUMNS = {  # heading -> side
    "when": "<", "state": "<", "team": "<", "algorithm": "<", "natural rate": ">", "task": "<", "method": "<",
    "seed": ">", "judged": ">", "found": ">", "distinct": ">", "roots": ">", "run": "<",
}  # fmt: skip
NUMBERS = (
    "evaluated", "failures", "distinct_failures", "distinct_failures_wide", "distinct_starts", "roots", "undefined",
    "coverage", "natural_rate",
)  # fmt: skip


@dataclass(frozen=True)
class Run:
    """A line of the list. What is not known of a run is None."""

    path: str
    state: str
    when: str  # when it ended or was last written to, local time
    reason: str | None = None  # why it is damaged
    batches: int | None = None  # that an interrupted run need not execute again
    task: str | None = None
    method: str | None = None
    preset: str | None = None
    seed: int | None = None
    budget: int | None = None
    accounting: str | None = None
    team: str | None = None
    algorithm: str | None = None
    policy: str | None = None
    theta: float | None = None
    natural_rate: dict[str, float] | None = None
    evaluated: int | None = None
    failures: int | None = None
    distinct_failures: int | None = None
    distinct_failures_wide: int | None = None
    distinct_starts: int | None = None
    roots: int | None = None
    undefined: int | None = None
    coverage: float | None = None
    format: int | None = None


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "runs", help="list runs with their numbers, newest first", epilog="example: fairtest runs results"
    )
    parser.add_argument(
        "folders", nargs="*", type=Path, metavar="DIR", help="where to look (results, runs and the current folder)"
    )
    parser.add_argument("--json", action="store_true", help="print the list as JSON")
    parser.set_defaults(func=runs)


def runs(args: Namespace) -> int:
    for folder in args.folders:
        if not folder.is_dir():
            raise FairTestError(f"There is no folder {str(folder)!r}; name folders that contain runs.")
    folders = args.folders or [path for path in map(Path, DEFAULT) if path.is_dir()]
    runs = listed(folders)
    if args.json:
        print(json.dumps([asdict(run) for run in runs]))
    elif runs:
        print(table(runs))
    else:
        print(f"No runs below {', '.join(map(str, folders))}.")
    return 0


def listed(folders: Sequence[Path]) -> list[Run]:
    """Every run below these folders once, newest first."""
    places: dict[Path, Path] = {}
    for folder in folders:
        for path in run_folders(folder):
            places.setdefault(path.resolve(), path)
    dated = [(changed(path), str(path), look(path)) for path in places.values()]
    return [run for _, _, run in sorted(dated, key=lambda entry: (-entry[0], entry[1]))]


def run_folders(root: Path) -> Iterator[Path]:
    """Folders that hold a run, not deeper than DEPTH; nothing inside a run is a run of its own."""
    for place, folders, files in os.walk(root):
        path = Path(place)
        if is_run(path, files):
            folders.clear()
            yield path
        elif len(path.relative_to(root).parts) >= DEPTH or "pyvenv.cfg" in files:
            folders.clear()
        folders[:] = sorted(name for name in folders if name not in SKIPPED and not name.startswith("."))


def is_run(path: Path, files: Sequence[str]) -> bool:
    """Other programs write a manifest.json, too; ours names FairTest, or has a journal beside it."""
    if "journal.jsonl" in files and {"manifest.json", "summary.json", "failures.csv"} & set(files):
        return True
    try:
        manifest = json.loads((path / "manifest.json").read_text()) if "manifest.json" in files else None
    except (OSError, ValueError, RecursionError):
        return (path / "batches").is_dir() or (path / "failures.npz").is_file()
    return isinstance(manifest, dict) and "fairtest" in manifest


def changed(path: Path) -> float:
    """When a run ended or, if it did not, when it was last written to."""
    for name in ("summary.json", "journal.jsonl", "manifest.json"):
        if (path / name).is_file():
            return (path / name).stat().st_mtime
    return path.stat().st_mtime


def look(path: Path) -> Run:
    """One run as it is."""
    when = datetime.fromtimestamp(changed(path)).isoformat(sep=" ", timespec="seconds")
    try:
        return Run(path=str(path), when=when, **_read(path))
    except FairTestError as error:
        return Run(path=str(path), when=when, state=DAMAGED, reason=str(error))


def _read(path: Path) -> dict[str, Any]:
    from epymarl_fairtest.store.finished import OPTIONAL, read_manifest, read_run, read_summary
    from epymarl_fairtest.store.journal import read_journal
    from epymarl_fairtest.store.lock import FILE as LOCK_FILE
    from epymarl_fairtest.store.lock import is_held
    from epymarl_fairtest.store.read import damaged

    manifest = read_manifest(path)
    settings = manifest["settings"]
    facts = {name: settings.get(name) for name in ("method", "preset", "budget", "accounting")}
    facts |= {name: manifest.get(name) for name in ("task", "seed", "algorithm", "policy", "theta", "format")}
    facts["team"] = team_of(manifest.get("policy"))
    if not (path / "summary.json").is_file():
        batches, _ = read_journal(path / "journal.jsonl")
        return facts | {"state": RUNNING if is_held(path / LOCK_FILE) else INTERRUPTED, "batches": len(batches)}
    summary = read_summary(path)
    facts |= {name: summary.get(name) for name in ("method", "theta", *NUMBERS)}
    for name in OPTIONAL:
        if (path / name).is_file() and not zipfile.is_zipfile(path / name):
            raise damaged(path / name, "it is cut off or not an .npz file")
    if "natural_rate" not in summary and summary["method"] != "predictor":  # an earlier run
        rate = read_run(path).natural_rate()
        facts["natural_rate"] = None if rate is None else rate.as_dict()
    return facts | {"state": FINISHED}


def team_of(policy: Any) -> str | None:
    """The name of its folder; a run that trained it keeps it in RUN/policy."""
    if not isinstance(policy, str):
        return None
    path = PurePath(policy)
    return (path.parent.name if path.name == "policy" else path.name) or None


def table(runs: Sequence[Run]) -> str:
    rows = [tuple(COLUMNS), *(tuple(map(one_line, _row(run))) for run in runs)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join(f"{cell:{side}{w}}" for cell, side, w in zip(row, COLUMNS.values(), widths, strict=True)).rstrip()
        for row in rows
    ]
    notes = [one_line(f"  {run.path}: {note}") for run in runs if (note := _note(run))]
    return "\n".join([*lines, *([""] if notes else []), *notes])


def one_line(text: str) -> str:
    """What would break the line or move the cursor, spelled out."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _note(run: Run) -> str | None:
    from epymarl_fairtest.store.read import FORMAT

    if run.state == DAMAGED:
        return run.reason
    if run.state != INTERRUPTED:
        return None
    if run.format != FORMAT:
        return "interrupted, and cannot be resumed: run it again."
    after = "1 batch" if run.batches == 1 else f"{run.batches} batches"
    return f"interrupted after {after}; resume it with: fairtest run --resume {shlex.quote(run.path)}"


def _row(run: Run) -> tuple[str, ...]:
    """The values under COLUMNS."""

    def number(value: Any) -> str:
        return "-" if value is None else f"{value:,}" if isinstance(value, int) else str(value)

    rate = run.natural_rate
    return (
        run.when[:16],
        run.state,
        number(run.team),
        number(run.algorithm),
        "-" if rate is None else with_interval(rate["rate"], rate["low"], rate["high"]),
        number(run.task),
        number(run.method),
        "-" if run.seed is None else str(run.seed),  # to be copied
        number(run.evaluated),
        number(run.failures),
        number(run.distinct_failures),
        number(run.roots),
        run.path,
    )
