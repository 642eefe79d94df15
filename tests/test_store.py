"""The run folder: whole files or none, nothing overwritten, no failure lost, damage told and set aside.

Runs that are killed at every moment are in test_crash.py.
"""

from __future__ import annotations

import contextlib
import csv
import errno
import json
import os
import re
import resource
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import FAIRTEST, TESTS, assert_identical, engine_of, policy_folder, some_tests

from epymarl_fairtest.core import direct
from epymarl_fairtest.core.episodes import OPERATORS, Episodes
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.files import write_arrays, write_atomically, write_columns, write_json
from epymarl_fairtest.core.indices.jain import jfi
from epymarl_fairtest.core.judged import Judge, Judged, totals
from epymarl_fairtest.core.stopping import Stopped, stoppable
from epymarl_fairtest.store import lock
from epymarl_fairtest.store.checksum import checksum, checksum_of_written, followed_by, sealed
from epymarl_fairtest.store.failures import FailureRows, load_failures
from epymarl_fairtest.store.finished import read_run
from epymarl_fairtest.store.journal import read_journal
from epymarl_fairtest.store.lock import InUse, Lock, is_held
from epymarl_fairtest.store.read import FORMAT, read_arrays
from epymarl_fairtest.store.run import RunFolder

COLUMNS = {
    "id", "root_seed", "operator", "parent", "start_step", "stream", "shift", "length", "index", "jfi", "start_state",
    "initial_state", "states", "actions", "rewards", "q", "status",
}  # fmt: skip


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# --- single files -------------------------------------------------------------------------------------


def test_a_file_is_written_whole(tmp_path: Path) -> None:
    write_atomically(tmp_path / "a", lambda file: file.write(b"one"))
    write_atomically(tmp_path / "a", lambda file: file.write(b"two"))
    assert contents(tmp_path) == {"a": b"two"}


@pytest.mark.parametrize("error", [OSError("torn"), ValueError("wrong"), KeyboardInterrupt()])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(error: BaseException, tmp_path: Path) -> None:
    write_atomically(tmp_path / "a", lambda file: file.write(b"old"))

    def fill(file: Any) -> None:
        file.write(b"half of the new")
        raise error

    with pytest.raises((FairTestError, type(error))) as caught:
        write_atomically(tmp_path / "a", fill)
    assert contents(tmp_path) == {"a": b"old"}
    if isinstance(error, OSError):
        assert f"cannot write '{tmp_path / 'a'}': torn" in str(caught.value)


def test_owner_and_mode_of_an_existing_file_are_kept_and_a_new_one_follows_the_umask(tmp_path: Path) -> None:
    path, before = tmp_path / "a", os.umask(0o027)
    try:
        write_atomically(path, lambda file: file.write(b"new"))
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    path.chmod(0o604)
    owner = (1234, 5678) if os.geteuid() == 0 else (os.geteuid(), os.getegid())  # only root may give files away
    os.chown(path, *owner)
    write_atomically(path, lambda file: file.write(b"newer"))
    found = path.stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (*owner, 0o604)
    assert path.read_bytes() == b"newer"


def test_a_missing_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(FairTestError, match="No such file or directory"):
        write_atomically(tmp_path / "nowhere" / "a", lambda file: file.write(b"x"))


def goes_past_the_cache(folder: Path) -> bool:
    """Can files of this folder?"""
    import fcntl

    with open(folder / "probe", "wb") as file, contextlib.suppress(OSError):
        return fcntl.fcntl(file, fcntl.F_SETFL, direct.DIRECT) == 0
    return False


CAN = pytest.mark.skipif(not direct.DIRECT, reason="this system writes no file past its cache")


@CAN
@pytest.mark.parametrize("refused", ["nothing", "all of it", "a block of this size"])
def test_a_long_file_is_written_past_the_cache_where_the_disk_allows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    import fcntl

    allowed = goes_past_the_cache(tmp_path)
    pieces = list(np.random.default_rng(0).standard_normal((5, 400, 3)))
    columns = {"a": [lambda piece=piece: piece for piece in pieces], "b": [lambda: np.arange(2000)]}
    with monkeypatch.context() as plain:
        plain.setattr(direct, "DIRECT", 0)
        write_columns(tmp_path / "plain.npz", columns, 2000)
    monkeypatch.setattr(direct, "ROOM", 1 << 14)
    how: list[bool] = []
    pwrite, control = os.pwrite, fcntl.fcntl

    def put(handle: int, data: memoryview, at: int) -> int:
        how.append(bool(control(handle, fcntl.F_GETFL) & direct.DIRECT))
        if refused == "a block of this size" and how[-1]:
            raise OSError(errno.EINVAL, "Invalid argument")
        return pwrite(handle, data, at)

    def switch(handle: int, what: int, flags: int = 0) -> int:
        if refused == "all of it" and flags & direct.DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return int(control(handle, what, flags))

    monkeypatch.setattr(os, "pwrite", put)
    monkeypatch.setattr(fcntl, "fcntl", switch)
    write_columns(tmp_path / "long.npz", columns, 2000)
    assert (tmp_path / "long.npz").read_bytes() == (tmp_path / "plain.npz").read_bytes()
    assert not how[-1], "the rest goes through the cache"
    assert sum(how) == (allowed and {"nothing": 3, "all of it": 0, "a block of this size": 1}[refused])
    with np.load(tmp_path / "long.npz") as held:
        assert held["a"].tobytes() == np.concatenate(pieces).tobytes()
        assert held["b"].tolist() == list(range(2000))


@CAN
def test_a_full_disk_is_told_of_a_long_file_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(handle: int, data: memoryview, at: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(FairTestError, match=r"cannot write .*long\.npz'"):
        write_columns(tmp_path / "long.npz", {"a": [lambda: np.zeros(1 << 20)]}, 1 << 20)
    assert not list(tmp_path.iterdir())


def test_json_is_never_half_a_number(tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        write_json(tmp_path / "a.json", {"x": float("nan")})
    assert contents(tmp_path) == {}
    write_json(tmp_path / "a.json", {"x": [1, None]})
    assert json.loads((tmp_path / "a.json").read_text()) == {"x": [1, None]}


# --- a run folder -------------------------------------------------------------------------------------


def test_an_existing_folder_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine").write_text("mine")
    with pytest.raises(FairTestError, match="already exists, and a run is never overwritten"):
        RunFolder(tmp_path / "run")
    assert contents(tmp_path) == {"run/mine": b"mine"}
    assert os.listdir(tmp_path / "run") == ["mine"]


def test_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("mine")
    with pytest.raises(FairTestError, match="already exists"):
        RunFolder(tmp_path / "run")
    with pytest.raises(FairTestError, match=r"cannot write|already exists"):
        RunFolder(tmp_path / "run" / "below")
    assert contents(tmp_path) == {"run": b"mine"}


def test_an_unused_folder_can_be_taken_away_and_a_used_one_cannot(tmp_path: Path) -> None:
    RunFolder(tmp_path / "unused").remove_if_empty()
    assert not (tmp_path / "unused").exists()
    used = RunFolder(tmp_path / "used")
    used.write_manifest({"a": 1})
    used.remove_if_empty()
    assert sorted(os.listdir(used.path)) == [".lock", "batches", "manifest.json", "parts"]
    used.remove_if_empty(refused=True)
    assert not used.path.exists()


def test_a_folder_is_taken_away_with_the_folders_that_were_made_for_it(tmp_path: Path) -> None:
    RunFolder(tmp_path / "a" / "b" / "run").remove_if_empty()
    assert list(tmp_path.iterdir()) == []
    folder = RunFolder(tmp_path / "a" / "b" / "run")
    (tmp_path / "a" / "mine").write_text("mine")
    folder.remove_if_empty()
    assert contents(tmp_path) == {"a/mine": b"mine"}
    assert os.listdir(tmp_path / "a") == ["mine"]


def test_a_folder_that_cannot_be_made_is_not_told_of_space_or_of_what_was_found() -> None:
    with pytest.raises(FairTestError) as caught:
        RunFolder(Path("/proc/x"))
    assert str(caught.value).endswith("Choose a folder that you may write to.")
    assert "found" not in str(caught.value)


def test_what_does_not_exist_cannot_be_resumed(tmp_path: Path) -> None:
    with pytest.raises(FairTestError, match="There is no folder"):
        RunFolder.resume(tmp_path / "nothing")


@pytest.fixture(scope="module")
def batches() -> list[Judged]:
    """In the second nobody failed."""
    out = []
    for number in range(3):
        episodes = engine_of("tag").execute(some_tests("tag", 10, seed=number))
        episodes.id = np.arange(10) + 10 * number
        index = jfi(totals(episodes.rewards))
        out.append(Judge(jfi, float(np.median(index)) if number != 1 else -1)(episodes))
    return out


MANIFEST: dict[str, Any] = {
    "task": "tag", "theta": 0.5, "seed": 1, "settings": {"index": "jfi"}, "command": "", "policy_digest": "",
}  # fmt: skip


@pytest.fixture
def folder(batches: list[Judged], tmp_path: Path) -> RunFolder:
    run = RunFolder(tmp_path / "run")
    theta = float(np.median(batches[0].index))
    run.write_manifest({**MANIFEST, "theta": theta})
    for number, judged in enumerate(batches):
        run.save_batch(number, "execution", judged)
    return run


def unchecked(count: int) -> dict[str, Any]:
    """What the steps after the search add to each failure."""
    return {"status": np.full(count, "unchecked")}


def test_every_journal_line_carries_the_right_checksum(folder: RunFolder, batches: list[Judged]) -> None:
    lines = (folder.path / "journal.jsonl").read_bytes().splitlines()
    assert len(lines) == 3
    for number, text in enumerate(lines):
        entry = json.loads(text)
        crc = entry.pop("crc")
        assert crc == zlib.crc32(json.dumps(entry, sort_keys=True).encode())
        assert entry["batch"] == number
        assert entry["batch_checksum"] == zlib.crc32((folder.path / "batches" / f"0000{number}.npz").read_bytes())
        part = folder.path / "parts" / f"0000{number}.npz"
        assert entry["part_checksum"] == (zlib.crc32(part.read_bytes()) if part.exists() else None)
        assert (entry["episodes"], entry["steps"], entry["purpose"]) == (
            10,
            int(batches[number].episodes.length.sum()),
            "execution",
        )
    assert [json.loads(text)["failures"] for text in lines] == [5, 0, 5]


def test_failures_are_on_disk_before_the_run_is_finished(folder: RunFolder, batches: list[Judged]) -> None:
    parts = sorted((folder.path / "parts").glob("*.npz"))
    assert [part.name for part in parts] == ["00000.npz", "00002.npz"]
    with np.load(parts[0], allow_pickle=False) as file:
        assert file["id"].tolist() == batches[0].episodes.id[batches[0].unfair].tolist()


def test_failures_npz_holds_every_failure_with_every_column(folder: RunFolder, batches: list[Judged]) -> None:
    folder.join_failures(unchecked(folder.failure_count()))
    folder.finish({"failures": 10})
    with np.load(folder.path / "failures.npz", allow_pickle=False) as file:
        failures = {name: file[name] for name in file.files}
    assert set(failures) == COLUMNS
    expected = Episodes.concatenate([judged.episodes.take(judged.unfair) for judged in batches])
    for name in (
        "id",
        "root_seed",
        "parent",
        "start_step",
        "stream",
        "shift",
        "length",
        "states",
        "actions",
        "rewards",
        "q",
    ):
        assert failures[name].tobytes() == getattr(expected, name).tobytes(), name
    assert failures["operator"].tolist() == [OPERATORS[0]] * 10
    assert failures["jfi"].tolist() == jfi(totals(failures["rewards"])).tolist()
    assert failures["start_state"].tobytes() == failures["initial_state"].tobytes() == expected.states[:, 0].tobytes()
    assert all(column.dtype != object for column in failures.values())


def test_failures_csv_says_the_same_without_arrays(folder: RunFolder) -> None:
    folder.join_failures(unchecked(folder.failure_count()))
    folder.finish({})
    with open(folder.path / "failures.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    with np.load(folder.path / "failures.npz", allow_pickle=False) as file:
        for name in ("id", "root_seed", "parent", "start_step", "stream", "shift", "length"):
            assert [int(row[name]) for row in rows] == file[name].tolist()
        assert [float(row["jfi"]) for row in rows] == file["jfi"].tolist()
        assert [row["operator"] for row in rows] == file["operator"].tolist()
        received = [[float(row[f"received_{agent}"]) for agent in (1, 2, 3)] for row in rows]
        np.testing.assert_allclose(received, file["rewards"].sum(axis=1), rtol=1e-12)
        assert "received_4" not in rows[0]


def test_a_finished_folder_holds_the_results_and_nothing_else(folder: RunFolder) -> None:
    folder.join_failures(unchecked(folder.failure_count()))
    folder.finish({"failures": 10})
    assert set(contents(folder.path)) == {
        "manifest.json",
        "journal.jsonl",
        "failures.npz",
        "failures.csv",
        "summary.json",
        "checksums.json",
    }
    assert json.loads((folder.path / "summary.json").read_text()) == {"failures": 10}
    assert not [path for path in folder.path.iterdir() if path.is_dir()]


def test_a_run_without_failures_is_complete_too(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    run.join_failures(unchecked(0))
    run.finish({})
    with np.load(run.path / "failures.npz", allow_pickle=False) as file:
        assert file.files == []
    assert (run.path / "failures.csv").read_text().count("\n") == 1


# --- damage -------------------------------------------------------------------------------------------


def flip(path: Path, position: float = 0.5) -> None:
    """One bit of the file."""
    content = bytearray(path.read_bytes())
    content[int(position * (len(content) - 1))] ^= 4
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


HARM: dict[str, Callable[[Path], None]] = {
    "flipped": flip,
    "flipped-at-the-end": lambda path: flip(path, 1.0),
    "cut": cut,
    "empty": lambda path: path.write_bytes(b""),
}


class Resumed:
    """The run again, and what it warned of."""

    def __init__(self, folder: RunFolder) -> None:
        with folder:
            pass
        self.said: list[str] = []
        self.folder = RunFolder.resume(folder.path, self.said.append)

    def set_aside(self) -> list[str]:
        return sorted(path.name for path in (self.folder.path / "damaged").glob("*"))


@pytest.mark.parametrize("harm", HARM)
def test_a_damaged_part_is_set_aside_and_made_again_from_its_batch(
    harm: str, folder: RunFolder, batches: list[Judged]
) -> None:
    part = folder.path / "parts" / "00000.npz"
    whole = part.read_bytes()
    HARM[harm](part)
    damaged = part.read_bytes()
    resumed = Resumed(folder)
    episodes = resumed.folder.load_batch(0)
    assert episodes is not None
    assert_identical(episodes, batches[0].episodes)
    assert part.read_bytes() == whole
    assert resumed.set_aside() == ["parts-00000.npz"]
    assert (folder.path / "damaged" / "parts-00000.npz").read_bytes() == damaged
    (said,) = resumed.said
    assert str(part) in said
    assert "checksum is not the one in the journal" in said
    assert resumed.folder.failure_count() == 10


def test_a_missing_part_is_made_again_from_its_batch(folder: RunFolder) -> None:
    part = folder.path / "parts" / "00000.npz"
    whole = part.read_bytes()
    part.unlink()
    resumed = Resumed(folder)
    assert resumed.folder.load_batch(0) is not None
    assert part.read_bytes() == whole
    assert "is missing although the journal names it" in resumed.said[0]


@pytest.mark.parametrize("harm", HARM)
@pytest.mark.parametrize("also", ["part", "nothing else"])
def test_a_damaged_batch_is_set_aside_and_executed_again_and_later_ones_are_kept(
    harm: str, also: str, folder: RunFolder, batches: list[Judged]
) -> None:
    before = contents(folder.path)
    HARM[harm](folder.path / "batches" / "00000.npz")
    if also == "part":
        HARM[harm](folder.path / "parts" / "00000.npz")
    resumed = Resumed(folder)
    assert resumed.folder.load_batch(0) is None
    assert "batches-00000.npz" in resumed.set_aside()
    resumed.folder.save_batch(0, "execution", batches[0])
    for number in (1, 2):
        known = resumed.folder.load_batch(number)
        assert known is not None
        assert_identical(known, batches[number].episodes)
    assert resumed.folder.failure_count() == 10
    now = {name: text for name, text in contents(folder.path).items() if not name.startswith("damaged/")}
    assert now == before, "the journal too, in its order"


@pytest.mark.parametrize("line", [0, 1, 2])
@pytest.mark.parametrize("harm", ["flipped", "cut"])
def test_a_damaged_journal_line_is_set_aside_and_the_others_are_kept(
    harm: str, line: int, folder: RunFolder, batches: list[Judged]
) -> None:
    journal = folder.path / "journal.jsonl"
    whole = journal.read_bytes()
    lines = whole.split(b"\n")
    lines[line] = lines[line][:-7] if harm == "cut" else lines[line].replace(b'"failures": ', b'"failures": 1')
    journal.write_bytes(b"\n".join(lines))
    resumed = Resumed(folder)
    assert "has 1 damaged lines" in resumed.said[0]
    assert (folder.path / "damaged" / "journal.jsonl").read_bytes() == lines[line] + b"\n"
    assert [resumed.folder.load_batch(number) is None for number in range(3)] == [n == line for n in range(3)]
    resumed.folder.save_batch(line, "execution", batches[line])
    assert journal.read_bytes() == whole
    assert len(resumed.said) == 1, "what was executed again is what was there"


def test_damage_that_comes_again_does_not_overwrite_what_was_set_aside(folder: RunFolder) -> None:
    for expected in (["parts-00000.npz"], ["parts-00000.npz", "parts-00000.npz.1"]):
        flip(folder.path / "parts" / "00000.npz")
        resumed = Resumed(folder)
        resumed.folder.load_batch(0)
        assert resumed.set_aside() == expected
        folder = resumed.folder


def test_failures_whose_journal_line_was_never_written_are_neither_lost_nor_counted_twice(
    folder: RunFolder, batches: list[Judged]
) -> None:
    journal = folder.path / "journal.jsonl"
    whole = contents(folder.path)
    journal.write_bytes(b"\n".join(journal.read_bytes().split(b"\n")[:2]) + b"\n")
    resumed = Resumed(folder)
    assert resumed.folder.failure_count() == 5
    assert resumed.folder.load_batch(2) is None
    resumed.folder.save_batch(2, "execution", batches[2])
    assert resumed.folder.failure_count() == 10
    assert contents(folder.path) == whole
    assert not resumed.said


@pytest.mark.parametrize("again", ["others", "none"])
def test_failures_that_do_not_come_again_are_kept_aside(again: str, folder: RunFolder, batches: list[Judged]) -> None:
    """Another version of a library, perhaps."""
    journal, part = folder.path / "journal.jsonl", folder.path / "parts" / "00002.npz"
    found = part.read_bytes()
    journal.write_bytes(b"\n".join(journal.read_bytes().split(b"\n")[:2]) + b"\n")
    resumed = Resumed(folder)
    failing = ~batches[2].unfair if again == "others" else batches[2].unfair & False
    resumed.folder.save_batch(2, "execution", replace(batches[2], unfair=failing))
    assert (folder.path / "damaged" / "parts-00002.npz").read_bytes() == found
    assert "holds other failures than its batch gave" in resumed.said[0]
    assert resumed.folder.failure_count() == (10 if again == "others" else 5)


def test_failures_of_a_batch_that_is_never_executed_again_are_kept_aside(folder: RunFolder) -> None:
    found = (folder.path / "parts" / "00002.npz").read_bytes()
    (folder.path / "parts" / "00003.npz").write_bytes(found)
    folder.join_failures(unchecked(10))
    with pytest.warns(UserWarning, match="a batch that the journal does not name"):
        folder.finish({})
    assert (folder.path / "damaged" / "parts-00003.npz").read_bytes() == found
    assert len(load_failures(folder.path / "failures.npz")) == 10


def test_what_a_killed_process_was_writing_is_cleared_away(folder: RunFolder) -> None:
    for name in ("batches/.00003.npz.77.tmp", "parts/.00003.npz.77.tmp", ".failures.npz.77.tmp"):
        (folder.path / name).write_bytes(b"half")
    run = Resumed(folder).folder
    run.join_failures(unchecked(10))
    run.finish({})
    assert not list(run.path.rglob("*.tmp"))
    assert not (run.path / "batches").exists()


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace('"seed": 1', '"seed": 2'),
        lambda text: text[:-30],
        lambda text: "",
        lambda text: "[]",
        lambda text: "[" * 100_000,
    ],
    ids=["seed", "cut", "empty", "list", "deep"],
)
def test_a_damaged_manifest_is_refused(change: Callable[[str], str], folder: RunFolder) -> None:
    path = folder.path / "manifest.json"
    path.write_text(change(path.read_text()))
    with pytest.raises(FairTestError, match=r"manifest\.json' is damaged"):
        Resumed(folder)


@pytest.fixture
def finished(folder: RunFolder) -> Path:
    folder.join_failures(unchecked(10))
    folder.write_evidence({"id": np.arange(30)}, {"coverage_cells": np.arange(3)})
    folder.finish({"failures": 10})
    return folder.path


def test_a_finished_run_names_the_checksums_of_its_files(finished: Path) -> None:
    known = json.loads((finished / "checksums.json").read_text())
    crc = known.pop("crc")
    assert crc == sealed(known)["crc"]
    assert set(known["files"]) == set(contents(finished)) - {"manifest.json", "checksums.json"}
    for name, value in known["files"].items():
        assert value == checksum(finished / name) == zlib.crc32((finished / name).read_bytes()), name


@pytest.mark.parametrize("compressed", [False, True])
def test_the_checksum_of_a_file_is_put_together_from_those_of_its_arrays(tmp_path: Path, compressed: bool) -> None:
    generator, path = np.random.default_rng(0), tmp_path / "some.npz"
    for sizes in ((), (0,), (3, 70_001), (100_000, 5, 65_537, 0, 200_000), (1_000_003, 65_536)):
        arrays = {f"a{n}": generator.integers(0, 256, size, np.uint8) for n, size in enumerate(sizes)}
        write_arrays(path, arrays, compressed=compressed)
        assert checksum_of_written(path) == checksum(path) == zlib.crc32(path.read_bytes())
    for one, other in generator.integers(0, 3000, (50, 2)).tolist():
        first, second = generator.bytes(one), generator.bytes(other)
        assert followed_by(zlib.crc32(first), zlib.crc32(second), other) == zlib.crc32(first + second)


@pytest.mark.parametrize("harm", HARM)
def test_damaged_results_are_refused_by_their_checksum(harm: str, finished: Path) -> None:
    for name in ("failures.npz", "executions.npz", "evidence.npz"):
        HARM[harm](finished / name)
        with pytest.raises(FairTestError, match=r"is damaged: its checksum is not the one in checksums\.json"):
            read_arrays(finished / name)
    with pytest.raises(FairTestError, match=r"failures\.npz' holds no failures that can be read: .* is damaged"):
        load_failures(finished / "failures.npz")


def test_no_flipped_bit_of_failures_npz_goes_unnoticed(finished: Path) -> None:
    path = finished / "failures.npz"
    whole = bytearray(path.read_bytes())
    for place in np.random.default_rng(0).choice(8 * len(whole), 200, replace=False).tolist():
        damaged = whole.copy()
        damaged[place // 8] ^= 1 << place % 8
        path.write_bytes(damaged)
        with pytest.raises(FairTestError, match="is damaged"):
            load_failures(path)


@pytest.mark.parametrize("compressed", [False, True])
def test_some_failures_are_read_without_the_others(compressed: bool, finished: Path) -> None:
    path, rows = finished / "failures.npz", [7, 2, 3, 4]
    whole = load_failures(path)
    if compressed:  # somebody made it smaller
        (finished / "checksums.json").unlink()
        np.savez_compressed(path, **read_arrays(path))
    some = FailureRows(path)
    assert len(some) == len(whole)
    assert_identical(some.take(rows), whole.take(rows))
    assert_identical(some.take(slice(None)), whole)
    assert not len(some.take([]))


def test_failures_that_were_cut_off_after_they_were_opened_are_damaged(finished: Path) -> None:
    path = finished / "failures.npz"
    some = FailureRows(path)
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(FairTestError, match="is damaged: it ends too early"):
        some.take([9])


def test_damaged_checksums_are_told(finished: Path) -> None:
    flip(finished / "checksums.json")
    with pytest.raises(FairTestError, match=r"checksums\.json' is damaged .*whether failures\.npz is whole"):
        load_failures(finished / "failures.npz")
    (finished / "checksums.json").unlink()
    assert len(load_failures(finished / "failures.npz")) == 10


# --- one process per run ------------------------------------------------------------------------------

HOLD = """
import sys, time
from pathlib import Path
from epymarl_fairtest.store.run import RunFolder
folder = RunFolder.resume(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(600)
"""


@pytest.fixture
def holder(folder: RunFolder) -> Iterator[subprocess.Popen[str]]:
    """Another process that has the run."""
    with folder:
        pass
    child = subprocess.Popen([sys.executable, "-c", HOLD, str(folder.path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "held\n"
    yield child
    child.kill()
    child.wait()
    child.stdout.close()


def test_a_run_that_another_process_is_writing_cannot_be_resumed_until_that_is_gone(
    folder: RunFolder, holder: subprocess.Popen[str]
) -> None:
    before = contents(folder.path)
    with pytest.raises(InUse, match=rf"is being written by process {holder.pid} on .*Wait until it ends"):
        RunFolder.resume(folder.path)
    assert contents(folder.path) == before
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with RunFolder.resume(folder.path) as run:
        assert run.failure_count() == 10


def test_the_command_tells_who_is_writing_a_run(
    folder: RunFolder, holder: subprocess.Popen[str], capsys: pytest.CaptureFixture[str]
) -> None:
    from epymarl_fairtest.commands import main

    assert main(["run", "--resume", str(folder.path)]) == 2
    assert f"is being written by process {holder.pid} on" in capsys.readouterr().err


def test_a_run_is_free_again_once_it_has_ended_however_it_ended(folder: RunFolder) -> None:
    with pytest.raises(InUse, match=f"process {os.getpid()} on"):
        RunFolder.resume(folder.path)
    with pytest.raises(KeyboardInterrupt), folder:
        raise KeyboardInterrupt
    with RunFolder.resume(folder.path):
        pass


def test_a_run_goes_on_where_there_are_no_locks(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(lock, "lock_descriptor", refuse)
    assert RunFolder.resume(folder.path).failure_count() == 10
    assert not is_held(folder.path / ".lock")


def test_looking_at_a_lock_makes_no_file_and_takes_it_from_nobody(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    assert not is_held(path)
    assert not path.exists()
    held = Lock(path)
    before = path.read_bytes()
    assert is_held(path)
    with pytest.raises(InUse):
        Lock(path)
    assert path.read_bytes() == before == f"{socket.gethostname()} {os.getpid()}\n".encode()
    held.release()
    assert not is_held(path)
    path.chmod(0o444)  # somebody else's run
    assert not is_held(path)
    assert path.read_bytes() == before


def test_whoever_only_looks_does_not_keep_others_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For an instant it holds the lock: whoever wants it, or looks as well, tries again."""
    path, looking = tmp_path / ".lock", Lock(tmp_path / ".lock")
    monkeypatch.setattr(lock.time, "sleep", lambda seconds: looking.release())
    assert not is_held(path)
    looking = Lock(path)
    Lock(path).release()


def test_a_lock_can_be_waited_for(tmp_path: Path) -> None:
    path, order = tmp_path / ".lock", []
    first = Lock(path)

    def second() -> None:
        Lock(path, wait=True).release()
        order.append("second")

    waiting = threading.Thread(target=second)
    waiting.start()
    time.sleep(0.2)
    order.append("first")
    first.release()
    waiting.join(timeout=60)
    assert order == ["first", "second"]


def test_a_finished_run_is_not_resumed_and_what_it_did_not_clear_away_is(finished: Path) -> None:
    whole = contents(finished)
    (finished / "parts").mkdir()
    (finished / "parts" / "00000.npz").write_bytes(b"joined long ago")
    (finished / ".lock").touch()
    with pytest.raises(FairTestError, match="is finished; there is nothing to resume"):
        RunFolder.resume(finished)
    assert contents(finished) == whole
    assert not (finished / "parts").exists()


def test_a_finished_run_with_damaged_failures_keeps_its_parts(finished: Path) -> None:
    (finished / "parts").mkdir()
    (finished / "parts" / "00000.npz").write_bytes(b"mine")
    flip(finished / "failures.npz")
    with pytest.raises(FairTestError, match="is finished"):
        RunFolder.resume(finished)
    assert (finished / "parts" / "00000.npz").read_bytes() == b"mine"


# --- folders of other versions ------------------------------------------------------------------------


def old_run(tmp_path: Path) -> Path:
    """A finished run of this format, made before steps, options and the column `random` were there."""
    return Path(shutil.copytree(TESTS / "fixtures" / "format-3", tmp_path / "format-3"))


def test_the_columns_of_an_earlier_run_are_what_the_docs_say(tmp_path: Path) -> None:
    run = old_run(tmp_path)
    columns = read_arrays(run / "failures.npz")
    assert set(columns) == COLUMNS
    manifest = json.loads((run / "manifest.json").read_text())
    assert (manifest["format"], manifest["settings"]["index"]) == (FORMAT, "gini")
    assert (columns["index"] <= manifest["theta"]).all()
    assert columns["jfi"].tolist() == jfi(totals(columns["rewards"])).tolist()
    assert len(load_failures(run / "failures.npz")) == 5


@pytest.mark.parametrize("number", [1, 2, FORMAT + 1])
@pytest.mark.parametrize("finished", [True, False])
def test_another_format_is_refused_in_one_sentence_and_nothing_is_changed(
    number: int, finished: bool, tmp_path: Path
) -> None:
    run = old_run(tmp_path)
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps({**manifest, "format": number}))
    if not finished:
        (run / "summary.json").unlink()
    before = contents(run)
    age = "a newer" if number > FORMAT else "an older"
    readers: list[Callable[[Path], object]] = [
        read_run,
        RunFolder.resume,
        lambda path: load_failures(path / "failures.npz"),
    ]
    for read in readers:
        with pytest.raises(FairTestError) as caught:
            read(run)
        assert str(caught.value) == (
            f"{str(run)!r} was written by {age} FairTest (format {number}; this one reads format {FORMAT}): read it"
            " with the version that manifest.json names, or run it again."
        )
    assert contents(run) == before


# --- Ctrl-C ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_waits_until_the_file_is_whole(number: signal.Signals, tmp_path: Path) -> None:
    def fill(file: Any) -> None:
        file.write(b"one")
        signal.raise_signal(number)
        file.write(b" two")

    with stoppable(), pytest.raises(Stopped) as caught:
        write_atomically(tmp_path / "a", fill)
    assert caught.value.number == number
    assert contents(tmp_path) == {"a": b"one two"}


def test_a_batch_that_was_executed_is_kept_whole_before_the_run_stops(
    folder: RunFolder, batches: list[Judged], monkeypatch: pytest.MonkeyPatch
) -> None:
    from epymarl_fairtest.store import run as module

    write = module.write_arrays

    def interrupted(*args: Any, **kwargs: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        write(*args, **kwargs)

    monkeypatch.setattr(module, "write_arrays", interrupted)
    with pytest.raises(KeyboardInterrupt):
        folder.save_batch(3, "execution", batches[0])
    assert read_journal(folder.path / "journal.jsonl")[0].keys() == {0, 1, 2, 3}
    assert Resumed(folder).folder.failure_count() == 15


def test_a_signal_that_a_library_swallows_stops_the_run_after_the_batch(tmp_path: Path) -> None:
    from epymarl_fairtest.campaign.run import run
    from epymarl_fairtest.strategies import configure
    from epymarl_fairtest.team.saved import saved_team

    class Deaf(RunFolder):
        def load_batch(self, number: int) -> Episodes | None:
            if number == 1:
                with contextlib.suppress(KeyboardInterrupt):
                    signal.raise_signal(signal.SIGTERM)
            return super().load_batch(number)

    folder = Deaf(tmp_path / "run")
    team = saved_team(policy_folder(tmp_path / "team", time_limit=5), "env")
    given = configure({"method": "random", "budget": 100, "batch": 10, "engine": "twin", "report": False})
    before = signal.getsignal(signal.SIGTERM)
    with stoppable(), pytest.raises(Stopped):
        run(team, given, folder, seed=1, command="", warn=print)
    assert folder.episode_count() == 20
    assert signal.getsignal(signal.SIGTERM) == before


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # nohup
    try:
        with stoppable():
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


# --- the run dies -------------------------------------------------------------------------------------


def announced(run: Path) -> list[dict[str, Any]]:
    """Journal lines that are whole; a torn tail is what a kill may leave."""
    lines = (run / "journal.jsonl").read_bytes().split(b"\n")[:-1] if (run / "journal.jsonl").exists() else []
    return [json.loads(line) for line in lines]


def saved_failures(run: Path, number: int) -> int:
    part = run / "parts" / f"{number:05d}.npz"
    if not part.exists():
        return 0
    with np.load(part, allow_pickle=False) as file:
        assert set(file.files) == COLUMNS - {"status"}  # a part is written before anything is replayed
        return len(file["id"])


def endless(team: Path, run: Path, engine: str = "twin") -> list[str]:
    """A run that calls every episode unfair and has far too much to do."""
    options = ["--method", "random", "--budget", "1000000", "--set", "batch=10", "--set", "theta=1.0"]
    options += ["--set", f"engine={engine}"]
    return [*FAIRTEST, "run", "--policy", str(team), "--out", str(run), *options]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.slow
def test_a_stopped_run_says_what_it_found_and_how_to_resume_it(number: signal.Signals, tmp_path: Path) -> None:
    run = tmp_path / "my run"
    child = subprocess.Popen(endless(policy_folder(tmp_path / "team"), run), stderr=subprocess.PIPE, text=True)
    try:
        while len(announced(run)) < 4:
            assert child.poll() is None, "it ended by itself"
            time.sleep(0.005)
        child.send_signal(number)
        _, said = child.communicate(timeout=60)
    finally:
        child.kill()
        child.wait()
    assert child.returncode == 128 + number
    assert "Traceback" not in said
    entries, damaged = read_journal(run / "journal.jsonl")
    assert not damaged
    assert not list(run.rglob("*.tmp"))
    failures = sum(entry["failures"] for entry in entries.values())
    told = re.search(r"Stopped\. (\d+) unfair episodes are kept, of (\d+) that were executed \(budget 1000000\)", said)
    assert told is not None, said
    assert [int(count) for count in told.groups()] == [failures, 10 * len(entries)]
    assert said.splitlines()[-1].split(maxsplit=3) == ["fairtest", "run", "--resume", shlex.quote(str(run))]
    with RunFolder.resume(run) as resumed:
        assert resumed.failure_count() == failures


def test_a_run_that_is_stopped_before_it_began_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from epymarl_fairtest.campaign import run as runs
    from epymarl_fairtest.commands import main

    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(runs, "make_engine", stop)
    words = endless(policy_folder(tmp_path / "team"), tmp_path / "run")[len(FAIRTEST) :]
    assert main(words) == 130
    assert "Stopped before anything was executed." in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@contextlib.contextmanager
def largest_file(size: int) -> Iterator[None]:
    """No file of this process may have more bytes: a real OSError where the disk would be full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize(("limit", "file"), [(90_000, "batches/00000.npz"), (150, "manifest.json")])
def test_a_full_disk_is_one_message_that_names_the_file(
    limit: int, file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from epymarl_fairtest.commands import main

    run = tmp_path / "run"
    words = endless(policy_folder(tmp_path / "team", agent="gru"), run, engine="lockstep")[len(FAIRTEST) :]
    with largest_file(limit):
        assert main(words) == 2
    said = capsys.readouterr().err
    assert said.startswith("fairtest: ")
    assert f"cannot write '{run / file}': File too large" in said
    assert "Traceback" not in said
    assert not list(run.rglob("*.tmp"))
    assert "Free some space" in said
    if file == "manifest.json":
        assert not run.exists()
    else:
        assert saved_failures(run, 0) == 10, "what was found before is kept"
        assert f"resume with: fairtest run --resume {run}" in said


def test_a_journal_that_cannot_grow_is_one_message(folder: RunFolder, batches: list[Judged]) -> None:
    size = (folder.path / "journal.jsonl").stat().st_size
    with open(folder.path / "journal.jsonl", "ab") as journal:
        journal.write(b" " * (6_000 - size) + b"\n")
    none = batches[0].take(np.zeros(10, bool))  # its part and batch are small: only the journal reaches the limit
    with largest_file(max(size + 10, 6_000)), pytest.raises(FairTestError, match=r"cannot write .*journal\.jsonl'"):
        folder.save_batch(3, "execution", none)
