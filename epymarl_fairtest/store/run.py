"""One run folder: manifest, journal, executed batches, failures, summary.

Order of writing: a batch's failures first, then the batch, then its journal line with the checksums of
both. The journal is the commit: what it names is on disk. A failure is never deleted: `failures.npz` is
complete before the parts it was joined from go, and what is damaged is moved to `damaged/`.
"""

from __future__ import annotations

import contextlib
import csv
import io
import os
import warnings
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core.episodes import OPERATORS, Episodes
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.files import (
    cannot_write,
    json_bytes,
    sync_folder,
    uninterrupted,
    write_arrays,
    write_atomically,
    write_columns,
    write_json,
)
from epymarl_fairtest.core.indices import INDICES
from epymarl_fairtest.core.indices.jain import jfi
from epymarl_fairtest.core.judged import Judge, Judged
from epymarl_fairtest.store.checksum import CHECKSUMS, checksum, sealed, unsealed, verify
from epymarl_fairtest.store.failures import load_failures, read_column
from epymarl_fairtest.store.journal import Entry, append_journal, read_journal, write_journal
from epymarl_fairtest.store.lock import FILE as LOCK_FILE
from epymarl_fairtest.store.lock import Lock
from epymarl_fairtest.store.read import FORMAT, read_arrays, refuse_missing, refuse_other_formats

SCALARS = (
    "id", "root_seed", "operator", "parent", "start_step", "stream", "shift", "length", "index", "jfi",
)  # fmt: skip
RESULTS = ("journal.jsonl", "failures.npz", "failures.csv", "executions.npz", "evidence.npz")
Warn = Callable[[str], None]


class RunFolder:
    """Writes one run. Made only once everything that can be checked beforehand was checked.

    It is locked for this process from then on; leaving it as a context (or finishing) lets others have it.
    """

    def __init__(self, path: Path, warn: Warn = warnings.warn) -> None:
        self.path, self.resumed, self._warn = path, False, warn
        self._journal: dict[int, Entry] = {}  # by number of the batch
        self._made = [parent for parent in path.parents if not parent.exists()]
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.mkdir()
            self._lock = Lock(path)
            (path / "batches").mkdir()
            (path / "parts").mkdir()
            sync_folder(path.parent)
        except FileExistsError as error:
            raise FairTestError(
                f"The run folder {str(path)!r} already exists, and a run is never overwritten."
                " Choose another fairtest_args.out or move it away."
            ) from error
        except OSError as error:
            raise cannot_write(path, error) from error

    @classmethod
    def resume(cls, path: Path, warn: Warn = warnings.warn) -> RunFolder:
        """An interrupted run: what its journal names is read back instead of being executed again."""
        refuse_missing(path)
        if not (path / "manifest.json").is_file():
            raise FairTestError(f"{str(path)!r} is not a started run: it holds no manifest.json.")
        refuse_other_formats(path)
        folder = cls.__new__(cls)
        folder.path, folder.resumed, folder._warn, folder._made = path, True, warn, []
        try:
            folder._lock = Lock(path)
        except OSError as error:
            raise cannot_write(path, error) from error
        try:
            folder._refuse_finished()
            folder._read_journal()
        except BaseException:
            folder._lock.release()
            raise
        return folder

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *error: Any) -> None:
        self._lock.release()

    def _refuse_finished(self) -> None:
        if (self.path / "summary.json").is_file():
            with contextlib.suppress(FairTestError, OSError):  # damaged, or taken away: then nothing else is
                verify(self.path / "failures.npz")
                self._clear()  # it may have been killed at the very end
            self._lock.remove()
            raise FairTestError(f"The run {str(self.path)!r} is finished; there is nothing to resume.")

    def _read_journal(self) -> None:
        for left in self.path.rglob(".*.tmp"):  # what a killed process was writing
            left.unlink()
        for name in ("batches", "parts"):  # a copy may have left them out
            (self.path / name).mkdir(exist_ok=True)
        path = self.path / "journal.jsonl"
        self._journal, damaged = read_journal(path)
        if damaged:
            aside = self._aside(path)
            write_atomically(aside, lambda file: file.write(b"\n".join(damaged) + b"\n"))
            self._warn(
                f"{str(path)!r} has {len(damaged)} damaged lines, now in {str(aside)!r}. {len(self._journal)} batches"
                " are known; the others are executed again."
            )
        self._write_journal()  # a torn tail must not hurt the next line

    def _aside(self, path: Path) -> Path:
        """A new place in damaged/ for this file."""
        inside = path.relative_to(self.path)
        folder, name = self.path / "damaged", "-".join(inside.parts)
        folder.mkdir(exist_ok=True)
        places = (folder / (f"{name}.{number}" if number else name) for number in range(10_000))
        return next(place for place in places if not place.exists())

    def _set_aside(self, path: Path, why: str) -> None:
        aside = self._aside(path)
        os.replace(path, aside)
        self._warn(f"{str(path)!r} {why}; it was moved to {str(aside)!r}.")

    # --- batches ---

    def load_batch(self, number: int) -> Episodes | None:
        """The episodes of an executed batch; None if it was not executed, or is damaged: it is executed again."""
        entry = self._journal.get(number)
        if entry is None or not self._is_whole(self._batch(number), entry["batch_checksum"]):
            return None
        episodes = Episodes(**read_arrays(self._batch(number)))
        part = self._part(number)
        if entry["failures"] and not self._is_whole(part, entry["part_checksum"]):
            found = failure_arrays(self._judged(episodes))
            if len(found["id"]) != entry["failures"]:
                return None
            write_arrays(part, found)
            self._append({**entry, "part_checksum": checksum(part)})
        return episodes

    def _is_whole(self, path: Path, promised: int) -> bool:
        """Is the file what the journal says? A damaged one is set aside."""
        try:
            if checksum(path) == promised:
                return True
        except FileNotFoundError:
            self._warn(f"{str(path)!r} is missing although the journal names it; it is made again.")
            return False
        except OSError:  # the disk cannot read it
            pass
        self._set_aside(path, "is damaged (its checksum is not the one in the journal) and made again")
        return False

    def _judged(self, episodes: Episodes) -> Judged:
        manifest = self.manifest()
        return Judge(INDICES[manifest["settings"]["index"]], manifest["theta"])(episodes)

    def save_batch(self, number: int, purpose: str, judged: Judged) -> None:
        """Failures, then the batch, then the journal line that makes both count."""
        with uninterrupted():  # what was executed is kept
            self._save_batch(number, purpose, judged)

    def _save_batch(self, number: int, purpose: str, judged: Judged) -> None:
        part, batch, episodes = self._part(number), self._batch(number), judged.episodes
        found = failure_arrays(judged) if judged.unfair.any() else {}
        if part.exists() and not _holds(part, found):  # of a process that was killed before it wrote the line
            self._set_aside(part, "holds other failures than its batch gave when it was executed again")
        if found:
            write_arrays(part, found)
        write_arrays(batch, {name: getattr(episodes, name) for name in episodes.__dataclass_fields__})
        self._append(
            {
                "batch": number,
                "purpose": purpose,
                "episodes": len(episodes),
                "steps": episodes.executed_steps(),
                "failures": int(judged.unfair.sum()),
                "batch_checksum": checksum(batch),
                "part_checksum": checksum(part) if found else None,
            }
        )

    def _part(self, number: int) -> Path:
        return self.path / "parts" / f"{number:05d}.npz"

    def _batch(self, number: int) -> Path:
        return self.path / "batches" / f"{number:05d}.npz"

    def _append(self, entry: Entry) -> None:
        last = all(number < entry["batch"] for number in self._journal)
        self._journal[entry["batch"]] = entry
        if last:
            append_journal(self.path / "journal.jsonl", entry)
        else:
            self._write_journal()

    def _write_journal(self) -> None:
        write_journal(self.path / "journal.jsonl", [self._journal[number] for number in sorted(self._journal)])

    # --- what was found ---

    def episode_count(self) -> int:
        return sum(entry["episodes"] for entry in self._journal.values())

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
        counts = [(number, self._journal[number]["failures"]) for number in sorted(self._journal)]
        return [(self._part(number), count) for number, count in counts if count]

    # --- beginning and end ---

    def remove_if_empty(self, *, refused: bool = False) -> None:
        """Take the folder away again if nothing was written into it; after a refusal, if nothing was executed."""
        there, made = {path.name for path in self.path.rglob("*")}, {LOCK_FILE, "batches", "parts"}
        if there == made or (refused and not self.resumed and there == made | {"manifest.json"}):
            (self.path / "manifest.json").unlink(missing_ok=True)
            self._clear()
            with contextlib.suppress(OSError):  # somebody else put something there
                for folder in (self.path, *self._made):
                    folder.rmdir()

    def write_manifest(self, manifest: dict[str, Any]) -> None:
        write_json(self.path / "manifest.json", sealed({"format": FORMAT, **manifest}))

    def manifest(self) -> dict[str, Any]:
        try:
            content = (self.path / "manifest.json").read_bytes()
            manifest = unsealed(content)
            manifest["settings"], manifest["seed"], manifest["command"], manifest["policy_digest"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise FairTestError(f"{str(self.path / 'manifest.json')!r} is damaged ({error!r}).") from error
        return manifest

    def join_failures(self, added: Mapping[str, NDArray[Any]]) -> None:
        """All failures into one file and one table, with the columns that the steps after the search add."""
        parts = self._parts()
        names = list(read_arrays(parts[0][0])) if parts else []
        columns: dict[str, list[Any]] = {
            name: [partial(read_column, path, name) for path, _ in parts] for name in names
        }
        if parts:
            columns |= {name: [lambda values=values: values] for name, values in added.items()}
        write_columns(self.path / "failures.npz", columns, self.failure_count())
        table = failure_table(self.path / "failures.npz", (*SCALARS, *added))
        write_atomically(self.path / "failures.csv", lambda file: file.write(table.encode()))

    def write_files(self, files: Mapping[str, Mapping[str, NDArray[Any]]]) -> None:
        """What a step after the search leaves: NAME.npz -> its arrays."""
        for name, arrays in files.items():
            write_arrays(self.path / name, arrays, compressed=True)

    def write_evidence(self, executions: dict[str, NDArray[Any]], evidence: dict[str, NDArray[Any]]) -> None:
        """What the report draws: one row per executed episode, and what the method kept."""
        write_arrays(self.path / "executions.npz", executions, compressed=True)
        write_arrays(self.path / "evidence.npz", evidence, compressed=True)

    def finish(self, summary: dict[str, Any]) -> None:
        """The checksums, the summary, and only then drop what failures.npz was made from."""
        joined = {path for path, _ in self._parts()}
        for path in (self.path / "parts").glob("*.npz"):
            if path not in joined:
                self._set_aside(path, "holds failures of a batch that the journal does not name")
        files = {name: checksum(self.path / name) for name in RESULTS if (self.path / name).is_file()}
        files["summary.json"] = zlib.crc32(json_bytes(summary))
        write_json(self.path / CHECKSUMS, sealed({"files": files}))
        write_json(self.path / "summary.json", summary)
        self._clear()

    def _clear(self) -> None:
        for folder in (self.path / "parts", self.path / "batches"):
            for path in folder.iterdir() if folder.is_dir() else ():
                path.unlink()
            if folder.is_dir():
                folder.rmdir()
        self._lock.remove()


def _holds(path: Path, arrays: dict[str, NDArray[Any]]) -> bool:
    """Does the file hold exactly these arrays?"""
    try:
        found = read_arrays(path)
    except FairTestError:
        return False
    return found.keys() == arrays.keys() and all(
        (found[name].dtype, found[name].tobytes()) == (array.dtype, array.tobytes()) for name, array in arrays.items()
    )


def failure_arrays(judged: Judged) -> dict[str, NDArray[Any]]:
    """The columns of failures.npz: plain arrays, one row per failure, no pickle."""
    failing = judged.take(judged.unfair)
    episodes, rows = failing.episodes, np.arange(len(failing))
    return {
        "id": episodes.id,
        "root_seed": episodes.root_seed,
        "operator": np.array(OPERATORS)[episodes.operator],
        "parent": episodes.parent,
        "start_step": episodes.start_step,
        "stream": episodes.stream,
        "shift": episodes.shift,
        "length": episodes.length,
        "index": failing.index,
        "jfi": jfi(failing.received),
        "start_state": episodes.states[rows, episodes.start_step],
        "initial_state": episodes.states[:, 0],
        "states": episodes.states,
        "actions": episodes.actions,
        "rewards": episodes.rewards,
        "q": episodes.q,
    }


def failure_table(path: Path, columns: Sequence[str]) -> str:
    """failures.csv: the same without the arrays."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    with np.load(path, allow_pickle=False) as file:
        if file.files:
            writer.writerows(zip(*(file[name].tolist() for name in columns), strict=True))
    return out.getvalue()
