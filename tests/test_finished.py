"""A finished run, read back: every command says the same about the same run, whichever version wrote it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from epymarl_fairtest.commands import main
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.store.checksum import sealed
from epymarl_fairtest.store.finished import ABSENT, read_run

FIXTURES = Path(__file__).parent / "fixtures"
COMMANDS = {
    "report": ["report", "RUN"],
    "replay": ["replay", "RUN"],
    "gate": ["gate", "RUN", "--max-failures", "1000000"],
    "compare": ["compare", "RUN", str(FIXTURES / "format-3")],
    "export": ["export", "RUN", "--pytest", "test_it.py"],
}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FIXTURES / "format-3", tmp_path / "a run"))


def said(command: str, run: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code = main([str(run) if word == "RUN" else word for word in COMMANDS[command]])
    return code, capsys.readouterr().err


def harmed(kind: str, run: Path) -> None:
    if kind == "nothing":
        shutil.rmtree(run)
    elif kind == "a file":
        shutil.rmtree(run)
        run.write_text("mine")
    elif kind == "no run":
        (run / "manifest.json").unlink()
    elif kind == "unfinished":
        (run / "summary.json").unlink()
    elif kind == "unfinished, older":
        manifest = json.loads((run / "manifest.json").read_text()) | {"format": 2}
        del manifest["crc"]
        (run / "manifest.json").write_text(json.dumps(manifest))
        (run / "summary.json").unlink()
    elif kind == "of the future":
        (run / "manifest.json").write_text('{"format": 99}')
    elif kind == "study of the predictor":
        (run / "checksums.json").unlink()
        (run / "summary.json").write_text('{"method": "predictor"}')
    else:
        content = bytearray((run / kind).read_bytes())
        content[len(content) // 2] ^= 1
        (run / kind).write_bytes(content)


REFUSED = {
    "nothing": "There is no folder '",
    "a file": "a run' is a file. Name the folder of a run",
    "no run": "is no FairTest run: it holds no manifest.json. Name a run's own folder.",
    "unfinished": "is not finished: it holds no summary.json. Go on with it first: fairtest run --resume '",
    "unfinished, older": "is not finished: it holds no summary.json. It was begun by an older FairTest: make it again",
    "of the future": "was written by a newer FairTest (format 99; this one reads up to 3).",
    "study of the predictor": "is no search: a study of the predictor (rq3a) judges no team.",
    "manifest.json": "manifest.json' is damaged: ",
    "summary.json": "summary.json' is damaged: its checksum is not the one in checksums.json.",
    "executions.npz": "executions.npz' is damaged: its checksum is not the one in checksums.json.",
    "checksums.json": "checksums.json' is damaged (",
}


@pytest.mark.parametrize("kind", REFUSED)
def test_every_command_refuses_such_a_run_with_the_same_words(
    kind: str, run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run.parent)
    harmed(kind, run)
    answers = {said(command, run, capsys) for command in COMMANDS}
    ((code, told),) = answers
    assert code == 2
    assert REFUSED[kind] in told
    assert told.count("\n") == 1
    assert [path.name for path in run.parent.iterdir()] == ([] if kind == "nothing" else [run.name])


@pytest.mark.parametrize("number", [1, 2, 3])
def test_runs_of_every_format_can_be_read_and_what_they_lack_is_told(number: int) -> None:
    path = FIXTURES / f"format-{number}"
    found = read_run(path)
    assert found.settings["index"] == "gini"
    assert len(found.failures["id"]) == found.summary["failures"] > 0
    assert (found.failures["index"] <= found.theta).all()
    assert found.failures["received"].ndim == 2
    assert set(found.missing) == ({"executions.npz", "evidence.npz"} if number < 3 else set())
    assert found.random.any() == bool(found.evidence) == (number == 3)
    if number < 3:
        with pytest.raises(FairTestError, match=r"executions\.npz' is missing: the run is of an older FairTest"):
            read_run(path, "failures.npz", "executions.npz")


@pytest.mark.parametrize("name", ABSENT)
def test_a_file_that_was_taken_away_is_told_and_missed_only_by_who_needs_it(name: str, run: Path) -> None:
    (run / name).unlink()
    others = [other for other in ABSENT if other != name]
    assert read_run(run, *others).missing == {name: f"{name} is not in the run folder: {ABSENT[name]}"}
    with pytest.raises(FairTestError, match=f"{name}' is missing"):
        read_run(run, name)


def test_a_run_that_judged_nothing_has_no_rows_and_no_rate(run: Path) -> None:
    (run / "checksums.json").unlink()
    summary = json.loads((run / "summary.json").read_text())
    counts = dict.fromkeys(("evaluated", "failures", "distinct_failures", "roots", "undefined"), 0)
    (run / "summary.json").write_text(json.dumps(summary | counts))
    np.savez(run / "executions.npz")
    found = read_run(run, "executions.npz")
    assert (len(found.executions["id"]), found.missing) == (0, {"executions.npz": "no episode was judged"})
    with pytest.raises(FairTestError, match="holds no random executions"):
        found.natural()


def test_columns_that_are_no_failures_are_refused(run: Path) -> None:
    (run / "checksums.json").unlink()
    with np.load(run / "failures.npz") as file:
        columns = {name: file[name] for name in file.files}
    for change in ({"index": columns["index"][1:]}, {"rewards": columns["index"]}, {"id": np.array(3)}):
        np.savez(run / "failures.npz", **{**columns, **change})
        with pytest.raises(FairTestError, match=r"failures\.npz' is damaged: its columns"):
            assert read_run(run).failures


def test_a_manifest_is_checked_by_its_own_checksum(run: Path) -> None:
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps(manifest | {"seed": 12345}))
    with pytest.raises(FairTestError, match="wrong checksum"):
        read_run(run)
    del manifest["crc"]
    (run / "manifest.json").write_text(json.dumps(sealed(manifest | {"seed": 12345})))
    assert read_run(run).manifest["seed"] == 12345


WITHOUT = (
    "import sys; sys.modules[{module!r}] = None; from epymarl_fairtest.commands import main; sys.exit(main({words!r}))"
)
DRAWN = {  # what is drawn -> the library that is not there, the words, what is said
    "report": ("matplotlib", ["report", "RUN"], "fairtest report needs matplotlib", "pip install matplotlib"),
    "films": ("PIL", ["report", "RUN"], "fairtest report needs pillow", "pip install pillow"),
    "figure": ("matplotlib", ["compare", "RUN", "RUN/../b", "--figure", "RUN/../it.png"],
               "--figure needs matplotlib", "pip install matplotlib"),
    "gif": ("PIL", ["replay", "RUN", "--gif"], "--gif needs pillow", "pip install pillow"),
    "still": ("PIL", ["replay", "RUN", "--png"], "--png needs pillow", "pip install pillow"),
}  # fmt: skip


@pytest.mark.parametrize("kind", DRAWN)
def test_a_library_that_is_not_installed_is_named_with_the_command_that_installs_it(kind: str, run: Path) -> None:
    """In a process of its own: here the library is loaded already."""
    module, words, *parts = DRAWN[kind]
    shutil.copytree(run, run.parent / "b")
    program = WITHOUT.format(module=module, words=[word.replace("RUN", str(run)) for word in words])
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    for part in parts:
        assert part in done.stderr
    assert not (run / "report").exists()
