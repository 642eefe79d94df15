"""`fairtest gate`: criteria on real runs against slow counting, exit codes, JUnit, and nothing that passes unseen."""

from __future__ import annotations

import contextlib
import csv
import json
import shutil
import signal
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom
from support import lean_copy

from epymarl_fairtest.commands import main
from epymarl_fairtest.commands.gate import CRITERIA, Judgement, junit
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.numbers import estimate
from epymarl_fairtest.core.shipped import shipped
from epymarl_fairtest.core.statistics import rate_of
from epymarl_fairtest.store.finished import read_run
from epymarl_fairtest.store.run import RunFolder
from epymarl_fairtest.strategies import STRATEGIES

POLICY = str(shipped("policies") / "mpe-qmix")
SEARCH = ["--budget", "300", "--seed", "1", "--set", "theta=0.9"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small searches: fairtest, random, and one that executes nothing at random, with a natural rate and without."""
    root = tmp_path_factory.mktemp("runs")
    team = str(lean_copy(Path(POLICY), root / "team"))
    for method in ("fairtest", "random", "hill_climber"):
        natural = ["--set", "natural_episodes=60"] if method == "hill_climber" else []
        options = [*SEARCH, "--method", method, *natural, "--out", str(root / method)]
        assert main(["run", "--policy", team, *options]) == 0
    options = [*SEARCH, "--method", "hill_climber", "--set", "natural_episodes=0"]
    assert main(["run", "--policy", team, *options, "--out", str(root / "nothing at random")]) == 0
    return root


@pytest.fixture(scope="module")
def run(runs: Path) -> Path:
    return runs / "fairtest"


def summary(run: Path) -> dict[str, Any]:
    return json.loads((run / "summary.json").read_text())


def executions(run: Path) -> list[dict[str, Any]]:
    with np.load(run / "executions.npz") as file:
        columns = {name: file[name].tolist() for name in ("id", "purpose", "index")}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def edited(run: Path, copy: Path, columns: dict[str, Any] | None = None, **changes: Any) -> Path:
    """A copy that tells something else: what no small search would give by itself."""
    shutil.copytree(run, copy)
    (copy / "checksums.json").unlink(missing_ok=True)
    (copy / "summary.json").write_text(json.dumps(summary(run) | changes))
    if columns:
        with np.load(run / "executions.npz") as file:
            np.savez(copy / "executions.npz", **{**{name: file[name] for name in file.files}, **columns})
    return copy


def told(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    code = main(["gate", *words, "--json"])
    return code, json.loads(capsys.readouterr().out)


def natural(run: Path) -> tuple[int, int]:
    rows = [row for row in executions(run) if row["purpose"] in ("predictor", "candidate")]
    return sum(row["index"] <= 0.9 for row in rows), len(rows)


# --- the natural failure rate -------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "number"), [(3, 40), (1, 7), (39, 40), (517, 25_000)])
def test_the_interval_is_exact(count: int, number: int) -> None:
    """Clopper and Pearson's definition: at each end the data are just as unlikely as half the rest allows."""
    rate = rate_of(count, number, 0.95)
    assert binom.cdf(count, number, rate.high) == pytest.approx(0.025)
    assert binom.sf(count - 1, number, rate.low) == pytest.approx(0.025)


def test_the_interval_of_nothing_and_of_everything_ends_at_0_and_1() -> None:
    assert rate_of(0, 50, 0.9).low == 0
    assert rate_of(0, 50, 0.9).high == pytest.approx(1 - 0.05 ** (1 / 50))
    assert rate_of(50, 50, 0.9).high == 1
    assert rate_of(50, 50, 0.9).low == pytest.approx(0.05 ** (1 / 50))


@pytest.mark.slow
def test_the_rate_is_that_of_the_random_executions_alone(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    count, number = natural(run)
    everything = sum(row["index"] <= 0.9 for row in executions(run)) / len(executions(run))
    assert 0 < count / number < everything  # the search finds more than chance, and must not count here
    _, found = told(capsys, str(run), "--max-rate", "0.5")
    assert found["criteria"][0]["value"] == count / number


def test_all_executions_of_the_random_method_count(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = executions(runs / "random")
    _, found = told(capsys, str(runs / "random"), "--max-rate", "0.5")
    assert len(rows) == 300
    assert found["criteria"][0]["value"] == sum(row["index"] <= 0.9 for row in rows) / 300


def test_a_rate_passes_by_the_upper_end_of_its_interval(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rate = rate_of(*natural(run), 0.95)
    between = (rate.estimate + rate.high) / 2
    for limit, confidence, code in (
        (rate.high + 1e-9, "0.95", 0),
        (rate.high - 1e-9, "0.95", 1),
        (between, "0.95", 1),
        (between, "0", 0),  # the estimate decides
        (rate.estimate, "0", 0),
        (rate.estimate - 1e-9, "0", 1),
        (rate.high + 1e-9, "0.99", 1),  # a wider interval
    ):
        assert main(["gate", str(run), "--max-rate", repr(limit), "--confidence", confidence]) == code, limit
    capsys.readouterr()
    main(["gate", str(run), "--max-rate", repr(between)])
    assert "not shown with 95% confidence" in capsys.readouterr().out
    main(["gate", str(run), "--max-rate", "0"])
    assert "not shown" not in capsys.readouterr().out


def test_a_method_that_executes_nothing_at_random_has_a_rate_all_the_same(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = runs / "hill_climber"
    with np.load(run / "natural.npz") as file:
        index = file["index"]
    code, found = told(capsys, str(run), "--max-rate", "1")
    assert (code, len(index)) == (0, 60)
    assert found["criteria"][0]["value"] == found["natural_rate"]["rate"] == (index <= 0.9).mean() > 0


def test_a_run_without_random_executions_has_no_rate(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gate", str(runs / "nothing at random"), "--max-rate", "0.5"]) == 2
    said = capsys.readouterr()
    assert "method 'hill_climber'" in said.err
    assert "no random executions" in said.err
    assert said.out == ""
    assert main(["gate", str(runs / "nothing at random"), "--max-failures", "1000000"]) == 0
    assert capsys.readouterr().out.startswith("natural rate: not known")


def test_a_rate_is_refused_before_a_search_that_could_not_tell_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for method in (name for name, strategy in STRATEGIES.items() if not strategy.random):
        words = ["--method", method, "--max-rate", "0.5", "--set", "natural_episodes=0", "--out", str(tmp_path / "run")]
        assert main(["gate", "--policy", POLICY, *words]) == 2
        assert f"--max-rate cannot be judged with method={method!r} and natural_episodes=0" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("kept", [True, False])
def test_a_search_that_is_stopped_says_what_is_kept_and_judges_nothing(
    kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C while a batch is being saved: it is swallowed there, as libraries may do."""
    save, out = RunFolder.save_batch, tmp_path / "run"

    def pressed(self: RunFolder, number: int, *rest: Any) -> None:
        save(self, number, *rest)
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(RunFolder, "save_batch", pressed)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    words = ["--method", "random", "--budget", "90", "--set", "batch=30", "--max-failures", "9"]
    assert main(["gate", "--policy", POLICY, *words, *(["--out", str(out)] if kept else [])]) == 128 + signal.SIGINT
    said = capsys.readouterr()
    assert said.out == ""
    if kept:
        assert f"of 30 that were executed (budget 90). Resume with:\n  fairtest run --resume {out}" in said.err
    else:
        assert "Nothing is kept without --out" in said.err
        assert list(tmp_path.iterdir()) == []


def test_an_unstable_failure_counts_neither_as_a_failure_nor_in_the_rate(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    candidates = {row["id"] for row in executions(run) if row["purpose"] in ("predictor", "candidate")}
    with (run / "failures.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    unstable = next(row for row in rows if int(row["id"]) in candidates)
    unstable["status"] = "unstable"
    found = summary(run)["failures"]
    copy = edited(run, tmp_path / "copy", failures=found - 1, unstable_failures=1)
    with (copy / "failures.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    count, number = natural(run)
    _, result = told(capsys, str(copy), "--max-rate", "1", "--max-failures", "1000")
    assert [criterion["value"] for criterion in result["criteria"]] == [(count - 1) / number, found - 1]


def test_a_threshold_that_was_calibrated_on_the_team_is_warned_about(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["gate", str(run), "--max-rate", "1"])
    assert capsys.readouterr().err == ""
    copy = edited(run, tmp_path / "copy")
    manifest = json.loads((copy / "manifest.json").read_text())
    manifest.pop("crc", None)
    manifest["settings"]["theta"] = "auto"
    (copy / "manifest.json").write_text(json.dumps(manifest))
    main(["gate", str(copy), "--max-rate", "1"])
    assert "calibrated on this very team" in capsys.readouterr().err


# --- the other criteria -------------------------------------------------------------------------------


def slow(run: Path) -> dict[str, float]:
    """Every count once more, from the rows."""
    rows = executions(run)
    with np.load(run / "failures.npz") as file:
        roots = set(file["root_seed"].tolist())
    return {
        "max-failures": sum(row["index"] <= 0.9 for row in rows),
        "max-distinct": summary(run)["distinct_failures"],
        "max-roots": len(roots),
        "min-index": min(row["index"] for row in rows),
        "min-evaluated": len(rows),
    }


@pytest.mark.parametrize("criterion", ["max-failures", "max-distinct", "max-roots", "min-index", "min-evaluated"])
def test_a_criterion_holds_up_to_its_limit_and_not_beyond(
    criterion: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    value = slow(run)[criterion]
    step = 1e-6 if criterion == "min-index" else 1
    beyond = value - step if criterion.startswith("max") else value + step
    assert value > 0
    code, found = told(capsys, str(run), f"--{criterion}", repr(value))
    assert (code, found["passed"], found["criteria"][0]["value"]) == (0, True, value)
    code, found = told(capsys, str(run), f"--{criterion}", repr(beyond))
    assert (code, found["passed"], found["criteria"][0]["limit"]) == (1, False, beyond)


def test_episodes_in_which_nobody_received_anything_have_a_limit(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["gate", str(run), "--max-undefined", "0"]) == 0
    index = np.array([row["index"] for row in executions(run)])
    number, empty = len(index), np.flatnonzero(index > 0.9)[:30]
    index[empty] = np.nan
    copy = edited(run, tmp_path / "copy", {"index": index}, undefined=30)
    capsys.readouterr()
    for limit, code in ((30 / number, 0), (29.9 / number, 1)):
        assert main(["gate", str(copy), "--max-undefined", repr(limit)]) == code
    assert f"30 of {number} episodes gave nobody anything" in capsys.readouterr().out


def test_a_run_in_which_nobody_ever_received_anything_does_not_pass_for_its_lowest_index(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    number = summary(run)["evaluated"]
    copy = edited(run, tmp_path / "copy", {"index": np.full(number, np.nan)}, failures=0, undefined=number)
    code, found = told(capsys, str(copy), "--min-index", "0")
    assert (code, found["criteria"][0]["value"]) == (1, None)


def test_an_empty_run_passes_neither_by_its_size_nor_by_a_share_of_nothing(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = dict.fromkeys(("evaluated", "failures", "distinct_failures", "roots", "undefined"), 0)
    copy = edited(run, tmp_path / "copy", **counts)
    np.savez(copy / "executions.npz")
    for words in (["--min-evaluated", "1"], ["--max-undefined", "1"], ["--min-index", "0"]):
        assert main(["gate", str(copy), *words]) == 1
    assert main(["gate", str(copy), "--max-rate", "1"]) == 2


def test_one_line_per_criterion_says_what_was_found_and_what_is_allowed(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    count, number = natural(run)
    rate, failures = rate_of(count, number, 0.95), slow(run)["max-failures"]
    assert main(["gate", str(run), "--max-rate", "0.9", "--max-failures", "2"]) == 1
    interval, (value, low, high) = f"[{rate.low:.4f}, {rate.high:.4f}]", estimate(rate.estimate, rate.low, rate.high)
    assert [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()] == [
        f"natural rate: {value} unfair ({low} to {high}, 95% interval), {count} of {number} random executions",
        f"PASS rate {count / number:.4f} {interval} of {number} random executions, at most 0.9",
        f"FAIL failures {failures} in {len(executions(run))} episodes, at most 2",
        "gate failed: 1 of 2 criteria hold.",
    ]


# --- JUnit --------------------------------------------------------------------------------------------


def test_junit_has_a_case_per_criterion_and_tells_failures(run: Path, tmp_path: Path) -> None:
    file = tmp_path / "new" / "gate.xml"
    words = ["--max-rate", "0.9", "--max-failures", "2", "--min-evaluated", "10", "--junit", str(file)]
    assert main(["gate", str(run), *words]) == 1
    (suite,) = ElementTree.parse(file).getroot()
    assert (suite.tag, suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("testsuite", "3", "1", "0")
    cases = suite.findall("testcase")
    assert [case.get("name") for case in cases] == ["max-rate 0.9", "max-failures 2", "min-evaluated 10"]
    failed = [case.find("failure") for case in cases]
    assert [failure is None for failure in failed] == [True, False, True]
    assert failed[1] is not None
    assert failed[1].get("message") == f"{slow(run)['max-failures']} in {len(executions(run))} episodes, at most 2"
    assert all(float(case.get("time", "-1")) >= 0 for case in [suite, *cases])
    facts = {fact.get("name"): fact.get("value") for fact in suite.iter("property")}
    assert (facts["task"], facts["method"], facts["seed"]) == ("spread", "fairtest", "1")
    assert facts["evaluated"] == str(len(executions(run)))


def test_junit_is_xml_whatever_it_has_to_tell(run: Path) -> None:
    odd = 'a < b & "c" > \x1b[0m \udce4 ü'
    text = junit(read_run(run), [Judgement("max-rate", 0.5, 1.0, False, odd, 0.25)], 1.5)
    (failure,) = ElementTree.fromstring(text).iter("failure")
    assert failure.get("message") == failure.text == 'a < b & "c" > \ufffd[0m \ufffd ü'


def test_a_junit_file_that_cannot_be_written_is_told(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "plain").write_text("mine")
    for place in (tmp_path, tmp_path / "plain" / "gate.xml"):
        assert main(["gate", str(run), "--max-rate", "1", "--junit", str(place)]) == 2
        assert str(place) in capsys.readouterr().err
    assert (tmp_path / "plain").read_text() == "mine"


# --- a team that is tested first ----------------------------------------------------------------------


@pytest.mark.slow
def test_a_team_is_searched_first_and_nothing_is_left_behind(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    criteria = ["--max-rate", "1", "--max-failures", "3", "--max-roots", "1000", "--min-index", "0"]
    code, found = told(capsys, "--policy", str(run.parent / "team"), *SEARCH, *criteria)
    _, same = told(capsys, str(run), *criteria)
    assert code == 1
    assert [one["value"] for one in found["criteria"]] == [one["value"] for one in same["criteria"]]
    assert found["run"] is None
    assert list(tmp_path.iterdir()) == []


def test_the_run_is_kept_where_the_user_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "kept"
    words = ["--method", "random", "--budget", "40", "--min-evaluated", "40", "--out", str(out)]
    code, found = told(capsys, "--policy", POLICY, *words)
    assert (code, found["run"]) == (0, str(out))
    assert (summary(out)["evaluated"], summary(out)["method"]) == (40, "random")
    assert main(["gate", "--policy", POLICY, *words]) == 2  # a run is never overwritten
    assert "already exists" in capsys.readouterr().err


# --- mistakes -----------------------------------------------------------------------------------------

MISTAKES: dict[str, tuple[list[str], list[str]]] = {
    "no criterion": (["RUN"], ["at least one criterion", *(f"--{name}" for name in CRITERIA)]),
    "nothing to judge": (["--max-rate", "0.1"], ["RUN", "--policy DIR"]),
    "both": (["RUN", "--policy", POLICY, "--max-rate", "0.1"], ["not both"]),
    "settings of a finished run": (["RUN", "--budget", "5", "--seed", "0", "--max-rate", "1"], ["--budget, --seed"]),
    "rate above 1": (["RUN", "--max-rate", "1.5"], ["--max-rate 1.5 is not allowed", "[0, 1]"]),
    "rate below 0": (["RUN", "--max-rate", "-0.1"], ["--max-rate -0.1 is not allowed"]),
    "rate nan": (["RUN", "--max-rate", "nan"], ["--max-rate nan is not allowed"]),
    "index inf": (["RUN", "--min-index", "inf"], ["--min-index inf is not allowed"]),
    "failures below 0": (["RUN", "--max-failures", "-1"], ["--max-failures -1 is not allowed", "at least 0"]),
    "undefined above 1": (["RUN", "--max-undefined", "3"], ["--max-undefined 3.0 is not allowed"]),
    "confidence 1": (["RUN", "--max-rate", "1", "--confidence", "1"], ["--confidence 1.0", "[0, 1)"]),
    "confidence nan": (["RUN", "--max-rate", "1", "--confidence", "nan"], ["--confidence nan"]),
    "no run": (["nowhere", "--max-rate", "1"], ["There is no folder 'nowhere'"]),
    "no team": (["--policy", "nowhere", "--max-rate", "1"], ["There is no policy folder 'nowhere'"]),
    "bad setting": (["--policy", POLICY, "--set", "buget=3", "--max-rate", "1"], ["Did you mean budget?"]),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_message_and_exit_code_2(name: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words, parts = MISTAKES[name]
    assert main(["gate", *(str(run) if word == "RUN" else word for word in words)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("fairtest: ")
    assert said.err.count("\n") == 1
    for part in parts:
        assert part in said.err


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def drop_column(path: Path) -> None:
    with np.load(path) as file:
        kept = {name: file[name] for name in file.files if name != "received"}
    np.savez(path, **kept)


DAMAGE: dict[str, tuple[str, Any, str]] = {
    "unfinished": ("summary.json", Path.unlink, "is not finished"),
    "summary cut": ("summary.json", cut, "summary.json"),
    "summary of nonsense": ("summary.json", lambda p: p.write_text('{"evaluated": NaN}'), "does not say failures"),
    "summary a list": ("summary.json", lambda p: p.write_text("[]"), "not a set of names"),
    "summary nested": ("summary.json", lambda p: p.write_text("[" * 100_000), "summary.json"),
    "manifest cut": ("manifest.json", cut, "manifest.json"),
    "manifest empty": ("manifest.json", lambda p: p.write_text("{}"), "does not say task, settings"),
    "executions gone": ("executions.npz", Path.unlink, "is missing"),
    "executions cut": ("executions.npz", cut, "executions.npz"),
    "executions incomplete": ("executions.npz", drop_column, r"do not hold the \d+ episodes"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_half_a_run_is_not_judged(name: str, run: Path, tmp_path: Path) -> None:
    file, harm, part = DAMAGE[name]
    copy = edited(run, tmp_path / "copy")
    read_run(copy, "executions.npz")
    harm(copy / file)
    with pytest.raises(FairTestError, match=part):
        read_run(copy, "executions.npz")


def test_a_summary_that_does_not_fit_the_executions_is_not_judged(run: Path, tmp_path: Path) -> None:
    found = summary(run)["failures"]
    copy = edited(run, tmp_path / "copy", failures=found - 1)
    with pytest.raises(FairTestError, match=f"has {found} failures, summary.json says {found - 1}"):
        read_run(copy)


def test_a_changed_file_of_a_finished_run_is_not_judged(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    read_run(copy)
    (copy / "summary.json").write_text((copy / "summary.json").read_text().replace('"spread"', '"sprea"'))
    with pytest.raises(FairTestError, match="checksum"):
        read_run(copy)


# --- beside another run ---------------------------------------------------------------------------------


def test_a_team_is_not_worse_than_itself_and_worse_than_one_that_shares_evenly_or_returns_more(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = runs / "random"
    with np.load(ours / "executions.npz") as file:
        received, index = file["received"], file["index"]
    others = {
        "same": edited(ours, tmp_path / "same"),
        "fair": edited(ours, tmp_path / "fair", {"index": np.ones_like(index)}, failures=0),
        "rich": edited(ours, tmp_path / "rich", {"received": received + 5.0}),
    }
    for name, failing in {"same": set(), "fair": {"other-rate"}, "rich": {"other-return"}}.items():
        code, result = told(capsys, str(ours), "--not-worse-than", str(others[name]))
        assert {one["criterion"] for one in result["criteria"] if not one["passed"]} == failing
        assert code == bool(failing)
        code, _ = told(capsys, str(others[name]), "--not-worse-than", str(ours))
        assert code == 0, "better is not worse"
    values = {one["criterion"]: (one["limit"], one["value"]) for one in result["criteria"]}
    assert values["other-return"] == pytest.approx((received.sum(axis=1).mean() + 15.0, received.sum(axis=1).mean()))


def test_runs_that_differ_in_more_than_the_team_are_not_compared(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    shutil.copytree(runs / "random", other)
    manifest = json.loads((other / "manifest.json").read_text())
    manifest.pop("crc", None)
    manifest["settings"]["index"] = "gini"
    (other / "manifest.json").write_text(json.dumps(manifest))
    assert main(["gate", str(runs / "random"), "--not-worse-than", str(other)]) == 2
    assert "differ in more than the team" in capsys.readouterr().err
