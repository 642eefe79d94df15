"""A run ends with its page, and a page that cannot be drawn does not spoil a run."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import policy_folder

from epymarl_fairtest.commands import main
from epymarl_fairtest.report import page


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    team = policy_folder(tmp_path / "team", "spread")
    return ["run", "--policy", str(team), "--method", "random", "--budget", "40", "--out", str(tmp_path / "run")]


@pytest.mark.usefixtures("pages")
def test_a_run_ends_with_its_page_and_says_where_it_is(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 0
    drawn = tmp_path / "run" / "report" / "index.html"
    assert drawn.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert str(drawn) in capsys.readouterr().out


@pytest.mark.usefixtures("pages")
def test_a_run_without_a_page_says_nothing_of_one(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--set", "report=false"]) == 0
    assert not (tmp_path / "run" / "report").exists()
    assert "index.html" not in capsys.readouterr().out


@pytest.mark.usefixtures("pages")
def test_a_page_that_cannot_be_drawn_is_a_warning_and_the_run_is_complete(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise MemoryError("no canvas")

    monkeypatch.setattr(page, "make_report", broken)
    assert main(arguments) == 0
    told = capsys.readouterr()
    assert "MemoryError: no canvas" in told.err
    assert f"fairtest report {tmp_path / 'run'}" in told.err
    assert (tmp_path / "run" / "summary.json").is_file()
    assert "unfair episodes" in told.out


@pytest.mark.usefixtures("pages")
@pytest.mark.slow
def test_ctrl_c_while_drawing_leaves_a_complete_run(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(page, "make_report", stopped)
    assert main(arguments) == 130
    assert "The run is complete" in capsys.readouterr().err
    monkeypatch.undo()
    assert main(["report", str(tmp_path / "run")]) == 0
