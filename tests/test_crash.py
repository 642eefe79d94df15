"""Runs that are killed lose nothing. A few kills; `python -m benchmarks.crash` makes hundreds."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import TESTS, child_environment

from benchmarks.crash import differences, lost, write_records

WHOLE = TESTS / "fixtures" / "format-3"


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, int]]]:
    """In a process of its own: it forks, which a process with threads should not do."""
    words = ["--kills", "5", "--every", "9", "--records", "20", "--cases", "random, spread", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.crash", *words],
        capture_output=True,
        text=True,
        cwd=TESTS.parent,
        env=child_environment(tmp_path_factory.mktemp("crash"), OMP_NUM_THREADS="1"),
    )
    assert done.returncode == 0, done.stderr + done.stdout
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.crash
def test_runs_killed_at_random_moments_end_as_if_nothing_had_happened(measured: Any) -> None:
    (row,) = measured["killed at random moments"]
    assert row["kills"] >= 5
    assert row["announced"] >= row["failures"] > 0
    assert (row["lost"], row["differing"]) == (0, 0)


@pytest.mark.crash
def test_runs_killed_before_calls_that_change_the_disk_end_as_if_nothing_had_happened(measured: Any) -> None:
    (row,) = measured["killed before each call that changes the disk"]
    assert row["kills"] >= 9
    assert min(row[moment] for moment in ("before", "searching", "joining", "clearing")) >= 1
    assert (row["lost"], row["differing"]) == (0, 0)


@pytest.mark.crash
def test_a_journal_cut_at_any_byte_loses_no_earlier_record_and_takes_the_next(measured: Any) -> None:
    (row,) = measured["last record of the journal cut at every byte"]
    assert row["offsets"] > 100
    assert row["lost"] == 0


@pytest.mark.crash
def test_ten_writers_under_one_folder_lose_no_record(measured: Any) -> None:
    (row,) = measured["writers of runs under one folder"]
    assert row == {"writers": 10, "records": 200, "lost": 0, "failed": 0}


# --- would it be noticed? ---


def test_a_missing_failure_is_noticed(tmp_path: Path) -> None:
    run = tmp_path / "run"
    write_records(run, 3, seed=1)
    told = {}
    for path in (run / "parts").iterdir():
        with np.load(path) as file:
            told[int(file["id"][0])] = zlib.crc32(file["states"][0].tobytes())
    assert sorted(told) == [0, 2, 4]
    assert lost(run, told) == []
    assert lost(run, {**told, 2: told[0]}) == [2]
    (run / "parts" / "00001.npz").unlink()
    assert lost(run, told) == [2]


@pytest.mark.parametrize("name", ["failures.npz", "failures.csv", "executions.npz", "evidence.npz", "journal.jsonl"])
def test_a_difference_is_noticed(name: str, tmp_path: Path) -> None:
    other = Path(shutil.copytree(WHOLE, tmp_path / "run"))
    assert differences(WHOLE, other) == []
    (other / name).write_bytes((other / name).read_bytes() + b"\n")
    assert differences(WHOLE, other) == [name]


def test_another_summary_and_a_left_over_file_are_noticed(tmp_path: Path) -> None:
    other = Path(shutil.copytree(WHOLE, tmp_path / "run"))
    summary = json.loads((other / "summary.json").read_text())
    (other / "summary.json").write_text(json.dumps({**summary, "wall_seconds": 0}))
    assert differences(WHOLE, other) == []
    (other / "summary.json").write_text(json.dumps({**summary, "failures": 4}))
    (other / ".lock").touch()
    assert differences(WHOLE, other) == ["summary.json", ".lock"]
