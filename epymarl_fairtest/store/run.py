"""One run folder: manifest, journal, executed batches, failures, summary.

Order of writing: a batch's failures first, then the batch, then its journal line with the checksums of
both. The journal is the commit: what it names is on disk. A failure is never deleted: `failures.npz` is
complete before the parts it was joined from are deleted, and what is damaged is moved to `damaged/`. Only
files of these names are ever changed or deleted, and none through a link.
"""

from __future__ import annotations

import contextlib
import csv
import io
import os
import re
import warnings
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import getitem
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core.episodes import OPERATORS, Episodes
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.files import (
    AT_ONCE,
    LEFT_OVER,
    Pieces,
    cannot_write,
    json_bytes,
    make_folder,
    refuse_link,
    remove_left_over,
    sync_folder,
    uninterrupted,
    write_arrays,
    write_atomically,
    write_columns,
    write_json,
)
from epymarl_fairtest.core.indices import INDICES
from epymarl_fairtest.core.indices.jain import jfi
from epymarl_fairtest.core.judged import Judge, Judged, totals
from epymarl_fairtest.store.checksum import CHECKSUMS, checksum, checksum_of_written, sealed, unseal, verify
from epymarl_fairtest.store.content import refuse_odd_manifest
from epymarl_fairtest.store.failures import FailureRows, are_episodes, load_failures
from epymarl_fairtest.store.journal import Entry, append_journal, read_journal, write_journal
from epymarl_fairtest.store.lock import FILE as LOCK_FILE
from epymarl_fairtest.store.lock import Lock
from epymarl_fairtest.store.read import (
    FORMAT,
    Column,
    damaged,
    read_arrays,
    read_columns,
    read_json,
    refuse_missing,
    refuse_other_formats,
)

SCALARS = (
    "id", "root_seed", "operator", "parent", "start_step", "stream", "shift", "length", "index", "jfi",
)  # fmt: skip
RESULTS = ("journal.jsonl", "failures.npz", "failures.csv", "executions.npz", "evidence.npz")
NEEDED = ("settings", "seed", "theta", "command", "policy_digest")  # of a manifest, to resume its run
PIECES = ("batches", "parts")  # folders of what is executed and of its failures, batch by batch
PIECE = re.compile(r"[0-9]{5,}\.npz")
WRITTEN_INTO = (*PIECES, "damaged", "policy", "report")
QUICKLY = 4  # level of zlib for what is large: 6 takes up to four times as long for up to a seventh less
Warn = Callable[[str], None]


def _lock(path: Path) -> Lock:
    return Lock(path / LOCK_FILE, f"The run {str(path)!r} is being written")


class RunFolder:
    """Writes one run. Made only once everything that can be checked beforehand was checked.

    It is locked for this process from then on; leaving it as a context (or finishing) unlocks it.
    """

    _kept: Mapping[Path, FailureRows] = {}  # files of failures that were opened, for they are asked for again

    def __init__(self, path: Path, warn: Warn = warnings.warn) -> None:
        self.path, self.resumed, self._warn = path, False, warn
        self._journal: dict[int, Entry] = {}  # by number of the batch
        self._extra: list[str] = []  # files of the steps after the search
        self._made = [place for place in (path, *path.parents) if not place.exists()]
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if never_begun(path):
                self._made = [path]
            else:
                path.mkdir()
            self._lock = _lock(path)
            if not never_begun(path):  # somebody else began it meanwhile
                self._lock.release()
                raise FileExistsError
            remove_left_over(path)
            for name in PIECES:
                (path / name).mkdir(exist_ok=True)
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
        folder.path, folder.resumed, folder._warn, folder._made, folder._extra = path, True, warn, [], []
        _refuse_links(path)
        folder.manifest()  # a damaged one is refused before anything is changed
        folder._lock = _lock(path)
        try:
            folder._refuse_finished()
            folder._read_journal()
        except OSError as error:
            folder._lock.release()
            raise cannot_write(path, error) from error
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
            with contextlib.suppress(FairTestError, OSError):  # damaged or deleted: then everything else stays
                for name in (CHECKSUMS, "summary.json", "failures.npz"):
                    if not (self.path / name).is_file():
                        raise FileNotFoundError
                    verify(self.path / name)
                self._clear()  # it may have been killed at the very end
                remove_left_over(self.path / "report")
            self._lock.remove()
            raise FairTestError(f"The run {str(self.path)!r} is finished; there is nothing to resume.")

    def _read_journal(self) -> None:
        for folder in (self.path, *(self.path / name for name in WRITTEN_INTO)):
            remove_left_over(folder)
        for name in PIECES:  # a copy may have left them out
            make_folder(self.path / name)
        path = self.path / "journal.jsonl"
        self._journal, torn = read_journal(path)
        if torn:
            aside = self._aside(path)
            write_atomically(aside, lambda file: file.write(b"\n".join(torn) + b"\n"))
            self._warn(
                f"{str(path)!r} has {len(torn)} damaged lines, now in {str(aside)!r}. {len(self._journal)} batches"
                " are known; the others are executed again."
            )
        self._write_journal()  # a torn tail must not hurt the next line

    def _aside(self, path: Path) -> Path:
        """A name in damaged/ for this file that is not taken."""
        inside = path.relative_to(self.path)
        folder, name = self.path / "damaged", "-".join(inside.parts)
        make_folder(folder)
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
        columns = read_arrays(self._batch(number))
        if not are_episodes(columns) or len(columns["id"]) != entry["episodes"]:
            self._set_aside(self._batch(number), "does not hold the episodes that the journal counts")
            return None
        episodes, part = Episodes(**columns), self._part(number)
        if not entry["failures"]:
            return episodes
        failing = failure_arrays(self._judged(episodes))
        if self._is_whole(part, entry["part_checksum"]):
            if _like(part, failing, entry["failures"]):
                return episodes
            self._set_aside(part, "does not hold the failures that the journal counts")
        if len(failing["id"]) != entry["failures"]:
            return None
        write_arrays(part, failing)
        self._append({**entry, "part_checksum": checksum(part)})
        return episodes

    def _is_whole(self, path: Path, promised: int) -> bool:
        """Is the file what the journal says? A damaged one is set aside."""
        try:
            if checksum(path) == promised:
                return True
        except FileNotFoundError:
            self._warn(f"{str(path)!r} is missing although the journal names it; it will be made again.")
            return False
        except OSError:  # the disk cannot read it
            pass
        self._set_aside(path, "is damaged (its checksum is not the one in the journal) and will be made again")
        return False

    def _judged(self, episodes: Episodes) -> Judged:
        manifest = self.manifest()
        settings = manifest["settings"]
        return Judge(INDICES[settings["index"]], manifest["theta"], settings.get("agents", "all"))(episodes)

    def save_batch(self, number: int, purpose: str, judged: Judged) -> None:
        """Failures, then the batch, then the journal line that makes both count."""
        with uninterrupted():  # what was executed is kept
            self._save_batch(number, purpose, judged)

    def _save_batch(self, number: int, purpose: str, judged: Judged) -> None:
        part, batch, episodes = self._part(number), self._batch(number), judged.episodes
        failing = failure_arrays(judged) if judged.unfair.any() else {}
        if part.exists() and not _holds(part, failing):  # of a process that was killed before it wrote the line
            self._set_aside(part, "holds other failures than its batch gave when it was executed again")
        if failing:
            write_arrays(part, failing)
        executed = {name: getattr(episodes, name) for name in episodes.__dataclass_fields__}
        write_columns(batch, {name: _pieces(array) for name, array in executed.items()}, len(episodes))
        self._append(
            {
                "batch": number,
                "purpose": purpose,
                "episodes": len(episodes),
                "steps": episodes.executed_steps(),
                "failures": int(judged.unfair.sum()),
                "batch_checksum": checksum_of_written(batch),
                "part_checksum": checksum_of_written(part) if failing else None,
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
        chosen, first = [], 0
        for path, count in self._parts():
            here = rows[(rows >= first) & (rows < first + count)] - first
            if len(here):
                chosen.append(self._read(path).take(here))
            first += count
        return Episodes.concatenate(chosen)

    def _read(self, path: Path) -> FailureRows:
        """A file of failures, of which only rows that are asked for are read; it is kept, for others are asked for."""
        if path not in self._kept:
            self._kept = {**self._kept, path: FailureRows(path)}
        return self._kept[path]

    def _parts(self) -> list[tuple[Path, int]]:
        """The files that hold failures, and how many each holds."""
        counts = [(number, self._journal[number]["failures"]) for number in sorted(self._journal)]
        return [(self._part(number), count) for number, count in counts if count]

    # --- beginning and end ---

    def remove_if_empty(self, *, refused: bool = False) -> None:
        """Delete the folder again if nothing was written into it; after a refusal, if nothing was executed."""
        content, made = {path.name for path in self.path.rglob("*")}, {LOCK_FILE, *PIECES}
        if content == made or (refused and not self.resumed and content == made | {"manifest.json"}):
            (self.path / "manifest.json").unlink(missing_ok=True)
            self._clear()
            with contextlib.suppress(OSError):  # somebody else put something there
                for folder in self._made:
                    folder.rmdir()

    def write_manifest(self, manifest: dict[str, Any]) -> None:
        write_json(self.path / "manifest.json", sealed({"format": FORMAT, **manifest}))

    def manifest(self) -> dict[str, Any]:
        path = self.path / "manifest.json"
        try:
            manifest = unseal(read_json(path))
        except ValueError as error:
            raise damaged(path, error) from error
        lacking = [name for name in NEEDED if manifest.get(name) is None]
        if lacking:
            raise damaged(path, f"it lacks {', '.join(lacking)}")
        refuse_odd_manifest(path, manifest)
        if "index" not in manifest["settings"]:
            raise damaged(path, "its settings lack the index")
        return manifest

    def join_failures(self, added: Mapping[str, NDArray[Any]]) -> None:
        """All failures into one file and one table, with the columns that the steps after the search add."""
        parts, self._kept = [path for path, _ in self._parts()], {}
        names = list(read_arrays(parts[0])) if parts else []
        found = [read_columns(path, names, names) for path in parts]
        columns: dict[str, Any] = {name: [piece for part in found for piece in _pieces(part[name])] for name in names}
        if parts:
            columns |= {name: [lambda values=values: values] for name, values in added.items()}
        write_columns(self.path / "failures.npz", columns, self.failure_count())
        table = failure_table(columns, (*SCALARS, *added))
        write_atomically(self.path / "failures.csv", lambda file: file.write(table.encode()))

    def write_files(
        self, files: Mapping[str, Mapping[str, NDArray[Any]]], documents: Mapping[str, Mapping[str, Any]]
    ) -> None:
        """What a step after the search leaves: NAME.npz -> its arrays, NAME.json -> what it says."""
        for name, arrays in files.items():
            write_arrays(self.path / name, arrays, compressed=True)
            self._extra.append(name)
        for name, content in documents.items():
            write_json(self.path / name, content)
            self._extra.append(name)

    def write_evidence(self, executions: dict[str, NDArray[Any]], evidence: dict[str, NDArray[Any]]) -> None:
        """What the report draws: one row per executed episode, and what the method kept."""
        for name, arrays in (("executions.npz", executions), ("evidence.npz", evidence)):
            write_arrays(self.path / name, arrays, compressed=True, level=QUICKLY)

    def finish(self, summary: dict[str, Any]) -> None:
        """Write the checksums, the summary, and only then delete what failures.npz was made from."""
        joined = {path for path, _ in self._parts()}
        for path in (self.path / "parts").glob("*.npz"):
            if path not in joined:
                self._set_aside(path, "holds failures of a batch that the journal does not name")
        written = [path for path in (self.path / name for name in (*RESULTS, *self._extra)) if path.is_file()]
        files = {path.name: (checksum_of_written if path.suffix == ".npz" else checksum)(path) for path in written}
        files["summary.json"] = zlib.crc32(json_bytes(summary))
        write_json(self.path / CHECKSUMS, sealed({"files": files}))
        write_json(self.path / "summary.json", summary)
        self._clear()

    def _clear(self) -> None:
        for folder in (self.path / name for name in reversed(PIECES)):
            remove_left_over(folder)
            for path in folder.iterdir() if folder.is_dir() else ():
                if PIECE.fullmatch(path.name):
                    path.unlink()
            with contextlib.suppress(OSError):  # not there, or somebody keeps files of his own in it
                folder.rmdir()
        self._lock.remove()


def never_begun(path: Path) -> bool:
    """Was the run in this folder killed before it wrote its manifest? Then it holds nothing but what we made."""
    if path.is_symlink() or not (path / LOCK_FILE).is_file():
        return False
    return all(
        entry.name == LOCK_FILE
        or LEFT_OVER.fullmatch(entry.name)
        or (entry.name in PIECES and not entry.is_symlink() and entry.is_dir() and not any(entry.iterdir()))
        for entry in path.iterdir()
    )


def _refuse_links(path: Path) -> None:
    """A link inside a run folder leads to what is not the run's, and is not ours to change."""
    for name in (LOCK_FILE, "manifest.json", "summary.json", CHECKSUMS, *RESULTS, *WRITTEN_INTO):
        refuse_link(path / name)
    for folder in (path / name for name in PIECES):
        for entry in folder.iterdir() if folder.is_dir() else ():
            refuse_link(entry)


def _holds(path: Path, arrays: dict[str, NDArray[Any]]) -> bool:
    """Does the file hold exactly these arrays?"""
    try:
        stored = read_arrays(path)
    except FairTestError:
        return False
    return stored.keys() == arrays.keys() and all(
        (stored[name].dtype, stored[name].tobytes()) == (array.dtype, array.tobytes()) for name, array in arrays.items()
    )


def _pieces(column: NDArray[Any] | Column) -> list[Any]:
    """How to read all rows of a column, so many at a time that this takes no fresh memory."""
    size = max(AT_ONCE * len(column) // max(column.nbytes, 1), 1)
    starts = range(0, max(len(column), 1), size)  # of an empty one, one empty piece
    return [partial(getitem, column, slice(start, start + size)) for start in starts]


def _like(path: Path, arrays: dict[str, NDArray[Any]], count: int) -> bool:
    """Does the file hold so many failures, in arrays of these names and kinds?"""
    try:
        stored = read_arrays(path)
        kinds = [{name: (_kind(a), a.shape[1:]) for name, a in some.items()} for some in (stored, arrays)]
        return kinds[0] == kinds[1] and {len(column) for column in stored.values()} == {count, len(load_failures(path))}
    except (FairTestError, TypeError):  # TypeError: an array without a length
        return False


def _kind(array: NDArray[Any]) -> str:
    """Its type; texts may be of any length."""
    return "U" if array.dtype.kind == "U" else array.dtype.str


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


def failure_table(columns: Mapping[str, Pieces], names: Sequence[str]) -> str:
    """failures.csv: the columns with these names, and what each agent received."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    received = [totals(read()) for read in columns.get("rewards", ())]
    by_agent = np.concatenate(received).T.tolist() if received else []
    writer.writerow([*names, *(f"received_{agent}" for agent, _ in enumerate(by_agent, 1))])
    if columns:
        held = (np.concatenate([read() for read in columns[name]]).tolist() for name in names)
        writer.writerows(zip(*held, *by_agent, strict=True))
    return out.getvalue()
