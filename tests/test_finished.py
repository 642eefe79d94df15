"""A finished run, read back: every command says the same about the same run, whichever version wrote it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from epymarl_fairtest.commands import main
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.store.checksum import sealed
from epymarl_fairtest.store.finished import OPTIONAL, WHY_ABSENT, read_run

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
    elif kind == "older":
        manifest = json.loads((run / "manifest.json").read_text()) | {"format": 2}
        del manifest["crc"]
        (run / "manifest.json").write_text(json.dumps(manifest))
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
    "no run": "is not a run: it holds no manifest.json. Name a run's own folder.",
    "unfinished": "is not finished: it holds no summary.json. Resume it first: fairtest run --resume '",
    "older": "was written by an older FairTest (format 2; this one reads format 3): read it with the version that",
    "of the future": "was written by a newer FairTest (format 99; this one reads format 3): read it with the version",
    "study of the predictor": "is not a search: a study of the predictor (rq3a) judges no team.",
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


# --- a run that was made before steps, options and the column `random` were there ----------------------

TEAM = Path(__file__).parent / "golden" / "team"
WORST = {  # failure -> its index
    66: 0.348481807762385, 24: 0.36695499618297966, 56: 0.4532186380907761, 25: 0.4830463862605815,
    59: 0.48491898698514135,
}  # fmt: skip
RECEIVED = [-7.834154436889465, -7.282526552429119, -7.5558465164516395]  # by each agent, on average at random


def test_an_earlier_run_is_read_with_the_names_of_today(run: Path) -> None:
    """Its executions do not say which were random, and its settings are flat."""
    before = json.loads((run / "summary.json").read_text())
    with np.load(run / "executions.npz") as file:
        assert "random" not in file.files
        purposes = file["purpose"]
    found = read_run(run, *OPTIONAL)
    assert found.settings["index"] == "gini"
    assert len(found.failures["id"]) == found.summary["failures"] == 5
    assert (found.failures["index"] <= found.theta).all()
    assert found.failures["received"].shape == (5, 3)
    assert found.missing == {}
    assert found.evidence
    assert found.random.tolist() == np.isin(purposes, ("predictor", "candidate")).tolist()
    rate = found.natural_rate()
    assert rate is not None
    assert (rate.count, rate.executions) == (5, 90)
    assert found.summary == before


def test_what_an_earlier_run_calls_confirmation_are_splices(run: Path) -> None:
    """Crossover offspring that were executed; this run has none, so its mutants stand for them."""
    (run / "checksums.json").unlink()
    summary = json.loads((run / "summary.json").read_text())
    ledger = {"confirmation" if name == "mutant" else name: spent for name, spent in summary["ledger"].items()}
    (run / "summary.json").write_text(json.dumps(summary | {"ledger": ledger}))
    with np.load(run / "executions.npz") as file:
        columns = {name: file[name] for name in file.files}
    mutants = columns["purpose"] == "mutant"
    columns["purpose"] = np.where(mutants, "confirmation", columns["purpose"])
    np.savez(run / "executions.npz", **columns)
    found = read_run(run)
    assert (found.executions["purpose"] == "splice").tolist() == mutants.tolist()
    assert mutants.sum() == found.summary["ledger"]["splice"]["episodes"] == 20
    assert "confirmation" not in found.summary["ledger"]
    assert not found.random[mutants].any()


def test_every_command_works_on_an_earlier_run_as_it_did(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The numbers are those that the version before gave."""
    monkeypatch.chdir(run.parent)
    shutil.copytree(run, "b")

    def answer(*words: str, code: int = 0) -> Any:
        assert main([*words, "--json"]) == code
        return json.loads(capsys.readouterr().out)

    replayed = answer("replay", str(run), "--policy", str(TEAM))
    assert replayed["agree"]
    for name in ("index", "index_now"):
        assert [(one["id"], one[name]) for one in replayed["replays"]] == list(WORST.items())
    exported = answer("export", str(run), "--policy", str(TEAM), "--pytest", "test_it.py")
    assert exported["same_team"]
    assert [(one["failure"], one["index"]) for one in exported["failures"]] == list(WORST.items())
    assert all(one["unfair"] for one in exported["failures"])
    (rate,) = answer("gate", str(run), "--max-rate", "0.05", code=1)["criteria"]
    assert (rate["value"], rate["passed"]) == (5 / 90, False)
    assert rate["words"].startswith("0.0556 [0.0183, 0.1249] of 90 random executions, at most 0.05")
    compared = answer("compare", str(run), "b")
    assert compared["warnings"] == ["both runs tested the same weights: any difference is chance."]
    assert compared["difference"] == {"estimate": 0, "low": -0.07496495028573123, "high": 0.07496495028573123}
    assert (compared["a"]["received"], compared["a"]["worst_off"]["agent"]) == (RECEIVED, None)
    assert answer("runs", str(run))[0]["state"] == "finished"
    assert main(["report", str(run)]) == 0
    page = (run / "report" / "index.html").read_text()
    assert "5 of 90 random executions were unfair" in page


@pytest.mark.parametrize("name", OPTIONAL)
def test_a_file_that_was_taken_away_is_told_and_missed_only_by_who_needs_it(name: str, run: Path) -> None:
    (run / name).unlink()
    others = [other for other in OPTIONAL if other != name]
    assert read_run(run, *others).missing == {name: f"{name} is not in the run folder: {WHY_ABSENT}"}
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
        found.needed_rate()
    assert found.natural_rate() is None


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


WITHOUT = """
import json, os, sys
import numba, scipy.stats, sklearn.ensemble, torch  # once, before the forks
from epymarl_fairtest.commands import main

for module, words, said in json.loads(sys.argv[1]):
    if not os.fork():
        os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT), 2)
        sys.modules[module] = None
        print(main(words), file=sys.stderr, flush=True)
        os._exit(0)
    os.wait()
"""
DRAWN = {  # what is drawn -> the library that is not there, the words, what is said
    "films": ("PIL", ["report", "RUN"], "fairtest report needs pillow", "pip install pillow"),
    "figure": ("matplotlib", ["compare", "RUN", "RUN/../b", "--figure", "RUN/../it.png"],
               "--figure needs matplotlib", "pip install matplotlib"),
    "gif": ("PIL", ["replay", "RUN", "--gif"], "--gif needs pillow", "pip install pillow"),
    "still": ("PIL", ["replay", "RUN", "--png"], "--png needs pillow", "pip install pillow"),
}  # fmt: skip


@pytest.mark.slow
def test_a_library_that_is_not_installed_is_named_with_the_command_that_installs_it(run: Path) -> None:
    """In processes of their own: here the libraries are loaded already."""
    shutil.copytree(run, run.parent / "b")
    cases = [
        (module, [word.replace("RUN", str(run)) for word in words], str(run.parent / f"{kind}.txt"))
        for kind, (module, words, *_) in DRAWN.items()
    ]
    subprocess.run([sys.executable, "-W", "ignore", "-c", WITHOUT, json.dumps(cases)], check=True)
    for kind, (_, _, *parts) in DRAWN.items():
        *said, code = (run.parent / f"{kind}.txt").read_text().splitlines()
        assert code == "2", said
        assert not any("Traceback" in line for line in said)
        for part in parts:
            assert part in " ".join(said)
    assert not (run / "report").exists()
