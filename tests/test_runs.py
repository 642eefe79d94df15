"""`fairtest runs`: every run below a folder once, newest first, damaged ones with the reason and no traceback."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from epymarl_fairtest.commands import main
from epymarl_fairtest.commands.runs import DEPTH, listed, table, team_of
from epymarl_fairtest.core.numbers import with_interval
from epymarl_fairtest.core.shipped import shipped
from epymarl_fairtest.store.run import RunFolder
from epymarl_fairtest.study.jobs import Job, run_job

POLICY = shipped("policies") / "mpe-qmix"
WORK = ["--method", "random", "--budget", "90", "--set", "batch=30", "--set", "theta=0.9"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, and one that was stopped while its third batch was being saved."""
    root = tmp_path_factory.mktemp("made")
    assert main(["run", "--policy", str(POLICY), *WORK, "--out", str(root / "finished"), "--seed", "3"]) == 0
    save = RunFolder.save_batch

    def stopping(self: RunFolder, number: int, *rest: Any) -> None:
        if number == 2:
            raise KeyboardInterrupt
        save(self, number, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunFolder, "save_batch", stopping)
        assert main(["run", "--policy", str(POLICY), *WORK, "--out", str(root / "stopped")]) != 0
    return root


@pytest.fixture
def place(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "place")
    return tmp_path / "place"


def states(*folders: Path) -> dict[str, str]:
    return {Path(run.path).name: run.state for run in listed(folders)}


def told(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert main(["runs", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


# --- what is told -------------------------------------------------------------------------------------


def test_a_finished_run_has_its_numbers(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run,) = told(capsys, str(place / "finished"))
    summary = json.loads((place / "finished" / "summary.json").read_text())
    with np.load(place / "finished" / "executions.npz") as file:
        failures = int((file["index"] <= 0.9).sum())
    assert (run["state"], run["path"], run["task"]) == ("finished", str(place / "finished"), "spread")
    assert (run["method"], run["seed"], run["budget"], run["evaluated"]) == ("random", 3, 90, 90)
    assert run["failures"] == failures > 0
    for name in ("distinct_failures", "roots", "coverage", "undefined", "theta"):
        assert run[name] == summary[name]
    assert (run["reason"], run["batches"], run["algorithm"]) == (None, None, "qmix")


def test_the_table_has_a_line_per_run(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    summary = json.loads((place / "finished" / "summary.json").read_text())
    assert main(["runs", str(place)]) == 0
    lines = capsys.readouterr().out.splitlines()
    (line,) = (line for line in lines if line.endswith(str(place / "finished")))
    cells = line.split()[2:]
    numbers = [str(summary[name]) for name in ("evaluated", "failures", "distinct_failures", "roots")]
    rate = with_interval(*(summary["natural_rate"][part] for part in ("rate", "low", "high")))
    assert " ".join(cells) == " ".join(
        ["finished", "mpe-qmix", "qmix", rate, "spread", "random", "3", *numbers, str(place / "finished")]
    )


def test_an_interrupted_run_says_how_to_resume_it_and_can_be(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = place / "stopped"
    (run,) = told(capsys, str(path))
    assert (run["state"], run["batches"], run["failures"], run["budget"]) == ("interrupted", 2, None, 90)
    assert main(["runs", str(place)]) == 0
    assert (
        f"{path}: interrupted after 2 batches; resume it with: fairtest run --resume {path}" in capsys.readouterr().out
    )
    assert main(["run", "--resume", str(path)]) == 0
    (run,) = told(capsys, str(path))
    assert (run["state"], run["evaluated"]) == ("finished", 90)


def test_a_run_that_is_being_written_is_not_called_interrupted(place: Path) -> None:
    with RunFolder.resume(place / "stopped"):
        assert states(place) == {"finished": "finished", "stopped": "running"}
    assert states(place) == {"finished": "finished", "stopped": "interrupted"}


def test_the_newest_comes_first(place: Path) -> None:
    for number in range(3):
        copy = Path(shutil.copytree(place / "finished", place / f"copy{number}"))
        os.utime(copy / "summary.json", (2_000_000_000 + (number * 2) % 3, 2_000_000_000 + (number * 2) % 3))
    names = [Path(run.path).name for run in listed([place])]
    assert names[:3] == ["copy1", "copy2", "copy0"]
    assert sorted(names[3:]) == ["finished", "stopped"]


# --- where it looks -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_jobs_of_studies_are_found_and_a_study_of_the_predictor_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from epymarl_fairtest.strategies import configure
    from epymarl_fairtest.team.checkpoint import digest, load_weights

    (tmp_path / "study.json").write_text("{}")
    for study, variant, method in (("rq1", "random", "random"), ("rq3a", "with", "fairtest")):
        given = configure({"method": method, "budget": 60, "predictor_episodes": 60, "workers": 1}).as_dict()
        weights = digest(load_weights(POLICY / "agent.th"))
        done = run_job(Job(study, tmp_path, POLICY, "mpe", variant, 0, given, weights, "test", False))
        assert "error" not in done, done
    found = {Path(run["path"]).parent.name: run for run in told(capsys, str(tmp_path))}
    assert (found["random"]["state"], found["random"]["evaluated"]) == ("finished", 60)
    assert (found["with"]["state"], found["with"]["method"], found["with"]["failures"]) == (
        "finished",
        "predictor",
        None,
    )
    assert main(["runs", str(tmp_path)]) == 0


def test_without_a_folder_the_usual_places_are_looked_at_and_each_run_is_listed_once(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    places = ("results/fairtest/one", "runs/two", "three", "a/b/four")
    for name in places:
        shutil.copytree(made / "finished", tmp_path / name)
    monkeypatch.chdir(tmp_path)
    assert sorted(run["path"] for run in told(capsys)) == sorted(places)
    assert len(told(capsys, "results", ".", "results/fairtest")) == 4


def test_hidden_environments_and_deep_places_are_passed_by(made: Path, tmp_path: Path) -> None:
    shown = Path(*"abcdefghij"[:DEPTH])
    for name in (shown, ".git/x", "node_modules/x", "venv/x", Path(*"qrstuvwxyz"[:DEPTH], "deeper")):
        shutil.copytree(made / "finished", tmp_path / name)
    (tmp_path / "venv" / "pyvenv.cfg").write_text("")
    assert [Path(run.path) for run in listed([tmp_path])] == [tmp_path / shown]


def test_the_run_of_a_training_in_a_folder_below_is_listed(made: Path, tmp_path: Path) -> None:
    run = tmp_path / "build" / "demo" / "results" / "sacred" / "qmix" / "key" / "1" / "fairtest"
    shutil.copytree(made / "finished", run)
    assert [Path(found.path) for found in listed([tmp_path])] == [run]


def test_a_seed_is_shown_as_it_is_typed(place: Path) -> None:
    run = replace(listed([place / "finished"])[0], seed=255935481, evaluated=12000)
    assert "  255935481  12,000  " in table([run]).splitlines()[1]


def test_what_would_break_a_line_is_spelled_out(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = place / "a\nb\x1b[2J"
    (place / "finished").rename(path)
    manifest = json.loads((path / "manifest.json").read_text()) | {"algorithm": "q\nmix\u2028", "policy": "x/my\rteam"}
    manifest.pop("crc")
    (path / "manifest.json").write_text(json.dumps(manifest))
    assert main(["runs", str(path)]) == 0
    said = capsys.readouterr().out
    assert len(said.splitlines()) == 4  # a manifest with such an algorithm is damaged: the reason is below
    for part in (r"a\nb\x1b[2J", r"q\nmix\u2028"):
        assert part in said


def test_a_team_that_a_training_saved_has_the_name_of_its_run() -> None:
    assert team_of("results/fairtest/mine/policy") == "mine"
    assert team_of("policies/pp-iql") == "pp-iql"
    assert team_of(None) is None


def test_fixtures_of_tests_are_nobodys_results(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "finished", tmp_path / "tests" / "fixtures" / "run")
    assert listed([tmp_path]) == []
    assert len(listed([tmp_path / "tests" / "fixtures"])) == 1


def test_the_rate_of_an_earlier_run_is_counted_from_its_executions(place: Path) -> None:
    (run,) = listed([place / "finished"])
    summary = json.loads((place / "finished" / "summary.json").read_text())
    assert run.natural_rate == summary.pop("natural_rate") is not None
    (place / "finished" / "checksums.json").unlink()
    (place / "finished" / "summary.json").write_text(json.dumps(summary))
    assert listed([place / "finished"])[0].natural_rate == run.natural_rate


def test_what_lies_inside_a_run_is_its_own(place: Path) -> None:
    shutil.copytree(place / "finished", place / "finished" / "report" / "copy")
    assert sorted(states(place)) == ["finished", "stopped"]


def test_other_programs_manifests_are_not_listed(place: Path) -> None:
    for name, text in (("web", '{"name": "app", "icons": []}'), ("broken", "{"), ("list", "[]")):
        (place / name).mkdir()
        (place / name / "manifest.json").write_text(text)
    assert sorted(states(place)) == ["finished", "stopped"]


def test_a_circle_of_links_is_not_followed(place: Path) -> None:
    (place / "again").symlink_to(place)
    assert sorted(states(place)) == ["finished", "stopped"]


def test_no_runs_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"No runs below {tmp_path}.\n"
    assert told(capsys, str(tmp_path)) == []


def test_a_folder_that_does_not_exist_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", str(tmp_path), str(tmp_path / "nowhere")]) == 2
    assert f"There is no folder {str(tmp_path / 'nowhere')!r}" in capsys.readouterr().err


# --- damage -------------------------------------------------------------------------------------------


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


DAMAGE: dict[str, tuple[str, Any]] = {
    "manifest cut": ("manifest.json", cut),
    "manifest empty": ("manifest.json", lambda path: path.write_bytes(b"")),
    "manifest a list": ("manifest.json", lambda path: path.write_text("[]")),
    "manifest without settings": ("manifest.json", lambda path: path.write_text('{"fairtest": "0.1", "task": "tag"}')),
    "manifest nested": ("manifest.json", lambda path: path.write_text("[" * 100_000)),
    "manifest gone": ("manifest.json", Path.unlink),
    "manifest binary": ("manifest.json", lambda path: path.write_bytes(b"\xff\xfe\x00")),
    "manifest of an older format": ("manifest.json", lambda path: path.write_text('{"fairtest": "0", "format": 2}')),
    "manifest of the future": ("manifest.json", lambda path: path.write_text('{"fairtest": "9", "format": 99}')),
    "summary cut": ("summary.json", cut),
    "summary of other numbers": ("summary.json", lambda path: path.write_text('{"failures": "many"}')),
    "failures cut": ("failures.npz", cut),
    "executions text": ("executions.npz", lambda path: path.write_text("id")),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_run_is_listed_with_the_reason(name: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, harm = DAMAGE[name]
    harm(place / "finished" / file)
    (damaged,) = (run for run in told(capsys, str(place)) if run["path"].endswith("finished"))
    assert damaged["state"] == "damaged"
    expected = {"manifest of an older format": "an older FairTest", "manifest of the future": "a newer FairTest"}
    assert expected.get(name, file) in damaged["reason"]
    assert states(place)["stopped"] == "interrupted"
    assert main(["runs", str(place)]) == 0
    assert f"{place / 'finished'}: {damaged['reason']}" in capsys.readouterr().out


def test_a_torn_journal_leaves_the_batches_before_it(place: Path) -> None:
    path = place / "stopped" / "journal.jsonl"
    cut(path)
    (run,) = listed([place / "stopped"])
    assert (run.state, run.batches) == ("interrupted", 1)
    assert "interrupted after 1 batch;" in table([run])
    path.unlink()
    (run,) = listed([place / "stopped"])
    assert (run.state, run.batches) == ("interrupted", 0)
