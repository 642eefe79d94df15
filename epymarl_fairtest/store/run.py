"""One run folder: manifest, journal, executed batches, failures, summary.

Order of writing: a batch's failures first, then the batch, then its journal line. The journal is
the commit: what it names is on disk. A failure is never deleted: `failures.npz` is complete before
the parts it was joined from go.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import zipfile
import zlib
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.episode import OPERATORS, Episodes
from epymarl_fairtest.errors import FairTestError
from epymarl_fairtest.fairness import jfi, totals
from epymarl_fairtest.store.failures import columns_of, load_failures, read_column
from epymarl_fairtest.store.write import cannot_write, write_arrays, write_atomically, write_columns, write_json

FORMAT = 2
SCALARS = (
    "id", "root_seed", "operator", "parent", "start_step", "stream", "shift", "length", "index", "jfi", "status",
)  # fmt: skip


class RunFolder:
    """Writes one run. Made only once everything that can be checked beforehand was checked."""

    def __init__(self, path: Path) -> None:
        self.path, self.resumed = path, False
        self._executed: dict[int, dict[str, Any]] = {}  # journal entries of batches that are on disk
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.mkdir()
            (path / "batches").mkdir()
            (path / "parts").mkdir()
        except FileExistsError as error:
            raise FairTestError(
                f"The run folder {str(path)!r} already exists, and a run is never overwritten."
                " Choose another one (--out, or fairtest_args.out) or move it away."
            ) from error
        except OSError as error:
            raise cannot_write(path, error) from error

    @classmethod
    def resume(cls, path: Path) -> RunFolder:
        """An interrupted run: what its journal names is read back instead of being executed again."""
        if not (path / "manifest.json").is_file():
            raise FairTestError(f"{str(path)!r} is no FairTest run: it holds no manifest.json.")
        if (path / "summary.json").is_file():
            raise FairTestError(f"The run {str(path)!r} is finished; there is nothing to resume.")
        folder = cls.__new__(cls)
        folder.path, folder.resumed = path, True
        entries = read_journal(path / "journal.jsonl")
        folder._executed = {entry["batch"]: entry for entry in entries}
        write_journal(path / "journal.jsonl", entries)  # a torn tail must not hurt the next line
        return folder

    def load_batch(self, number: int) -> Episodes | None:
        """The episodes of an executed batch, None if it was not executed (or its file is damaged)."""
        if number not in self._executed:
            return None
        try:
            with np.load(self.path / "batches" / f"{number:05d}.npz", allow_pickle=False) as file:
                return Episodes(**{name: file[name] for name in file.files})
        except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, zlib.error):
            # Execute it again; everything after it follows from it and is executed again as well.
            self._executed = {n: entry for n, entry in self._executed.items() if n < number}
            write_journal(self.path / "journal.jsonl", list(self._executed.values()))
            return None

    def remove_if_empty(self) -> None:
        """Take the folder away again as long as nothing was written into it."""
        for folder in (*self.path.iterdir(), self.path):
            with contextlib.suppress(OSError):
                folder.rmdir()

    def write_manifest(self, manifest: dict[str, Any]) -> None:
        write_json(self.path / "manifest.json", {"format": FORMAT, **manifest})

    def manifest(self) -> dict[str, Any]:
        try:
            manifest = json.loads((self.path / "manifest.json").read_text())
            manifest["settings"], manifest["seed"], manifest["command"], manifest["policy_digest"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise FairTestError(f"{str(self.path / 'manifest.json')!r} is damaged ({error!r}).") from error
        return manifest

    def save_batch(
        self, number: int, purpose: str, episodes: Episodes, index: NDArray[np.float64], failing: NDArray[np.bool_]
    ) -> None:
        """Failures, then the batch, then the journal line that makes both count."""
        if failing.any():
            write_arrays(self._part(number), failure_arrays(episodes.take(failing), index[failing]))
        batch = {name: getattr(episodes, name) for name in episodes.__dataclass_fields__}
        write_arrays(self.path / "batches" / f"{number:05d}.npz", batch)
        self._append(
            {
                "batch": number,
                "purpose": purpose,
                "episodes": len(episodes),
                "steps": episodes.executed_steps(),
                "failures": int(failing.sum()),
            }
        )

    def _part(self, number: int) -> Path:
        return self.path / "parts" / f"{number:05d}.npz"

    def _append(self, entry: dict[str, Any]) -> None:
        path = self.path / "journal.jsonl"
        try:
            with open(path, "ab") as file:
                file.write(journal_line(entry))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise cannot_write(path, error) from error

    def failure_count(self) -> int:
        return sum(count for _, count in self._parts())

    def failures(self, rows: NDArray[np.int64]) -> Episodes:
        """The failures found so far with these numbers (ascending), without what the agents saw."""
        found, first = [], 0
        for path, count in self._parts():
            here = rows[(rows >= first) & (rows < first + count)] - first
            if len(here):
                found.append(load_failures(path).take(here))
            first += count
        return Episodes.concatenate(found)

    def _parts(self) -> list[tuple[Path, int]]:
        """The files that hold failures, and how many each holds."""
        paths = sorted((self.path / "parts").glob("*.npz"))
        return [(path, len(read_column(path, "id"))) for path in paths]

    def join_failures(self, status: NDArray[np.str_]) -> None:
        """All failures into one file and one table, with what their confirmation gave."""
        paths = [path for path, _ in self._parts()]
        names = columns_of(paths[0]) if paths else ()
        columns: dict[str, list[Any]] = {name: [partial(read_column, path, name) for path in paths] for name in names}
        if paths:
            columns["status"] = [lambda: status]
        write_columns(self.path / "failures.npz", columns, len(status))
        table = failure_table(self.path / "failures.npz")
        write_atomically(self.path / "failures.csv", lambda file: file.write(table.encode()))

    def write_evidence(self, executions: dict[str, NDArray[Any]], evidence: dict[str, NDArray[Any]]) -> None:
        """What the report draws: one row per executed episode, and what the method kept."""
        write_arrays(self.path / "executions.npz", executions, compressed=True)
        write_arrays(self.path / "evidence.npz", evidence, compressed=True)

    def finish(self, summary: dict[str, Any]) -> None:
        """The summary, and only then drop what failures.npz was made from."""
        write_json(self.path / "summary.json", summary)
        for folder in ("parts", "batches"):
            for path in (self.path / folder).glob("*.npz"):
                path.unlink()
            (self.path / folder).rmdir()


def journal_line(entry: dict[str, Any]) -> bytes:
    body = json.dumps(entry, sort_keys=True)
    return json.dumps({**entry, "crc": zlib.crc32(body.encode())}, sort_keys=True).encode() + b"\n"


def read_journal(path: Path) -> list[dict[str, Any]]:
    """The entries up to the first that is torn or damaged."""
    entries: list[dict[str, Any]] = []
    for line in path.read_bytes().splitlines() if path.is_file() else []:
        try:
            entry = json.loads(line)
            del entry["crc"]
        except (ValueError, KeyError, TypeError):
            break
        if journal_line(entry) != line + b"\n":  # written again it has the right checksum
            break
        entries.append(entry)
    return entries


def write_journal(path: Path, entries: list[dict[str, Any]]) -> None:
    write_atomically(path, lambda file: file.write(b"".join(journal_line(entry) for entry in entries)))


def failure_arrays(episodes: Episodes, index: NDArray[np.float64]) -> dict[str, NDArray[Any]]:
    """The columns of failures.npz: plain arrays, one row per failure, no pickle."""
    rows = np.arange(len(episodes))
    return {
        "id": episodes.id,
        "root_seed": episodes.root_seed,
        "operator": np.array(OPERATORS)[episodes.operator],
        "parent": episodes.parent,
        "start_step": episodes.start_step,
        "stream": episodes.stream,
        "shift": episodes.shift,
        "length": episodes.length,
        "index": index,
        "jfi": jfi(totals(episodes.rewards)),
        "start_state": episodes.states[rows, episodes.start_step],
        "initial_state": episodes.states[:, 0],
        "states": episodes.states,
        "actions": episodes.actions,
        "rewards": episodes.rewards,
        "q": episodes.q,
    }


def failure_table(path: Path) -> str:
    """failures.csv: the same without the arrays."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(SCALARS)
    with np.load(path, allow_pickle=False) as file:
        if file.files:
            writer.writerows(zip(*(file[name].tolist() for name in SCALARS), strict=True))
    return out.getvalue()
