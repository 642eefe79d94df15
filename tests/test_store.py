"""The run folder: whole files or none, nothing overwritten, and no failure lost whenever the run dies."""

from __future__ import annotations

import csv
import json
import os
import resource
import signal
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import FAIRTEST, LIMITED, engine_of, policy_folder, some_tests

from epymarl_fairtest.episode import OPERATORS, Episodes
from epymarl_fairtest.errors import FairTestError
from epymarl_fairtest.fairness import jfi, totals
from epymarl_fairtest.store.run import RunFolder
from epymarl_fairtest.store.write import write_atomically, write_json

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


def test_a_missing_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(FairTestError, match="No such file or directory"):
        write_atomically(tmp_path / "nowhere" / "a", lambda file: file.write(b"x"))


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
    assert (tmp_path / "used" / "manifest.json").is_file()


@pytest.fixture(scope="module")
def batches() -> list[tuple[Episodes, Any, Any]]:
    """Judged batches; in the second nobody failed."""
    out = []
    for number in range(3):
        episodes = engine_of("tag").execute(some_tests("tag", 10, seed=number))
        episodes.id = np.arange(10) + 10 * number
        index = jfi(totals(episodes.rewards))
        failing = index <= (np.median(index) if number != 1 else -1)
        out.append((episodes, index, failing))
    return out


@pytest.fixture
def folder(batches: list[tuple[Episodes, Any, Any]], tmp_path: Path) -> RunFolder:
    run = RunFolder(tmp_path / "run")
    run.write_manifest({"task": "tag"})
    for number, (episodes, index, failing) in enumerate(batches):
        run.save_batch(number, "execution", episodes, index, failing)
    return run


def test_every_journal_line_carries_the_right_checksum(folder: RunFolder) -> None:
    lines = (folder.path / "journal.jsonl").read_bytes().splitlines()
    assert len(lines) == 3
    for number, text in enumerate(lines):
        entry = json.loads(text)
        crc = entry.pop("crc")
        assert crc == zlib.crc32(json.dumps(entry, sort_keys=True).encode())
        assert entry["batch"] == number
        assert (entry["episodes"], entry["steps"], entry["purpose"]) == (10, 500, "execution")
    assert [json.loads(text)["failures"] for text in lines] == [5, 0, 5]


def test_failures_are_on_disk_before_the_run_is_finished(folder: RunFolder, batches: list[Any]) -> None:
    parts = sorted((folder.path / "parts").glob("*.npz"))
    assert [part.name for part in parts] == ["00000.npz", "00002.npz"]
    with np.load(parts[0], allow_pickle=False) as file:
        assert file["id"].tolist() == batches[0][0].id[batches[0][2]].tolist()


def test_failures_npz_holds_every_failure_with_every_column(folder: RunFolder, batches: list[Any]) -> None:
    folder.join_failures(np.full(folder.failure_count(), "unchecked"))
    folder.finish({"failures": 10})
    with np.load(folder.path / "failures.npz", allow_pickle=False) as file:
        failures = {name: file[name] for name in file.files}
    assert set(failures) == COLUMNS
    expected = Episodes.concatenate([episodes.take(failing) for episodes, _, failing in batches])
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
    folder.join_failures(np.full(folder.failure_count(), "unchecked"))
    folder.finish({})
    with open(folder.path / "failures.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    with np.load(folder.path / "failures.npz", allow_pickle=False) as file:
        for name in ("id", "root_seed", "parent", "start_step", "stream", "shift", "length"):
            assert [int(row[name]) for row in rows] == file[name].tolist()
        assert [float(row["jfi"]) for row in rows] == file["jfi"].tolist()
        assert [row["operator"] for row in rows] == file["operator"].tolist()


def test_a_finished_folder_holds_the_results_and_nothing_else(folder: RunFolder) -> None:
    folder.join_failures(np.full(folder.failure_count(), "unchecked"))
    folder.finish({"failures": 10})
    assert set(contents(folder.path)) == {
        "manifest.json",
        "journal.jsonl",
        "failures.npz",
        "failures.csv",
        "summary.json",
    }
    assert json.loads((folder.path / "summary.json").read_text()) == {"failures": 10}
    assert not [path for path in folder.path.iterdir() if path.is_dir()]


def test_a_run_without_failures_is_complete_too(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    run.join_failures(np.full(0, "unchecked"))
    run.finish({})
    with np.load(run.path / "failures.npz", allow_pickle=False) as file:
        assert file.files == []
    assert (run.path / "failures.csv").read_text().count("\n") == 1


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


def endless(team: Path, run: Path) -> list[str]:
    """A run that calls every episode unfair and has far too much to do."""
    options = ["--method", "random", "--budget", "1000000", "--set", "batch=10", "--set", "theta=1.0"]
    return [*FAIRTEST, "run", "--policy", str(team), "--out", str(run), *options]


def test_no_failure_is_lost_when_the_run_is_killed(tmp_path: Path) -> None:
    run = tmp_path / "run"
    child = subprocess.Popen(endless(policy_folder(tmp_path / "team"), run), stdout=subprocess.DEVNULL)
    try:
        while len(announced(run)) < 4:
            assert child.poll() is None, "it ended by itself"
            time.sleep(0.005)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    entries = announced(run)
    assert sum(entry["failures"] for entry in entries) >= 40
    for entry in entries:
        crc = entry.pop("crc")
        assert crc == zlib.crc32(json.dumps(entry, sort_keys=True).encode())
        assert saved_failures(run, entry["batch"]) == entry["failures"] == 10
        assert (run / "batches" / f"{entry['batch']:05d}.npz").is_file()
    assert json.loads((run / "manifest.json").read_text())["task"] == "spread"
    assert not (run / "summary.json").exists()


@pytest.mark.parametrize(("limit", "file"), [(90_000, "batches/00000.npz"), (150, "manifest.json")])
def test_a_full_disk_is_one_message_that_names_the_file(limit: int, file: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = endless(policy_folder(tmp_path / "team"), run)
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(limit), *command],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.returncode == 2
    assert done.stderr.startswith("fairtest: ")
    assert f"cannot write '{run / file}': File too large" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(run.rglob("*.tmp"))
    if file != "manifest.json":
        assert saved_failures(run, 0) == 10, "what was found before is kept"


def test_a_journal_that_cannot_grow_is_one_message(folder: RunFolder, batches: list[Any]) -> None:
    episodes, index, failing = batches[0]
    size = (folder.path / "journal.jsonl").stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def save() -> None:
        """The parts and batches of no episodes are small: only the journal reaches the limit."""
        none = episodes.take(np.zeros(10, bool))
        resource.setrlimit(resource.RLIMIT_FSIZE, (max(size + 10, 6_000), hard))
        folder.save_batch(3, "execution", none, index[:0], failing[:0])

    padding = b" " * (6_000 - size) + b"\n"
    with open(folder.path / "journal.jsonl", "ab") as journal:
        journal.write(padding)
    try:
        with pytest.raises(FairTestError, match=r"cannot write .*journal\.jsonl'"):
            save()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
