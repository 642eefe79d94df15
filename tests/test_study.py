"""`fairtest study`: the grid, its folder, going on, backends that lose workers, tables and figures."""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import child_environment, policy_folder

from epymarl_fairtest import __version__
from epymarl_fairtest.commands import main as fairtest
from epymarl_fairtest.commands import study as command
from epymarl_fairtest.commands.study import add_parser
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.settings import Rule, flat_names, setting
from epymarl_fairtest.store.checksum import sealed, unsealed
from epymarl_fairtest.store.lock import Lock
from epymarl_fairtest.store.run import RunFolder
from epymarl_fairtest.strategies import STRATEGIES, configure
from epymarl_fairtest.strategies.contract import Context, Search
from epymarl_fairtest.strategies.random import RandomOptions
from epymarl_fairtest.study import backends, jobs, plan, reuse
from epymarl_fairtest.study.backends import Place, check_workers, probe, run_all
from epymarl_fairtest.study.jobs import Job
from epymarl_fairtest.study.kinds import KINDS
from epymarl_fairtest.study.rows import COLUMNS, METRICS, Results, Row, growth_rows, statistics_rows, tidy_row
from epymarl_fairtest.study.tables import latex, markdown, plain, ratios, study_tables, teams_by_variants, winners

SMALL = {
    "rounds": 1, "generations": 1, "pool": 24, "offspring": 8, "predictor_episodes": 16, "d": 1, "theta": 0.9,
    "batch": 40, "engine": "twin", "replay": 2,
}  # fmt: skip
TINY = [f"--set={name}={value}" for name, value in SMALL.items()]
COUNTED = (
    "failures", "unique_failures", "distinct_failures", "distinct_failures_wide", "distinct_starts", "roots",
    "coverage", "evaluated", "executed_steps",
)  # fmt: skip


def fairtest_study(*words: str | Path) -> int:
    parser = argparse.ArgumentParser()
    add_parser(parser.add_subparsers())
    args = parser.parse_args(["study", *map(str, words)])
    code = args.func(args)
    assert isinstance(code, int)
    return code


def changed(patch: pytest.MonkeyPatch, strategy: str, **changes: Any) -> None:
    """The strategy is another one, or there is one more, if its name is another."""
    new = replace(STRATEGIES[strategy], **changes)
    patch.setattr(STRATEGIES, "_entries", {**STRATEGIES, new.name: new})


def rq1(team: Path, out: Path, *more: str | Path, seeds: str = "2", budget: str = "60") -> int:
    where = ("--policies", team, "--out", out, "--seeds", seeds, "--budget", budget)
    one = () if "--jobs" in more or "--address" in more else ("--jobs", "1")
    return fairtest_study("rq1", *where, "--methods", "random", "fairtest", *TINY, *one, *more)


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return policy_folder(tmp_path_factory.mktemp("policies") / "team", "spread", "mlp", time_limit=8)


@pytest.fixture(scope="module")
def done(team: Path) -> Path:
    """A finished RQ1 of two methods and two seeds, run in this process. Look, do not touch."""
    out = team.parent / "done"
    assert rq1(team, out) == 0
    return out


@pytest.fixture(scope="module")
def done_as_shipped(team: Path, shipped: Callable[[], contextlib.AbstractContextManager[None]]) -> Path:
    """The same study, its runs as large as those of the workers that a test starts (`support.in_small`)."""
    out = team.parent / "done-as-shipped"
    with shipped():
        assert rq1(team, out) == 0
    return out


@pytest.fixture
def figures() -> None:
    """Asked for by the few tests that look at figures: they take longer than the runs."""


@pytest.fixture(autouse=True)
def _no_figures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "figures" not in request.fixturenames:
        monkeypatch.setattr(command, "_draw", lambda *_: None)


@pytest.fixture
def copy(done: Path, tmp_path: Path) -> Path:
    """The finished study again, to be damaged."""
    return Path(shutil.copytree(done, tmp_path / "copy"))


def job_folders(out: Path) -> list[Path]:
    return sorted((out / "runs").glob("*/*/*[0-9]"))


def summaries(out: Path) -> dict[str, dict[str, Any]]:
    found = {}
    for folder in job_folders(out):
        summary = json.loads((folder / "summary.json").read_text())
        found[str(folder.relative_to(out))] = {name: summary[name] for name in COUNTED}
    return found


def failures(out: Path) -> dict[str, str]:
    return {str(folder.relative_to(out)): (folder / "failures.csv").read_text() for folder in job_folders(out)}


def is_drawn(path: Path) -> bool:
    """A whole picture with something on it, or a whole page."""
    if path.suffix == ".pdf":
        content = path.read_bytes()
        return content.startswith(b"%PDF") and content.rstrip().endswith(b"%%EOF") and b"/Contents" in content
    from PIL import Image

    with Image.open(path) as picture:
        darkest, lightest = picture.convert("L").getextrema()
        return min(picture.size) > 100 and int(darkest) < 100 and lightest == 255


def rows(out: Path) -> list[dict[str, str]]:
    with open(out / "results.csv", newline="") as file:
        return list(csv.DictReader(file))


# --- what a study leaves behind -----------------------------------------------------------------------


def test_every_job_is_a_run_folder_without_its_large_files(done: Path) -> None:
    assert [str(folder.relative_to(done / "runs")) for folder in job_folders(done)] == [
        "team/fairtest/0", "team/fairtest/1", "team/random/0", "team/random/1",
    ]  # fmt: skip
    for folder in job_folders(done):
        names = {path.name for path in folder.iterdir()}
        assert names == {"manifest.json", "summary.json", "failures.csv", "journal.jsonl", "checksums.json"}
        manifest = json.loads((folder / "manifest.json").read_text())
        assert manifest["seed"] == manifest["settings"]["seed"] == int(folder.name)
        assert manifest["settings"]["method"] == folder.parent.name
        assert manifest["command"].startswith("fairtest study rq1 --policies ")
    assert not list(done.glob("runs/*/*/.*")), "locks of finished jobs are removed"
    assert not (done / "failed").exists()
    assert not (done / "aside").exists()


def test_results_csv_has_one_row_per_run_with_the_numbers_of_its_summary(done: Path) -> None:
    found = rows(done)
    assert list(found[0]) == list(COLUMNS)
    assert len(found) == 4
    assert any(int(row["failures"]) > 0 for row in found)
    for row in found:
        summary = json.loads((done / row["run"] / "summary.json").read_text())
        assert {name: str(summary[name]) for name in COUNTED} == {name: row[name] for name in COUNTED}
        known = ("rq1", "team", "spread", "iql", "strict", "strict", "60")
        assert (
            tuple(row[n] for n in ("study", "policy", "task", "algorithm", "accounting", "preset", "budget")) == known
        )
        assert (row["auc_full"] == "") == (row["method"] == "random")
        natural = [str(summary["natural_rate"][name]) for name in ("rate", "low", "high")]
        assert [row[f"natural_{name}"] for name in ("rate", "low", "high")] == natural
        assert row["lowest_index"] == str(summary["index_quantiles"]["0"])


def test_growth_csv_has_the_curve_of_every_run(done: Path) -> None:
    with open(done / "growth.csv", newline="") as file:
        found = list(csv.DictReader(file))
    for row in rows(done):
        growth = json.loads((done / row["run"] / "summary.json").read_text())["growth"]
        mine = [point for point in found if all(point[n] == row[n] for n in ("policy", "variant", "seed"))]
        assert {name: [int(point[name]) for point in mine] for name in growth} == growth


def test_results_csv_reads_as_runs_by_teams_for_each_method(done: Path) -> None:
    """The arrays that rliable takes."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_csv(done / "results.csv")
    scores = {
        method: part.pivot(index="seed", columns="policy", values="distinct_failures").to_numpy(float)
        for method, part in frame.groupby("method")
    }
    assert {method: array.shape for method, array in scores.items()} == {"fairtest": (2, 1), "random": (2, 1)}
    assert not np.isnan(np.concatenate(list(scores.values()))).any()


def test_tables_and_figures_are_written_and_every_table_states_its_command(done: Path, team: Path) -> None:
    given = f"fairtest study rq1 --policies {team} --seeds 2 --budget 60 --methods random fairtest --set rounds=1"
    told, typeset = (done / "tables.md").read_text(), (done / "tables.tex").read_text()
    assert told.count("\n### ") == told.count(f"\nCommand: `{given}") == 15
    assert typeset.count(r"\begin{table}") == typeset.count(f"\n% {given}") == 15
    assert "FairTest / Random" in told
    assert "A12" in told
    names = {path.name for path in (done / "figures").iterdir()}
    drawn = [*METRICS, "growth", "tenth"]
    assert names == {f"rq1_{metric}.{ending}" for metric in drawn for ending in ("png", "pdf")}
    assert all(is_drawn(path) for path in (done / "figures").iterdir())


def test_the_end_of_a_study_tells_runs_time_and_tables(
    copy: Path, team: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(copy / "runs" / "team" / "random" / "1")
    assert rq1(team, copy) == 0
    captured = capsys.readouterr()
    assert "### Failures (mean ± std over 2 runs)" in captured.out
    assert "runs 4: 1 run now, 3 were there already, 0 failed" in " ".join(captured.out.split())
    assert "CPU" in captured.out
    (line,) = captured.err.splitlines()
    assert line.startswith("fairtest: [4/4] team random seed 1: ")


def test_on_a_terminal_a_bar_shows_the_grid(
    copy: Path, team: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(copy / "runs" / "team" / "random")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert rq1(team, copy) == 0
    said = capsys.readouterr().err
    assert "FairTest study" in said
    assert "4/4" in said
    assert "fairtest: [" not in said


def test_json_holds_the_rows_and_the_statistics(copy: Path, team: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert rq1(team, copy, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["jobs"], told["run"], told["failed"]) == (4, 0, {})
    assert [row["run"] for row in told["rows"]] == [row["run"] for row in rows(copy)]
    assert {row["metric"] for row in told["statistics"]} == set(METRICS)
    assert all(row["variant"] == "random" and row["reference"] == "fairtest" for row in told["statistics"])


def test_failures_are_kept_where_that_is_asked_for(team: Path, tmp_path: Path) -> None:
    assert rq1(team, tmp_path / "out", "--keep-failures", seeds="1") == 0
    for folder in job_folders(tmp_path / "out"):
        with np.load(folder / "failures.npz", allow_pickle=False) as file:
            assert len(file["id"]) == json.loads((folder / "summary.json").read_text())["failures"] > 0
    assert rq1(team, tmp_path / "out", seeds="1") == 0
    assert all((folder / "failures.npz").is_file() for folder in job_folders(tmp_path / "out")), "kept ones stay"


# --- going on -----------------------------------------------------------------------------------------


def test_the_same_command_runs_nothing_again(copy: Path, team: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (copy / "results.csv").read_text()
    (copy / "results.csv").unlink()
    monkeypatch.setattr(jobs, "_execute", lambda *_: pytest.fail("a finished job was run"))
    assert rq1(team, copy) == 0
    assert (copy / "results.csv").read_text() == before


def test_a_study_may_grow_and_its_finished_jobs_stay(copy: Path, team: Path) -> None:
    before = failures(copy)
    times = {folder: (folder / "summary.json").stat().st_mtime_ns for folder in job_folders(copy)}
    assert rq1(team, copy, seeds="3") == 0
    after = failures(copy)
    assert len(after) == 6
    assert {name: after[name] for name in before} == before
    assert all((folder / "summary.json").stat().st_mtime_ns == when for folder, when in times.items())
    assert json.loads((copy / "study.json").read_text())["seeds"] == [0, 1, 2]


@pytest.mark.parametrize(
    ("more", "parts"),
    [
        ({"budget": "80"}, ["settings.budget: 60 there, 80 here"]),
        ({"seeds": "1"}, ["seeds: 1 there, not here"]),
        ({"more": ["--set", "epsilon=0.2"]}, ["settings.epsilon: 0.05 there, 0.2 here"]),
        ({"more": ["--set", "pool=30"]}, ["settings.pool: 24 there, 30 here"]),
        ({"more": ["--set", "batch=30"]}, ["settings.batch: 40 there, 30 here"]),
        ({"more": ["--accounting", "paper"]}, ["settings.accounting: 'strict' there, 'paper' here"]),
        ({"more": ["--methods", "random"]}, ["variants: fairtest there, not here"]),
    ],
)
def test_a_folder_of_other_settings_is_refused_with_the_difference(
    more: dict[str, Any], parts: list[str], done: Path, team: Path
) -> None:
    before = {path: path.read_bytes() for path in done.glob("*.*")}
    with pytest.raises(FairTestError) as caught:
        rq1(team, done, *more.pop("more", ()), **more)
    for part in parts:
        assert part in str(caught.value)
    assert {path: path.read_bytes() for path in done.glob("*.*")} == before


def test_other_weights_under_the_same_name_are_refused(done: Path, tmp_path: Path) -> None:
    other = policy_folder(tmp_path / "team", "spread", "mlp", time_limit=8, hidden_dim=8)
    with pytest.raises(FairTestError, match=r"policies\.team\.policy_digest"):
        rq1(other, done)


def test_an_interrupted_job_is_resumed_and_ends_as_if_nothing_had_happened(
    done: Path, team: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    with pytest.MonkeyPatch.context() as patch:

        def interrupt(*_: Any) -> None:
            raise KeyboardInterrupt

        patch.setattr(RunFolder, "finish", interrupt)
        assert rq1(team, out) == 130
    assert "the same command continues" in capsys.readouterr().err
    (interrupted,) = job_folders(out)
    assert not (interrupted / "summary.json").exists()
    executed: list[Path] = []
    with pytest.MonkeyPatch.context() as patch:
        save = RunFolder.save_batch
        patch.setattr(RunFolder, "save_batch", lambda self, *a: (executed.append(self.path), save(self, *a)))
        assert rq1(team, out) == 0
    assert interrupted not in executed, "its batches were read back"
    assert len(set(executed)) == 3
    assert summaries(out) == summaries(done)
    assert failures(out) == failures(done)


@pytest.mark.parametrize("damage", ["no manifest", "other settings", "torn manifest"])
def test_a_job_that_cannot_be_resumed_is_moved_aside_and_run_anew(
    damage: str, copy: Path, done: Path, team: Path
) -> None:
    job = copy / "runs" / "team" / "random" / "0"
    (job / "summary.json").unlink()
    manifest = json.loads((job / "manifest.json").read_text())
    (job / "manifest.json").unlink()
    if damage == "other settings":
        manifest["settings"]["epsilon"] = 0.5
        (job / "manifest.json").write_text(json.dumps(manifest))
    elif damage == "torn manifest":
        (job / "manifest.json").write_text(json.dumps(manifest)[:100])
    assert rq1(team, copy) == 0
    assert [path.name for path in (copy / "aside").iterdir()] == ["team-random-0.0"]
    assert failures(copy) == failures(done)


def test_a_failed_job_is_told_and_tried_again_by_the_same_command(
    done: Path, team: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, search = tmp_path / "out", STRATEGIES["random"].search

    def faulty(context: Context) -> Search:
        if context.seed == 0:
            raise RuntimeError("it broke")
        yield from search(context)

    with pytest.MonkeyPatch.context() as patch:
        changed(patch, "random", search=faulty)
        assert rq1(team, out) == 1
    told = capsys.readouterr()
    assert "team random seed 0: FAILED: RuntimeError: it broke" in told.err
    assert "1 failed" in told.out
    text = (out / "failed" / "team-random-0.txt").read_text()
    assert "Traceback" in text
    assert "it broke" in text
    assert len(rows(out)) == 3
    assert "(n=1)" in (out / "tables.md").read_text(), "a mean over fewer runs says so"
    shutil.rmtree(out / "runs" / "team" / "random" / "1")  # made by the faulty method
    assert rq1(team, out) == 0
    assert not list((out / "failed").iterdir())
    assert failures(out) == failures(done)


def test_a_warning_is_told_once_for_all_seeds(
    team: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def worried(context: Context) -> Search:
        context.warn("look at this")
        yield from search(context)

    search = STRATEGIES["random"].search
    changed(monkeypatch, "random", search=worried)
    assert rq1(team, tmp_path / "out", "--methods", "random") == 0
    said = capsys.readouterr().err
    assert said.count("look at this") == said.count("fairtest: team random seed 0: look at this") == 1


def test_two_processes_never_run_the_same_job(
    copy: Path, team: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever comes second waits, and finds the job finished."""
    (planned,) = planned_jobs(team, copy, "random", seeds=[0])
    finished = planned.path.rename(tmp_path / "finished")
    waits = threading.Event()
    first = Lock(planned.path.with_name(".0.lock"))
    monkeypatch.setattr(jobs, "Lock", lambda *a, **k: (waits.set(), Lock(*a, **k))[1])
    monkeypatch.setattr(jobs, "_execute", lambda *_: pytest.fail("the job was run twice"))
    results: list[dict[str, Any]] = []
    second = threading.Thread(target=lambda: results.append(jobs.run_job(planned)))
    second.start()
    assert waits.wait(60)
    time.sleep(0.2)
    assert not results, "it waits"
    finished.rename(planned.path)
    first.release()
    second.join()
    assert "error" not in results[0], results
    assert results[0]["summary"]["seed"] == 0


def planned_jobs(team: Path, out: Path, method: str, seeds: list[int]) -> list[Job]:
    given: dict[str, Any] = {"budget": 60, "preset": "strict", "theta": 0.9, "batch": 40, "engine": "twin"}
    return plan.plan_study("rq1", [team], seeds, given, root=out, command="", methods=[method]).jobs()


# --- other studies ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        pytest.param(
            "rq2",
            {name: ("select_ratio", float(name)) for name in ("0.05", "0.10", "0.15", "0.20")},
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "rq3b",
            {"f0": ("fitness", []), "f1": ("fitness", ["f1"]), "f2": ("fitness", ["f2"]), "f3": ("fitness", ["f3"]),
             "all": ("fitness", ["f1", "f2", "f3"])},
            marks=pytest.mark.slow,
        ),
        ("rq3c", {"off": ("prioritise", False), "on": ("prioritise", True)}),
    ],
)  # fmt: skip
def test_a_study_varies_what_it_is_about_and_nothing_else(
    kind: str, settings: dict[str, Any], team: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    words = ["--policies", team, "--seeds", "1", "--budget", "60", "--accounting", "paper", "--jobs", "1", *TINY]
    assert fairtest_study(kind, *words, "--out", out) == 0
    manifests = {path.parts[-3]: json.loads(path.read_text())["settings"] for path in out.glob("runs/*/*/0/manifest*")}
    assert manifests.keys() == settings.keys() == KINDS[kind].variants.keys()
    for variant, (name, value) in settings.items():
        assert manifests[variant]["options"].pop(name) == value
    if kind == "rq3b":
        assert not any(manifest["options"]["prioritise"] for manifest in manifests.values()), (
            "the plain search, as in the paper"
        )
    first, *others = manifests.values()
    assert all(other == first for other in others)
    assert (first["method"], first["accounting"], first["preset"]) == ("fairtest", "paper", "paper")
    assert "### Failures" in (out / "tables.md").read_text()


@pytest.mark.usefixtures("figures")
@pytest.mark.slow
def test_rq3a_cross_validates_the_predictor_with_and_without_fairness_features(team: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["--policies", team, "--seeds", "2", "--jobs", "1", *TINY, "--set", "predictor_episodes=80"]
    assert fairtest_study("rq3a", *words, "--out", out) == 0
    found = rows(out)
    assert [row["method"] for row in found] == ["predictor"] * 2
    for row in found:
        summary = json.loads((out / row["run"] / "summary.json").read_text())
        folds = summary["predictor"]["cv_full"]
        assert len(folds) == 5
        assert float(row["cv_auc_full"]) == pytest.approx(np.mean(folds))
        assert float(row["cv_std_full"]) == pytest.approx(np.std(folds, ddof=1))
        assert row["executed_episodes"] == "80"
    assert found[0]["cv_auc_full"] != found[1]["cv_auc_full"]
    assert "With fairness features" in (out / "tables.md").read_text()
    assert (out / "figures" / "rq3a_auc.pdf").is_file()
    assert fairtest_study("rq3a", *words, "--out", out) == 0


def test_a_study_that_cannot_be_predicted_fails_in_its_jobs_and_says_why(
    team: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "--policies",
        team,
        "--seeds",
        "1",
        "--jobs",
        "1",
        *TINY,
        "--set",
        "theta=0.0001",
        "--out",
        tmp_path / "out",
    ]
    assert fairtest_study("rq3a", *words) == 1
    assert "five of each kind are needed to cross-validate" in capsys.readouterr().err
    assert rows(tmp_path / "out") == []


# --- runs of another study ----------------------------------------------------------------------------


@pytest.fixture
def executed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which runs are really run."""
    names: list[str] = []
    execute = jobs._execute
    monkeypatch.setattr(jobs, "_execute", lambda job, warn: (names.append(str(job)), execute(job, warn))[1])
    return names


def test_baselines_are_copied_from_the_study_of_the_other_accounting(
    done: Path, team: Path, tmp_path: Path, executed: list[str]
) -> None:
    out = tmp_path / "out"
    assert rq1(team, out, "--accounting", "paper", "--runs-from", done) == 0
    assert executed == ["team fairtest seed 0", "team fairtest seed 1"]
    for seed in "01":
        name = f"runs/team/random/{seed}"
        assert failures(out)[name] == failures(done)[name]
        assert json.loads((out / name / "manifest.json").read_text())["copied_from"] == str(done / name)
    assert {row["accounting"] for row in rows(out)} == {"paper"}


@pytest.mark.slow
def test_a_copied_run_is_read_like_any_other(
    done: Path, team: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept, out = tmp_path / "kept", tmp_path / "out"
    assert rq1(team, kept, "--keep-failures", seeds="1") == 0
    assert rq1(team, out, "--accounting", "paper", "--keep-failures", "--runs-from", kept, seeds="1") == 0
    copied, other = out / "runs/team/random/0", kept / "runs/team/fairtest/0"
    assert "copied_from" in (copied / "manifest.json").read_text()
    assert fairtest(["gate", str(copied), "--max-rate", "1"]) == 0
    assert fairtest(["compare", str(copied), str(other)]) == 0
    assert fairtest(["report", str(copied)]) == 0
    capsys.readouterr()
    assert fairtest(["runs", str(copied), "--json"]) == 0
    (listed,) = json.loads(capsys.readouterr().out)
    assert listed["state"] == "finished"


def test_the_search_is_copied_where_two_studies_share_it(
    done: Path, team: Path, tmp_path: Path, executed: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--policies", team, "--seeds", "2", "--jobs", "1", *TINY, "--budget", "60", "--out", tmp_path / "rq3c"]
    assert fairtest_study("rq3c", *words, "--runs-from", done) == 0
    assert executed == ["team off seed 0", "team off seed 1"], "with prioritisation it is the FairTest of rq1"
    assert failures(tmp_path / "rq3c")["runs/team/on/1"] == failures(done)["runs/team/fairtest/1"]
    assert "2 finished runs copied from" in capsys.readouterr().err
    assert fairtest_study("rq3c", *words, "--runs-from", tmp_path / "taken away") == 0, "nothing is missing any more"


@pytest.mark.slow
def test_runs_that_are_not_the_same_are_run_and_the_nearest_difference_is_told(
    copy: Path, team: Path, tmp_path: Path, executed: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    def told(part: str, *words: str | Path, of: Path = team, budget: str = "60", count: int = 1) -> None:
        out = tmp_path / f"out {len(executed)}"
        before = len(executed)
        assert rq1(of, out, "--runs-from", copy, *words, seeds="1", budget=budget) == 0
        assert part in capsys.readouterr().err
        assert len(executed) - before == count
        assert not any("copied_from" in path.read_text() for path in out.glob("runs/*/*/*/manifest.json"))

    random = ("--methods", "random")
    told("no run that is missing here; the nearest differs in settings.budget: 60 there, 70 here", *random, budget="70")
    told("its runs did not keep their failures", "--keep-failures", count=2)
    shorter = policy_folder(tmp_path / "team", "spread", "mlp", time_limit=7)
    told("team.time_limit: 8 there, 7 here", *random, of=shorter)
    told("no run that is missing here\n", "--methods", "hill_climber")
    for path in copy.glob("runs/*/*/*/manifest.json"):
        path.write_text(json.dumps(sealed(unsealed(path.read_bytes()) | {"fairtest": "0.0.1"})))
    told("fairtest: '0.0.1' there", *random)
    for path in copy.glob("runs/*/*/*/summary.json"):
        path.write_text("{")
    told("no run that is missing here\n", *random)


def test_a_search_is_no_run_of_the_predictor(
    copy: Path, team: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--policies", team, "--seeds", "1", "--jobs", "1", *TINY, "--out", tmp_path / "out", "--runs-from", copy)
    fairtest_study("rq3a", *words)
    assert "has no run that is missing here\n" in capsys.readouterr().err


@pytest.mark.parametrize("content", [None, "{", "[]", '{"policies": [], "variants": [], "seeds": []}'])
def test_what_is_not_a_study_gives_no_runs_and_is_not_continued(
    content: str | None, copy: Path, team: Path, tmp_path: Path
) -> None:
    if content is None:
        (copy / "study.json").unlink()
    else:
        (copy / "study.json").write_text(content)
    with pytest.raises(FairTestError, match="is not a study" if content is None else "is damaged"):
        rq1(team, tmp_path / "out", "--runs-from", copy)
    assert not (tmp_path / "out").exists()
    with pytest.raises(FairTestError, match="is not a study" if content is None else "is damaged"):
        rq1(team, copy)


def test_a_run_is_not_copied_over_one_that_another_process_is_at(
    done: Path, team: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    assert rq1(team, out, seeds="1") == 0
    summary = out / "runs" / "team" / "random" / "0" / "summary.json"
    hidden = summary.rename(summary.with_suffix(".hidden"))  # it is being made

    @contextlib.contextmanager
    def waited(job: Job) -> Iterator[None]:
        if hidden.is_file() and job.variant == "random":
            hidden.rename(summary)  # the other one has ended meanwhile
        yield

    monkeypatch.setattr(reuse, "locked", waited)
    assert rq1(team, out, "--runs-from", done, seeds="1") == 0
    assert "copied_from" not in summary.with_name("manifest.json").read_text()
    assert not (out / "aside").exists()


def test_a_damaged_summary_is_made_again(copy: Path, done: Path, team: Path, executed: list[str]) -> None:
    path = copy / "runs" / "team" / "random" / "1" / "summary.json"
    path.write_text(path.read_text()[:50])
    assert rq1(team, copy) == 0
    assert executed == ["team random seed 1"]
    assert failures(copy) == failures(done)


def test_failures_that_were_not_kept_are_told_to_be_missing(
    copy: Path, team: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert rq1(team, copy, "--keep-failures") == 0
    assert "--keep-failures: 4 runs were finished without it" in capsys.readouterr().err


@pytest.mark.parametrize("swallowed", [False, True])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_study_leaves_the_tables_of_what_is_finished(
    number: signal.Signals,
    swallowed: bool,
    copy: Path,
    team: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    gone = [copy / "runs" / "team" / "random" / seed for seed in ("0", "1")]
    for folder in gone:
        shutil.rmtree(folder)
    for name in ("results.csv", "tables.md"):
        (copy / name).unlink()

    def interrupted(work: Any, jobs: Sequence[Any], _: Any) -> Iterator[Any]:
        yield jobs[0], work(jobs[0])
        with contextlib.suppress(*[KeyboardInterrupt] * swallowed):
            signal.raise_signal(number)
        yield jobs[1], {"error": "it was stopped"}
        raise AssertionError("it went on")

    monkeypatch.setattr(backends, "run_all", interrupted)
    before = signal.getsignal(signal.SIGTERM)
    assert rq1(team, copy) == 128 + number
    assert signal.getsignal(signal.SIGTERM) == before
    assert len(rows(copy)) == 3
    assert "(n=1)" in (copy / "tables.md").read_text()
    assert "the same command continues" in capsys.readouterr().err


@pytest.mark.parametrize("method", STRATEGIES)
def test_two_runs_are_the_same_if_they_differ_in_settings_that_their_method_does_not_have(method: str) -> None:
    def run(**given: Any) -> dict[str, Any]:
        chosen = configure({"method": method, "theta": 0.9, "budget": 50_000, **given})
        return reuse._what_is_run("1", "rq1", {}, chosen.as_dict())

    flat = {"pool": 70, "d": 3.5, "f3_temperature": 2.0, "batch": 33}
    own = flat_names(STRATEGIES[method].options)
    for name, value in flat.items():
        assert (run() == run(**{name: value})) == (name not in own), name
    same = method != "fairtest"
    assert (run(accounting="strict") == run(accounting="paper")) == same
    assert (run(preset="strict") == run(preset="quick", budget=50_000)) == same
    assert run(accounting="strict", theta="auto") != run(accounting="paper", theta="auto")
    assert run() == run(workers=1, progress=False, out="elsewhere")
    assert run() != run(epsilon=0.5)


@dataclass(frozen=True)
class ReadingOptions(RandomOptions):
    f3_temperature: float | str = setting(
        Rule("anything", lambda value: True), "as the search reads it", "scaled", flat=True
    )


def test_a_baseline_that_reads_a_setting_of_the_search_is_run_again_where_it_differs(
    team: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In that setting the presets of the two accountings differ."""
    changed(monkeypatch, "random", options=ReadingOptions)
    assert rq1(team, tmp_path / "a", "--methods", "random") == 0
    assert rq1(team, tmp_path / "b", "--accounting", "paper", "--methods", "random", "--runs-from", tmp_path / "a") == 0
    assert "settings.options.f3_temperature: 'scaled' there, 1.0 here" in capsys.readouterr().err
    assert not any("copied_from" in path.read_text() for path in (tmp_path / "b").glob("runs/*/*/*/manifest.json"))


@pytest.mark.parametrize(("file", "name"), [("summary.json", "charged_paper"), ("manifest.json", "policy_digest")])
def test_a_run_that_was_charged_otherwise_or_is_of_another_team_is_not_copied(
    file: str, name: str, copy: Path, team: Path, tmp_path: Path, executed: list[str]
) -> None:
    path = copy / "runs" / "team" / "random" / "1" / file
    path.write_text(json.dumps(json.loads(path.read_text()) | {name: 50}))
    assert rq1(team, tmp_path / "out", "--methods", "random", "--runs-from", copy) == 0
    assert executed == ["team random seed 1"]


# --- refused before anything is run -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["rq1", "--seeds", "1,2,1"], "--seeds: 1 is given twice"),
        (["rq1", "--seeds", "0"], "--seeds '0' is neither"),
        (["rq1", "--seeds", "some"], "--seeds 'some' is neither"),
        (["rq1", "--seeds", "3,99999999999999999999"], "--seeds 99999999999999999999 is not allowed"),
        (["rq1", "--seeds", "1000000000000"], "too many; 10,000 are allowed"),
        (["rq1", "--budget", "30", "--set", "budget=5"], "contradict each other"),
        (["rq1", "--preset", "quick", "--set", "preset=paper"], "contradict each other"),
        (["rq1", "--policies", "TEAM", "TEAM"], "is given twice"),
        (["rq1", "--policies", "TEAM", "nowhere"], "There is no policy folder"),
        (["rq1", "--policies", "TEAM", "TWIN"], "hold the same team"),
        (["rq1", "--policies", "EMPTY"], "holds no policy.yaml"),
        (["rq1", "--policies", "UNTRAINED"], "There is no checkpoint"),
        (["rq1", "--methods", "randm"], "Did you mean random?"),
        (["rq1", "--methods", "random", "random"], "--methods: random is given twice"),
        (["rq1", "--methods", "random:batch=9", "random:batch=9"], "random:batch=9 is given twice"),
        (["rq1", "--methods", "randm:batch=9"], "Did you mean random?"),
        (["rq1", "--methods", "random:"], "write METHOD:NAME=VALUE"),
        (["rq1", "--methods", "random:batch"], "write METHOD:NAME=VALUE"),
        (["rq1", "--methods", "random:batch=../9"], "write METHOD:NAME=VALUE"),
        (["rq1", "--methods", "random:bach=9"], "Did you mean batch?"),
        (["rq1", "--methods", "random:batch=none"], "batch='none' is not allowed"),
        (["rq2", "--methods", "random"], "--methods is for rq1"),
        (["rq1", "--set", "method=random"], "use --methods"),
        (["rq1", "--set", "seed=3"], "use --seeds"),
        (["rq2", "--set", "select_ratio=0.3"], "rq2 sets it itself"),
        (["rq3b", "--set", "prioritise=true"], "rq3b sets it itself"),
        (["rq3a", "--set", "theta=auto"], "fairtest calibrate"),
        (["rq1", "--set", "buget=3"], "Did you mean budget?"),
        (["rq1", "--set", "options.cycle=3"], "options.METHOD.NAME=VALUE"),
        (["rq1", "--set", "options.random.cycle=3"], "is not an option of method 'random'"),
        (["rq1", "--budget", "20"], "does not pay for one round"),
        (["rq1", "--jobs", "0"], "--jobs 0 is not allowed"),
        (["rq1", "--timeout", "0"], "--timeout 0 is not allowed"),
        (["rq1", "--address", "tcp://here:1"], "needs --backend dask or --backend ray"),
        (["rq1", "--backend", "dask", "--address", "tcp://here:1", "--jobs", "3"], "has its own workers"),
        (["rq1", "--out", "TEAM"], "exists and is not a study"),
    ],
)
def test_mistakes_are_refused_and_nothing_is_written(
    words: list[str], part: str, team: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    policy_folder(tmp_path / "untrained")
    (tmp_path / "untrained" / "agent.th").unlink()
    places = {name: tmp_path / name.lower() for name in ("EMPTY", "UNTRAINED", "TWIN")} | {"TEAM": team}
    shutil.copytree(team, places["TWIN"])
    before = sorted(team.iterdir())
    monkeypatch.setattr(backends, "run_all", lambda *_: pytest.fail("something was run"))
    given: list[str | Path] = [places.get(word, word) for word in words]
    defaults: list[str | Path] = ["--policies", team, "--out", tmp_path / "out", "--seeds", "1"]
    with pytest.raises(FairTestError) as caught:
        fairtest_study(given[0], *defaults, *given[1:])
    assert part in str(caught.value)
    assert not (tmp_path / "out").exists()
    assert sorted(team.iterdir()) == before


def test_a_method_that_a_task_cannot_serve_is_refused_with_those_that_fit(
    team: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed(monkeypatch, "random", name="demanding", needs=("proposable",))
    monkeypatch.setattr(type(jobs.load_team(team, "env").task), "proposable", False)
    with pytest.raises(FairTestError) as caught:
        rq1(team, tmp_path / "out", "--methods", "demanding", "fairtest", "random")
    assert "method='demanding' needs initial states" in str(caught.value)
    assert "--methods random fairtest" in str(caught.value)


def test_a_methods_own_option_reaches_that_method_alone(team: Path, tmp_path: Path) -> None:
    assert plan._options({"gmt.cycle": 25, "starla.cycle": 3, "gmt.a.b": 1}, "gmt") == {"cycle": 25, "a.b": 1}
    with pytest.raises(FairTestError, match=r"options\.gmt\.cycle: a study of several methods"):
        rq1(team, tmp_path / "out", "--set", "options.gmt.cycle=25")


@pytest.mark.slow
def test_a_method_is_compared_with_itself_under_other_options(team: Path, tmp_path: Path) -> None:
    """MASTest in both readings of decision 013, as two rows."""
    out, other = tmp_path / "out", "mastest:exploration=recorded,seeds=4"
    words = ["--methods", other, "random", "mastest", "--set", "options.mastest.batch=8"]
    assert rq1(team, out, *words) == 0
    assert list(dict.fromkeys(row["variant"] for row in rows(out))) == ["random", other, "mastest"]
    assert {row["method"] for row in rows(out)} == {"random", "mastest"}
    chosen = {}
    for variant in (other, "mastest"):
        manifest = json.loads((out / "runs" / team.name / variant / "0" / "manifest.json").read_text())
        chosen[variant] = manifest["settings"]["options"]
    assert chosen["mastest"] == chosen[other] | {"exploration": "new", "seeds": 10}
    assert chosen[other]["batch"] == 8
    assert "MASTest (recorded, seeds 4)" in (out / "tables.md").read_text()
    assert rq1(team, out, *words) == 0  # the same command continues it


def test_preset_and_accounting_follow_from_each_other() -> None:
    def given(**options: Any) -> tuple[str, str]:
        args = argparse.Namespace(**{"set": [], "accounting": None, "preset": None, "budget": None, **options})
        chosen = configure(command._given(args))
        return chosen.preset, chosen.accounting

    assert given() == ("strict", "strict")
    assert given(accounting="paper") == ("paper", "paper")
    assert given(preset="paper") == ("paper", "paper")
    assert given(preset="quick") == ("quick", "strict")
    assert given(preset="quick", accounting="paper") == ("quick", "paper")


def test_seeds_are_a_number_or_a_list() -> None:
    assert command.seeds_of("3") == [0, 1, 2]
    assert command.seeds_of("3,5,7") == [3, 5, 7]
    assert command.seeds_of("4,") == [4]


def test_teams_of_equal_folder_names_are_told_apart_by_their_parents() -> None:
    named = plan._names([Path("/a/one/policy"), Path("/b/one/policy"), Path("/c/two: x")])
    assert list(named) == ["a-one", "b-one", "c-two_x"]
    assert list(plan._names([Path("/sacred/qmix/lbf/3/fairtest/policy")])) == ["lbf-3"]
    assert list(plan._names([Path("/fairtest/policy"), Path("/7")])) == ["fairtest", "7"]


# --- backends -----------------------------------------------------------------------------------------


@contextlib.contextmanager
def a_killer(out: Path) -> Iterator[list[int]]:
    """Kills the first process that is seen at work on a job; tells which."""
    killed: list[int] = []
    over = threading.Event()

    def watch() -> None:
        while not (killed or over.is_set()):
            for path in out.glob("runs/*/*/.*.lock"):
                with contextlib.suppress(OSError, ValueError):
                    host, pid = path.read_text().split()
                    assert host == socket.gethostname()
                    os.kill(int(pid), signal.SIGKILL)
                    killed.append(int(pid))
                    break
            time.sleep(0.02)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


@pytest.mark.ray
@pytest.mark.parametrize("backend", ["processes", "dask", "ray"])
def test_a_lost_workers_job_is_run_again(
    backend: str, done_as_shipped: Path, team: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster of two workers, one of which is killed at work."""
    if backend != "processes":
        pytest.importorskip({"dask": "distributed"}.get(backend, backend), reason=f"{backend} is not installed")
    out = tmp_path / "out"
    with a_killer(out) as killed:
        assert rq1(team, out, "--backend", backend, "--jobs", "2") == 0
    assert killed
    assert killed[0] != os.getpid()
    assert summaries(out) == summaries(done_as_shipped)
    assert failures(out) == failures(done_as_shipped)
    assert not (out / "failed").exists()


@pytest.mark.slow
def test_a_job_that_kills_its_worker_again_and_again_does_not_stop_the_others() -> None:
    def work(item: int) -> dict[str, Any]:
        import os
        import signal

        if item == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return {"double": 2 * item}

    found = dict(run_all(work, list(range(6)), Place("processes", 2)))
    assert {item: result for item, result in found.items() if item != 1} == {
        n: {"double": 2 * n} for n in (0, 2, 3, 4, 5)
    }
    assert "died twice" in found[1]["error"]
    assert "SIGKILL" in found[1]["error"]


def test_a_backend_that_takes_over_sigterm_gives_it_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with backends._own_signals():
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(15))  # as ray.init does
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.fixture
def dask_cluster(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """A scheduler of its own with the given number of workers in this process; the address."""
    distributed = pytest.importorskip("distributed", reason="dask is not installed")
    opened: list[Any] = []

    def make(workers: int) -> str:
        cluster = distributed.LocalCluster(
            n_workers=workers, threads_per_worker=1, processes=False, protocol="tcp://", dashboard_address=":0",
            local_directory=str(tmp_path / "dask"),
        )  # fmt: skip
        opened.append(cluster)
        return str(cluster.scheduler_address)

    yield make
    for cluster in opened:
        cluster.close()


@pytest.mark.ray
def test_a_dask_cluster_is_found_by_its_address(
    dask_cluster: Callable[..., str], done: Path, team: Path, tmp_path: Path
) -> None:
    assert rq1(team, tmp_path / "out", "--backend", "dask", "--address", dask_cluster(1)) == 0
    assert summaries(tmp_path / "out") == summaries(done)


@pytest.mark.ray
def test_a_dask_cluster_without_workers_is_refused(
    dask_cluster: Callable[..., str], team: Path, tmp_path: Path
) -> None:
    address = dask_cluster(0)
    with pytest.raises(FairTestError, match="scheduler with at least one worker at"):
        rq1(team, tmp_path / "out", "--backend", "dask", "--address", address, "--timeout", "0.5")


@pytest.mark.slow
def test_a_worker_without_fairtest_is_told_what_to_install(
    dask_cluster: Callable[..., str], team: Path, tmp_path: Path
) -> None:
    """A real worker in an environment where the package cannot be imported."""
    hidden = tmp_path / "hidden" / "epymarl_fairtest"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'epymarl_fairtest'\", name='epymarl_fairtest')"
    )
    address = dask_cluster(0)
    words = ["worker", address, "--no-nanny", "--nthreads", "1", "--no-dashboard", "--local-directory", str(tmp_path)]
    worker = subprocess.Popen(
        [sys.executable, "-m", "dask", *words],
        env=child_environment(tmp_path, hidden.parent), cwd=tmp_path, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        with pytest.raises(FairTestError) as caught:
            rq1(team, tmp_path / "out", "--backend", "dask", "--address", address, "--timeout", "60")
    finally:
        worker.kill()
        worker.wait()
    assert "cannot import 'epymarl_fairtest'. Install epymarl-fairtest into" in str(caught.value)


@pytest.mark.parametrize(
    ("backend", "address", "mute"),
    [
        ("dask", "tcp://127.0.0.1:{port}", False),
        ("dask", "tcp://127.0.0.1:{port}", True),
        ("ray", "127.0.0.1:{port}", False),
        ("ray", "127.0.0.1:{port}", True),
        ("ray", "ray://127.0.0.1:{port}", False),
        ("ray", "here", False),
    ],
)
def test_a_cluster_that_does_not_answer_is_given_up(
    backend: str, address: str, mute: bool, team: Path, tmp_path: Path
) -> None:
    pytest.importorskip({"dask": "distributed"}.get(backend, backend), reason=f"{backend} is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        if mute:
            free.listen()  # somebody listens there, and says nothing
        given = address.format(port=free.getsockname()[1])
        with pytest.raises(FairTestError) as caught:
            rq1(team, tmp_path / "out", "--backend", backend, "--address", given, "--timeout", "1")
    assert f"at {given!r} that answers within 1 s" in str(caught.value)
    assert "--timeout" in str(caught.value)


@pytest.mark.parametrize(("backend", "library"), [("dask", "distributed"), ("ray", "ray")])
def test_a_backend_that_is_not_installed_says_how_to_install_it(
    backend: str, library: str, team: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(FairTestError, match=rf'pip install "epymarl-fairtest\[{backend}\]"'):
        rq1(team, tmp_path / "out", "--backend", backend)


def test_workers_are_asked_for_package_version_and_the_shared_folder(done: Path, team: Path, tmp_path: Path) -> None:
    place = Place("dask", 1, file=done / "study.json", folders=(team,))
    told = probe(place)()
    check_workers({"w": told}, place)
    mistakes = {
        "cannot import 'torch'. Install that package into": {"missing": "torch"},
        f"has FairTest 0.0, this is {__version__}": {"version": "0.0"},
        "study.json', or sees another one there": {"digest": None},
        "must be on a filesystem that all workers share": {"unseen": [str(team)]},
    }
    for message, change in mistakes.items():
        with pytest.raises(FairTestError) as caught:
            check_workers({"w": {**told, **change}}, place)
        assert message in str(caught.value)
    with pytest.raises(FairTestError, match="has no worker"):
        check_workers({}, place)
    elsewhere = probe(Place("dask", 1, file=tmp_path / "study.json", folders=(tmp_path / "gone",)))()
    assert (elsewhere["digest"], elsewhere["unseen"]) == (None, [str(tmp_path / "gone")])


def test_a_job_on_another_filesystem_says_so(team: Path, tmp_path: Path) -> None:
    (job,) = planned_jobs(team, tmp_path / "nowhere", "random", [0])
    assert "a filesystem that all workers share" in jobs.run_job(job)["error"]


# --- tables -------------------------------------------------------------------------------------------


def invented(numbers: dict[tuple[str, str], list[float]], reference: str = "fairtest") -> Results:
    made: list[Row] = []
    for (team, variant), values in numbers.items():
        for seed, value in enumerate(values):
            row = dict.fromkeys(COLUMNS) | {"policy": team, "variant": variant, "seed": seed, "coverage": value / 1000}
            made.append(row | dict.fromkeys(("failures", "distinct_failures", "roots"), value))
    teams, variants = list(dict.fromkeys(t for t, _ in numbers)), list(dict.fromkeys(v for _, v in numbers))
    return Results(made, teams, variants, {"fairtest": "FairTest", "random": "Random", "gmt": "GMT"}, reference)


SEPARATE = invented(
    {
        ("a_1", "random"): [1.0, 2, 3, 4, 5, 6, 7, 8, 9, 10],
        ("a_1", "gmt"): [20.0] * 10,
        ("a_1", "fairtest"): [41.0, 42, 43, 44, 45, 46, 47, 48, 49, 50],
        ("b", "random"): [0.0] * 10,
        ("b", "gmt"): [3.0] * 10,
        ("b", "fairtest"): [3.0] * 10,
    }
)


def test_the_best_is_bold_in_markdown_and_in_latex() -> None:
    table = teams_by_variants(SEPARATE, "failures", "Failures", "x", 10)
    lines = markdown(table).splitlines()
    assert [text.strip() for text in lines[4].strip("|").split("|")] == [
        "a_1", "5.5 ± 3.0", "20.0 ± 0.0", "**45.5 ± 3.0**",
    ]  # fmt: skip
    assert lines[5].count("**3.0 ± 0.0**") == 2, "equal ones are both the best"
    text = latex(table, "the command", "strict")
    assert text.startswith("% the command\n")
    assert r"a\_1 & $5.5\pm3.0$ & $20.0\pm0.0$ & $\mathbf{45.5\pm3.0}$\\" in text
    assert r"Team & Random & GMT & \textbf{FairTest}\\" in text
    assert text.count("{lccc}") == 1


def test_statistics_compare_the_reference_with_every_other_variant() -> None:
    against = [row for row in statistics_rows(SEPARATE) if row["reference"] == "fairtest"]
    assert len(against) == 2 * 4 * 2
    found = {(row["policy"], row["metric"], row["variant"]): row for row in against}
    first = found["a_1", "failures", "random"]
    assert (first["ratio"], first["a12"], first["effect"]) == (pytest.approx(45.5 / 5.5), 1.0, "L")
    assert first["p"] < 0.001
    assert found["b", "failures", "random"]["ratio"] is None, "there is nothing to divide by"
    assert (found["b", "failures", "gmt"]["p"], found["b", "failures", "gmt"]["effect"]) == (1.0, "N")
    text = "\n".join(latex(table, "", "strict") for table in study_tables("rq1", SEPARATE, 10))
    assert r"\multicolumn{9}{l}{\textbf{a\_1}}\\" in text
    assert r"Random & $0.0002^{***}$ & $1.000^{L}$" in text


def test_statistics_compare_each_two_variants_once() -> None:
    pairs = [(row["reference"], row["variant"]) for row in statistics_rows(SEPARATE) if row["policy"] == "a_1"]
    assert pairs[:3] == [("fairtest", "random"), ("fairtest", "gmt"), ("gmt", "random")]
    assert len(set(pairs)) == 3
    alone = Results(SEPARATE.rows, SEPARATE.teams, ["random", "gmt"], {}, "fairtest")
    assert {(row["reference"], row["variant"]) for row in statistics_rows(alone)} == {("gmt", "random")}


def test_the_best_method_is_named_with_the_runner_up_and_how_sure_that_is() -> None:
    lines = markdown(winners(SEPARATE, "x", "y")).splitlines()
    first = [text.strip() for text in lines[4].strip("| ").split("|")]
    assert first[:7] == ["a_1", "Failures", "FairTest", "45.5", "GMT", "20.0", "2.27"]
    assert first[7].endswith(r"\*\*\*")
    assert first[8] == "1.000 L"


def test_a_summary_from_before_a_number_was_told_has_a_row_without_it() -> None:
    row = tidy_row({"failures": 3, "natural_rate": None}, policy="a")
    assert (row["failures"], row["policy"], row["natural_rate"], row["lowest_index"]) == (3, "a", None, None)
    assert growth_rows({}, policy="a", variant="random", seed=0) == []


def test_variants_with_options_have_short_names_unless_these_would_be_the_same() -> None:
    variants = ["fairtest", "fairtest:candidates=random,screen=1", "mdpfuzz:freshness=false", "gmt:cycle=2"]
    names = ["FairTest", "FairTest (random, screen 1)", "MDPFuzz (no freshness)", "GMT (cycle 2)"]
    assert list(plan.labels_of("rq1", variants).values()) == names
    alike = ["mastest:exploration=new", "mastest:mode=new"]
    assert list(plan.labels_of("rq1", alike).values()) == ["MASTest (exploration=new)", "MASTest (mode=new)"]


def test_ratios_name_the_best_other_method() -> None:
    lines = markdown(ratios(SEPARATE, "x", "y")).splitlines()
    assert [text.strip() for text in lines[4].strip("| ").split("|")] == ["a_1", "Failures", "8.27", "2.27", "GMT"]
    assert [text.strip() for text in lines[8].strip("| ").split("|")] == ["b", "Failures", "–", "1.00", "GMT"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_study_without_any_finished_run_still_has_its_tables(kind: str) -> None:
    empty = Results([], ["a"], ["random", "fairtest"], {}, "fairtest")
    for table in study_tables(kind, empty, 10):
        assert "–" in markdown(table)
        assert all(len(row) == len(table.header) for row in table.body)


def test_where_the_reference_was_not_run_nothing_is_compared_with_it() -> None:
    assert statistics_rows(Results([], ["a"], ["random"], {}, "fairtest")) == []


def test_what_latex_would_misread_is_escaped() -> None:
    assert plain("a_b & 5% ± #1") == ("a_b & 5% ± #1", r"a\_b \& 5\% $\pm$ \#1")


# --- figures ------------------------------------------------------------------------------------------


def test_a_gain_over_nothing_is_no_percentage() -> None:
    pytest.importorskip("matplotlib")
    from epymarl_fairtest.report.study_figures import Drawing, pairs_figure

    drawing, values = Drawing(["a", "b"], ["off", "on"], {}, "on"), {"a": {"off": [0, 0], "on": [3, 5]}}
    figure = pairs_figure(
        drawing, {**values, "b": {"off": [2], "on": [3]}}, "failures", difference="gain", relative=True
    )
    right = figure.axes[1]
    assert [text.get_text() for text in right.texts] == ["from 0 to 4", "+50%"]
    assert [bar.get_width() for bar in right.patches] == [0.0, 0.5]


def test_a_logarithmic_panel_says_so() -> None:
    pytest.importorskip("matplotlib")
    from epymarl_fairtest.report.study_figures import Drawing, methods_figure

    drawing = Drawing(["a", "b"], ["x", "y"], {}, "y")
    figure = methods_figure(drawing, {"a": {"x": [1, 1, 1], "y": [900]}, "b": {"x": [3], "y": [4]}}, "failures")
    assert [axes.get_title("left") for axes in figure.axes] == ["a (logarithmic)", "b"]


def test_curves_are_labelled_where_they_end_with_the_area_below_them() -> None:
    pytest.importorskip("matplotlib")
    from epymarl_fairtest.report.study_curves import curves_figure
    from epymarl_fairtest.report.study_figures import Drawing

    drawing = Drawing(["a", "b"], ["x", "y", "z"], {"x": "X"}, "y", ["z"])
    of_a = {"x": [([5, 10], [1, 3]), ([5, 9], [2, 4])], "y": [([5, 10], [50, 900])], "z": [([9], [4])]}
    figure = curves_figure(drawing, {"a": of_a, "b": {}}, {"a": {"x": 1.6, "y": 400.2}}, "found")
    first, second = figure.axes
    assert {text.get_text() for text in first.texts} == {"X  2", "y  400", "z"}
    assert first.get_title("left") == "a (logarithmic)"
    assert [text.get_text() for text in second.texts] == [], "a team without runs has its place, too"


def test_a_run_without_a_tenth_failure_is_told_beside_the_others() -> None:
    pytest.importorskip("matplotlib")
    from epymarl_fairtest.report.study_curves import tenth_figure
    from epymarl_fairtest.report.study_figures import Drawing

    drawing = Drawing(["a"], ["x", "y", "z"], {}, "y")
    figure = tenth_figure(drawing, {"a": {"x": [None, None], "y": [30, None, 50], "z": [40]}}, "60 episodes")
    assert [text.get_text() for text in figure.axes[0].texts] == ["never", "1 of 3 never"]


@pytest.mark.slow
def test_the_same_numbers_give_the_same_files(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from epymarl_fairtest.report.study_figures import Drawing, study_figures

    drawing = Drawing(["a", "b"], ["x", "y"], {}, "y")
    values = {"failures": {"a": {"x": [0, 1, 2], "y": [5, 900, 7]}, "b": {"x": [], "y": [3]}}}
    first = study_figures("rq3b", drawing, values, tmp_path / "1", "5 episodes")
    again = study_figures("rq3b", drawing, values, tmp_path / "2", "5 episodes")
    assert [path.suffix for path in first] == [".png", ".pdf"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in again]
    for kind in ("rq1", "rq2", "rq3c"):  # a team without runs of a variant has its place, too
        assert all(is_drawn(path) for path in study_figures(kind, drawing, values, tmp_path / "1", "5"))


@pytest.mark.usefixtures("figures")
def test_a_study_without_matplotlib_has_its_tables_and_says_what_is_missing(
    copy: Path, team: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "epymarl_fairtest.report.study_figures", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib.axes", None)
    assert rq1(team, copy) == 0
    assert "no figures" in capsys.readouterr().err
