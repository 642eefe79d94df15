"""The first screen of a page, and several runs on one: what is answered, and what is said not to be comparable."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support import policy_folder

from epymarl_fairtest.commands import main
from epymarl_fairtest.report.opening import answers, commands
from epymarl_fairtest.report.page import make_report
from epymarl_fairtest.report.view import view_of
from epymarl_fairtest.store.finished import read_run

WORDS = ["--method", "random", "--budget", "40", "--set", "theta=0.9", "--set", "progress=false"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of one team, one of another task, one without failures."""
    root = tmp_path_factory.mktemp("runs")
    spread, tag = policy_folder(root / "spread team", "spread"), policy_folder(root / "tag", "tag", time_limit=8)
    for name, team, more in (
        ("one", spread, ["--seed", "1", "--set", "explain=2"]),
        ("two", spread, ["--seed", "2"]),
        ("other", tag, []),
        ("none", spread, ["--set", "theta=0.01"]),
    ):
        assert main(["run", "--policy", str(team), "--out", str(root / name), *WORDS, *more]) == 0
    return root


@pytest.mark.slow
def test_the_first_screen_answers_how_often_who_and_why(runs: Path) -> None:
    view = view_of(read_run(runs / "one"))
    often, who, why = answers(view)
    assert (often["question"], who["question"], why["question"]) == ("How often?", "Who?", "Why?")
    assert view.rate is not None
    assert often["interval"] is not None
    assert str(view.rate.executions) in often["note"]
    assert "worse off" in who["note"]
    assert "of 2" in why["value"]
    unexplained = answers(view_of(read_run(runs / "two")))[2]
    assert "fairtest explain" in unexplained["note"]


@pytest.mark.slow
def test_what_now_are_commands_that_work(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shown = [one["text"] for one in commands(view_of(read_run(runs / "one")))]
    assert [text.split()[1] for text in shown] == ["replay", "explain", "export", "repair", "compare"]
    for text in [one for one in shown if "repair" not in one]:  # that takes hours
        words = text.replace("OTHER_RUN", str(runs / "two")).split()[1:]
        assert main(words) == 0, text
    (only,) = commands(view_of(read_run(runs / "none")))
    assert "compare" in only["text"], "there is no failure to look at"


@pytest.mark.slow
def test_the_page_begins_with_the_answers_and_ends_with_the_accounts(runs: Path) -> None:
    page = make_report(runs / "one").read_text()
    head, _, rest = page.partition("</header>")
    assert re.findall(r'<dt><a href="#(\w+)">([^<]+)</a>', head) == [
        ("index", "How often?"),
        ("who", "Who?"),
        ("why", "Why?"),
    ]
    assert "What now?" in head
    assert head.count('class="copy needs-script"') == 5
    assert "as the paper counts" not in head
    assert "as the paper counts" in rest
    assert rest.index('id="replays"') < rest.index('id="numbers"') < rest.index('id="growth"')


@pytest.mark.slow
def test_several_runs_stand_side_by_side(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_report(runs / "one")
    out = tmp_path / "both.html"
    assert main(["report", str(runs / "one"), str(runs / "two"), "--out", str(out)]) == 0
    page = out.read_text()
    assert capsys.readouterr().out.strip() == str(out)
    assert page.count('class="interval"') == 2
    assert "cannot be compared" not in page
    assert page.count('<th scope="col">') == 2
    (link,) = re.findall(r'<a href="([^"]+index\.html)">one</a>', page)
    assert (out.parent / link).is_file(), "relative, so that both can be moved together"
    assert "<script" not in page


def test_runs_that_differ_in_more_than_team_and_method_are_said_to(runs: Path, tmp_path: Path) -> None:
    out = tmp_path / "both.html"
    assert main(["report", str(runs / "one"), str(runs / "other"), str(runs / "none"), "--out", str(out)]) == 0
    page = out.read_text()
    assert "These runs differ in task (spread, tag)" in page
    assert "threshold (0.90, 0.01)" in page


def test_what_cannot_be_put_side_by_side_is_refused(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = str(runs / "one"), str(runs / "two")
    for words, told in (
        ([one, one], "named twice"),
        ([one, str(tmp_path / "nothing")], "There is no folder"),
        ([one, two, "--out", str(tmp_path / "no" / "page.html")], "in a folder that exists"),
        ([one, "--out", str(tmp_path / "page.html")], "--out is for several runs"),
    ):
        assert main(["report", *words]) == 2
        assert told in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
