"""The `fairtest` command: a saved team is tested without any training framework, and mistakes are told."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import FAIRTEST, LIMITS, engine_of, policy_folder

from epymarl_fairtest import __version__
from epymarl_fairtest.api.starting import unused_folder
from epymarl_fairtest.commands import main
from epymarl_fairtest.commands.arguments import NAMED
from epymarl_fairtest.commands.parser import HELP, make_parser
from epymarl_fairtest.core.episodes import Tests, random_tests
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.settings import FIELDS, fields_of
from epymarl_fairtest.strategies import STRATEGIES
from epymarl_fairtest.strategies.contract import Context, Request, Search

WORK = ["--method", "random", "--budget", "50", "--set", "batch=30", "--set", "theta=0.9", "--set", "explain=0"]
FRAMEWORKS = ("runners", "envs", "pymarlzooplus", "sacred")
ALONE = f"""
import sys
from epymarl_fairtest.commands import main
code = main(sys.argv[1:])
print(sorted(set({FRAMEWORKS}) & set(sys.modules)), file=sys.stderr)
raise SystemExit(code)
"""


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return policy_folder(tmp_path_factory.mktemp("policies") / "team", "tag", "gru")


@pytest.fixture(scope="module")
def alone(team: Path) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """`fairtest run` in a process of its own."""
    out = team.parent / "alone"
    words = ["run", "--policy", str(team), "--out", str(out), *WORK, "--seed", "3", "--set", "report=false"]
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    return out, subprocess.run([sys.executable, "-c", ALONE, *words], capture_output=True, text=True, env=environment)


def failures(run: Path) -> dict[str, Any]:
    with np.load(run / "failures.npz", allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def commands() -> dict[str, argparse.ArgumentParser]:
    (action,) = (a for a in make_parser()._actions if isinstance(a, argparse._SubParsersAction))
    return dict(action.choices)


# --- fairtest run -------------------------------------------------------------------------------------


def test_a_saved_team_is_tested_without_a_training_framework(alone: tuple[Path, Any]) -> None:
    out, done = alone
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == "[]", "a training framework was imported"
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["task"], summary["method"], summary["seed"], summary["theta"]) == ("tag", "random", 3, 0.9)
    assert summary["executed_episodes"] == 50
    assert summary["executed_steps"] == 50 * LIMITS["tag"]
    assert 0 < summary["failures"] == len(failures(out)["id"])
    assert f"{summary['failures']} unfair episodes of 50" in done.stdout
    assert str(out) in done.stdout


def test_the_manifest_says_what_was_tested_and_how(alone: tuple[Path, Any], team: Path) -> None:
    manifest = json.loads((alone[0] / "manifest.json").read_text())
    assert manifest["policy"] == str(team)
    assert manifest["key"] == "epymarl_fairtest:mpe-tag-v0"
    assert manifest["settings"]["budget"] == 50
    assert manifest["fairtest"] == __version__
    assert "--seed 3" in manifest["command"]
    assert len(manifest["policy_digest"]) == 64


def test_the_same_seed_finds_the_same_failures_and_another_one_others(
    alone: tuple[Path, Any], team: Path, tmp_path: Path
) -> None:
    for name, seed in (("same", "3"), ("other", "4")):
        assert main(["run", "--policy", str(team), "--out", str(tmp_path / name), *WORK, "--seed", seed]) == 0
    first, same, other = failures(alone[0]), failures(tmp_path / "same"), failures(tmp_path / "other")
    assert first.keys() == same.keys()
    for name, column in first.items():
        assert column.dtype == same[name].dtype
        assert column.tobytes() == same[name].tobytes(), name
    assert first["states"].tobytes() != other["states"].tobytes()


def test_a_failure_can_be_executed_again_from_the_file_alone(alone: tuple[Path, Any], team: Path) -> None:
    found = failures(alone[0])
    count = len(found["id"])
    engine = engine_of("tag", "gru", epsilon=0.05)
    again = engine.execute(
        Tests(
            root_seed=found["root_seed"],
            stream=found["stream"],
            shift=found["shift"],
            start_step=found["start_step"],
            start_state=np.full(found["start_state"].shape, np.nan),
            operator=np.zeros(count, np.int8),
            parent=found["parent"],
        )
    )
    for name in ("states", "actions", "rewards", "q", "length"):
        assert getattr(again, name).tobytes() == found[name].tobytes(), name


def test_json_prints_the_summary_that_was_written(
    team: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert main(["run", "--policy", str(team), "--out", str(out), *WORK, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads((out / "summary.json").read_text())


def test_settings_come_from_options_and_set_before_the_preset(
    team: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--preset", "paper", "--method", "random", "--budget", "20", "--set", "epsilon=0", "--set", "budget=20"]
    assert main(["run", "--policy", str(team), "--out", str(tmp_path / "run"), *options]) == 0
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    chosen = manifest["settings"]
    assert (chosen["preset"], chosen["accounting"], chosen["budget"], chosen["epsilon"]) == ("paper", "paper", 20, 0)
    assert manifest["seed"] == 0
    assert main(["run", "--policy", str(team), "--out", str(tmp_path / "other"), *options[:-1], "budget=30"]) == 2
    assert "--budget=20 and --set budget=30 contradict each other" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


def test_greedy_execution_of_one_seed_never_explores(team: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert main(["run", "--policy", str(team), "--out", str(out), *WORK, "--set", "execution=greedy"]) == 0
    found = failures(out)
    assert (found["actions"] == found["q"].argmax(-1)).all()


# --- help ---------------------------------------------------------------------------------------------


def test_the_commands_are_there() -> None:
    assert {"demo", "install", "launch", "run", "doctor"} <= set(commands())


@pytest.mark.parametrize("name", commands())
def test_every_command_has_help_with_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([name, "--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert f"usage: fairtest {name}" in text
    assert "example" in text
    assert "fairtest " in text.split("example", 1)[1]


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert all(name in text for name in commands())


@pytest.mark.slow
def test_python_dash_m_is_the_same_command() -> None:
    done = subprocess.run([*FAIRTEST, "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, f"fairtest {__version__}")


def test_the_end_of_the_process_is_not_spent_on_looking_for_garbage() -> None:
    code = "import atexit, gc; atexit.register(lambda: print(gc.get_freeze_count(), len(gc.get_objects())));"
    code += "from epymarl_fairtest.commands import main; main([])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    frozen, looked_through = map(int, done.stdout.split())
    assert frozen > 10_000
    assert looked_through < 100


def test_no_command_is_answered_with_the_overview(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    captured = capsys.readouterr()
    assert captured.err == make_parser().format_help()
    assert captured.out == ""


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield inner
                yield from parsers(inner)


@pytest.mark.parametrize("parser", parsers(make_parser()), ids=lambda parser: parser.prog)
def test_an_example_is_not_broken_on_a_narrow_terminal(
    parser: argparse.ArgumentParser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert parser.epilog in parser.format_help()


def test_the_overview_fits_one_screen() -> None:
    assert len(make_parser().format_help().splitlines()) <= 24
    assert max(map(len, HELP.splitlines())) <= 80


# --- mistakes -----------------------------------------------------------------------------------------

MISTAKES: dict[str, tuple[list[str], list[str]]] = {
    "policy": (["--policy", "nowhere"], ["There is no policy folder 'nowhere'"]),
    "unknown setting": (["--set", "buget=3"], ["--set buget is not a setting", "Did you mean budget?"]),
    "no assignment": (["--set", "budget"], ["--set 'budget' is not NAME=VALUE"]),
    "theta": (["--set", "theta=1.5"], ["--set theta=1.5 is not allowed", "(0, 1]"]),
    "theta zero": (["--set", "theta=0"], ["--set theta=0 is not allowed", "(0, 1]"]),
    "budget": (["--budget", "-5"], ["--budget=-5 is not allowed", "at least 1"]),
    "method": (["--method", "randm"], ["'randm' is not a method", "Did you mean random?"]),
    "preset": (["--preset", "papr"], ["'papr' is not a preset", "Did you mean paper?"]),
    "no preset": (["--preset", "fast"], ["--preset='fast' is not a preset; allowed: paper, quick, strict.\n"]),
    "no method": (
        ["--method", "genetic"],
        ["--method='genetic' is not a method", f"known are: {', '.join(STRATEGIES)}.\n"],
    ),
    "option": (["--set", "options.x=1"], ["--set options.x is not an option of method 'random'"]),
    "allocation": (["--set", "allocation=nearest_landmark"], ["is unknown for task tag", "prey_distance"]),
    "no module": (["--set", "allocation=no_such_module:f"], ["cannot be imported", "PYTHONPATH"]),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_message_exit_code_2_and_no_folder(
    name: str, team: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    extra, parts = MISTAKES[name]
    out = tmp_path / "run"
    assert main(["run", "--policy", str(team), "--out", str(out), *WORK, *extra]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("fairtest: ")
    assert captured.err.count("\n") == 1
    assert captured.out == ""
    for part in parts:
        assert part in captured.err
    assert not out.exists()


@pytest.mark.parametrize("out", ["taken", "plain/run", "plain"])
def test_a_run_folder_that_cannot_be_made_is_refused(
    out: str, team: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "plain").write_text("mine")
    assert main(["run", "--policy", str(team), "--out", str(tmp_path / out), *WORK]) == 2
    assert str(tmp_path / out) in capsys.readouterr().err
    assert (tmp_path / "plain").read_text() == "mine"
    assert os.listdir(tmp_path / "taken") == []


@pytest.mark.slow
def test_a_run_without_out_makes_a_folder_of_its_own_each_time(
    team: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert main(["run", "--policy", str(team), *WORK]) == 0
    day = date.today()
    assert sorted(os.listdir("runs")) == [f"team-{day}", f"team-{day}-2"]
    assert all(Path("runs", name, "summary.json").is_file() for name in os.listdir("runs"))
    assert unused_folder(Path("results/my-run/policy")) == Path(f"runs/my-run-{day}")
    assert main(["run", "--policy", str(team), *WORK, "--set", "out=mine"]) == 0
    assert Path("mine", "summary.json").is_file()


def test_method_and_set_list_what_they_take(team: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    told = " ".join(capsys.readouterr().out.split())
    settings = [name for name in FIELDS if name not in ("options", *NAMED)]
    for name in [*STRATEGIES, *settings, *(f for s in STRATEGIES.values() for f in fields_of(s.options))]:
        assert f" {name}" in told
    for wrong, known in (("--method=x", STRATEGIES), ("--set=theeta=1", FIELDS), ("--set=theta", FIELDS)):
        assert main(["run", "--policy", str(team), wrong]) == 2
        message = capsys.readouterr().err
        assert all(name in message for name in known), message


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ([], "needs the host's command after --"),
        (["--", "python", "src/main.py"], "Leave 'python' out"),
        (["--", "src/nothing.py"], "There is no script 'src/nothing.py'"),
        (["--", "pymarlzooplus.main", "--env-config=fairtest_nothing"], "is not one of FairTest's environments"),
    ],
)
def test_a_launch_without_a_host_is_refused(
    arguments: list[str], part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["launch", *arguments]) == 2
    assert part in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["run", "--budget", "ten"], "argument --budget: 'ten' is not allowed; it must be a whole number"),
        (["gate", "--max-rate", "5%"], "argument --max-rate: '5%' is not allowed; it must be a number"),
        (
            ["policies", "check", "--episodes", "x"],
            "argument --episodes: 'x' is not allowed; it must be a whole number",
        ),
    ],
)
def test_wrong_numbers_on_the_command_line_are_usage_errors(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2
    assert told in capsys.readouterr().err


def test_ids_may_stand_behind_options() -> None:
    for words in (["4", "5", "--gif", "--png"], ["--gif", "4", "5", "--png"], ["--gif", "--png", "4", "5"]):
        args = make_parser().parse_args(["replay", "RUN", *words])
        assert (args.run, args.ids, args.gif, args.png) == (Path("RUN"), [4, 5], True, True)


# --- refusals after the folder was made ---------------------------------------------------------------


def refused_by(monkeypatch: pytest.MonkeyPatch, batches: int) -> None:
    """The strategy `random` refuses to go on after so many batches."""

    def search(context: Context) -> Search:
        for _ in range(batches):
            yield Request(random_tests(10, context.task.state_size, context.generator("tests")), "execution")
        raise FairTestError("No, thanks.")

    entries = {**STRATEGIES, "random": replace(STRATEGIES["random"], search=search)}
    monkeypatch.setattr(STRATEGIES, "_entries", entries)


@pytest.mark.parametrize("who", ["engine", "strategy"])
def test_a_refusal_leaves_nothing_behind(
    who: str, team: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "epymarl_fairtest.engine.twin", None)  # as without numba
    refused_by(monkeypatch, batches=0)
    engine = "twin" if who == "engine" else "lockstep"
    out = tmp_path / "runs" / "1"
    assert main(["run", "--policy", str(team), "--out", str(out), *WORK, "--set", f"engine={engine}"]) == 2
    told = {"engine": "engine=twin needs numba", "strategy": "No, thanks."}
    assert told[who] in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_what_was_executed_before_a_refusal_is_kept(
    team: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refused_by(monkeypatch, batches=2)
    out = tmp_path / "run"
    assert main(["run", "--policy", str(team), "--out", str(out), *WORK]) == 2
    assert f"No, thanks. What was found before is kept; resume with: fairtest run --resume {out}" in (
        capsys.readouterr().err
    )
    assert len((out / "journal.jsonl").read_text().splitlines()) == 2


# --- a terminal ---------------------------------------------------------------------------------------


def test_a_terminal_sees_what_is_being_done_even_if_it_does_not_tell_its_size(
    team: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pty = pytest.importorskip("pty")
    for name in ("COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)
    here, there = pty.openpty()  # 0 x 0
    with os.fdopen(there, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        assert main(["run", "--policy", str(team), "--out", str(tmp_path / "run"), *WORK]) == 0
    content = b""
    with os.fdopen(here, "rb", buffering=0) as screen, contextlib.suppress(OSError):  # Linux tells the end like that
        while more := screen.read(4096):
            content += more
    seen = content.decode()
    steps = ["loading the team", "preparing:", "random: ", "replaying: 100%", "drawing the page: 100%", "random: 100%"]
    places = [seen.find(step) for step in steps[:-1]] + [seen.rfind(steps[-1])]
    assert -1 not in places
    assert places == sorted(places)
