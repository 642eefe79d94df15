"""The Python interface: what a notebook calls, what it gives back, and what it says of mistakes."""

from __future__ import annotations

import builtins
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from support import policy_folder, random_policy, record_of

import epymarl_fairtest as fairtest
from epymarl_fairtest.api.use import python_words
from epymarl_fairtest.campaign import observers
from epymarl_fairtest.campaign.loop import Campaign
from epymarl_fairtest.commands import main

SMALL = {"method": "random", "budget": 40, "theta": 0.9, "seed": 3, "batch": 20, "progress": False, "explain": 2}
KEY = "epymarl_fairtest:mpe-spread-v0"


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return policy_folder(tmp_path_factory.mktemp("teams") / "team", "spread")


@pytest.fixture(scope="module")
def result(team: Path) -> fairtest.Result:
    return fairtest.test(team, out=team.parent / "run", **SMALL)


def refused(call: Any, *expected: str) -> str:
    with pytest.raises(fairtest.FairTestError) as error:
        call()
    message = str(error.value)
    assert all(words in message for words in expected), message
    assert "fairtest_args" not in message
    assert "--" not in message, "words of the command line"
    return message


# --- a result -----------------------------------------------------------------------------------------


def test_a_test_in_python_is_the_run_of_the_command_line(result: fairtest.Result, team: Path, tmp_path: Path) -> None:
    given = [f"--set={name}={value}" for name, value in SMALL.items() if name in ("theta", "batch", "explain")]
    words = ["--method", "random", "--budget", "40", "--seed", "3", "--set=progress=false", *given]
    assert main(["run", "--policy", str(team), "--out", str(tmp_path / "run"), *words]) == 0
    for name in ("failures.npz", "failures.csv", "executions.npz"):
        assert (result.path / name).read_bytes() == (tmp_path / "run" / name).read_bytes(), name
    assert result.record.manifest["command"].startswith(f"fairtest.test({str(team)!r}, method='random', budget=40")


def test_a_result_says_how_often_and_who(result: fairtest.Result) -> None:
    rate = result.natural_rate
    assert rate is not None
    assert rate.as_dict() == result.summary["natural_rate"]
    assert rate.low < rate.estimate < rate.high
    assert result.verdict in repr(result)
    assert "worse off" in result.worst_off
    assert "natural rate" in str(result)


def test_failures_are_a_table_the_most_unfair_first(result: fairtest.Result) -> None:
    table = result.failures
    assert len(table) == result.summary["failures"] > 1
    assert table["index"].is_monotonic_increasing
    assert {"id", "root_seed", "status", "cause", "received_1", "received_2", "received_3"} <= set(table)
    assert len(result.executions) == result.summary["evaluated"]
    assert set(table["id"]) <= set(result.executions["id"])


def test_arrays_have_the_rows_of_the_table(result: fairtest.Result) -> None:
    arrays, table = result.arrays(), result.failures
    assert arrays["id"].tolist() == table["id"].tolist()
    np.testing.assert_allclose(
        arrays["rewards"][2].sum(axis=0), table.loc[2, ["received_1", "received_2", "received_3"]]
    )
    one = result.arrays(2)
    assert one["id"] == table.loc[2, "id"]
    assert len(one["states"]) == one["length"] + 1 == len(one["actions"]) + 1
    assert result.arrays(id=int(table.loc[2, "id"]))["states"].tobytes() == one["states"].tobytes()


def test_the_figure_is_matplotlibs_and_shows_itself(result: fairtest.Result) -> None:
    figure: Any = result.plot_index()
    assert isinstance(figure, Figure)
    assert figure._repr_png_().startswith(b"\x89PNG")
    assert "pyplot" not in vars(figure)


def test_a_failure_is_replayed_and_drawn(result: fairtest.Result, tmp_path: Path) -> None:
    replay = result.replay(1)
    assert replay.agrees
    assert replay.differs is None
    assert replay.id == result.failures.loc[1, "id"]
    assert replay.gif.startswith(b"GIF8")
    assert replay.save(tmp_path / "film.gif").read_bytes() == replay.gif
    assert 'src="data:image/gif' in replay._repr_html_()
    assert result.replay(id=replay.id).scene.index == replay.scene.index


def test_why_tells_of_all_and_of_one(result: fairtest.Result) -> None:
    assert "explained" in str(result.why())
    told = result.record.explanation
    assert told is not None
    explained = told["failures"][0]["id"]
    assert f"Failure {explained}" in str(result.why(id=explained))
    assert result.why(id=explained).explanation["id"] == explained
    other = next(one for one in result.failures["id"] if one not in {entry["id"] for entry in told["failures"]})
    assert f"Failure {other}" in str(result.why(id=other)), "explained when it is asked for"


def test_a_notebook_shows_verdict_figure_and_film(result: fairtest.Result) -> None:
    html = result._repr_html_()
    assert result.verdict.replace("'", "&#x27;") in html
    assert html.count("<img alt=") == 2
    assert "data:image/png" in html
    assert "data:image/gif" in html
    assert "<script" not in html


def test_a_run_is_loaded_as_it_was_made(result: fairtest.Result) -> None:
    again = fairtest.load(str(result.path))
    assert again.summary == result.summary
    assert again.failures.equals(result.failures)
    assert again.replay(0).agrees, "the team is found by the manifest"
    assert again._repr_html_() == result._repr_html_()


def test_two_runs_are_compared(result: fairtest.Result, team: Path, tmp_path: Path) -> None:
    other = fairtest.test(team, out=tmp_path / "other", **{**SMALL, "seed": 4, "explain": 0})
    compared = fairtest.compare(result, other.path)
    assert compared.fairer in (None, "a", "b")
    assert compared.difference["low"] < compared.difference["estimate"] < compared.difference["high"]
    assert compared.verdict in repr(compared)
    assert compared.verdict in str(compared)
    assert "same weights" in " ".join(compared.warnings)
    assert "data:image/png" in compared._repr_html_()
    assert isinstance(compared.plot(), Figure)


def test_a_run_without_failures_is_a_result_too(team: Path, tmp_path: Path) -> None:
    result = fairtest.test(team, out=tmp_path / "run", **{**SMALL, "theta": 0.01, "budget": 20})
    assert len(result.failures) == 0
    assert "<img" in result._repr_html_()
    refused(lambda: result.replay(0), "found no failures")
    refused(result.why, "was not explained")


# --- a policy in memory -------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_policy_in_memory_gives_the_run_of_the_saved_one(result: fairtest.Result, tmp_path: Path) -> None:
    policy = random_policy(record_of("spread", "mlp"))
    live = fairtest.test(policy, env=KEY, time_limit=25, out=tmp_path / "run", **SMALL)
    assert (live.path / "failures.npz").read_bytes() == (result.path / "failures.npz").read_bytes()
    assert live.replay(0).agrees, "by the team that is still in memory"


def test_a_policy_in_memory_must_fit(tmp_path: Path) -> None:
    policy = random_policy(record_of("tag", "mlp"))
    out = tmp_path / "run"
    refused(lambda: fairtest.test(policy, env=KEY, time_limit=25, out=out), "does not fit", "obs_size")
    refused(lambda: fairtest.test(policy, out=out), "needs env", "time_limit=None")
    refused(lambda: fairtest.test(policy, env=KEY, time_limit=0, out=out), "time_limit=0")
    refused(lambda: fairtest.test(object(), env=KEY, out=out), "neither a policy folder nor a policy", "forward")
    assert not out.exists()


# --- bad input ----------------------------------------------------------------------------------------


def test_mistakes_are_told_in_pythons_words_and_leave_nothing(team: Path, tmp_path: Path) -> None:
    out = tmp_path / "runs" / "1"
    refused(lambda: fairtest.test(3), "neither a policy folder nor a policy")
    refused(
        lambda: fairtest.test(team, env=KEY, time_limit=25, out=out), "env, time_limit: only for a policy in memory"
    )
    refused(lambda: fairtest.test(tmp_path / "nowhere", out=out), "no policy folder", "nowhere")
    refused(lambda: fairtest.test(team, out=out, budgte=5), "budgte is not a setting", "Did you mean budget?")
    refused(lambda: fairtest.test(team, out=out, budget="many"), "budget='many' is not allowed", "whole number")
    refused(lambda: fairtest.test(team, out=out, method="magic"), "method='magic'")
    refused(lambda: fairtest.test(team, out=5), "out: 5 is not allowed")
    refused(lambda: fairtest.test(team, out=""), "out: '' is not allowed", "path of a folder")
    refused(lambda: fairtest.test("", out=out), "the team: '' is not allowed", "path of a folder")
    refused(lambda: fairtest.test(team, out=out, budget=0), "budget=0 is not allowed", "at least 1")
    refused(lambda: fairtest.test(team, out=out, options={"rounds": -1}), "rounds")
    assert not out.parent.exists()


def test_a_folder_that_cannot_be_is_refused_before_anything_runs(team: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for odd, why in (("file/run", "Not a directory"), ("a\0b", "null byte"), ("long" * 99, "File name too long")):
        refused(lambda out=f"{tmp_path}/{odd}": fairtest.test(team, out=out), "cannot be a folder", why)
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_a_team_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    odd = policy_folder(tmp_path / "odd", "spread", n_agents=5)
    refused(lambda: fairtest.test(odd, out=tmp_path / "run"), "n_agents")
    assert not (tmp_path / "run").exists()


def test_a_run_is_never_overwritten(result: fairtest.Result, team: Path) -> None:
    before = (result.path / "summary.json").read_bytes()
    refused(lambda: fairtest.test(team, out=result.path, **SMALL), "already exists", "Choose another out")
    assert (result.path / "summary.json").read_bytes() == before


def test_rows_and_runs_that_do_not_exist_are_named(result: fairtest.Result, tmp_path: Path) -> None:
    count = len(result.failures)
    refused(lambda: result.replay(count), f"rows 0 to {count - 1}")
    refused(lambda: result.replay(-1), "rows 0 to")
    refused(lambda: result.replay("3"), "whole number")
    refused(lambda: result.arrays(id=-5), "no failure", "id=-5")
    refused(lambda: fairtest.load(tmp_path / "nowhere"), "nowhere")
    refused(lambda: fairtest.load(7), "give the path of a folder")
    refused(lambda: fairtest.compare(result, result), "are the same run")
    refused(lambda: fairtest.compare(result, 7), "give the path of a folder")
    refused(lambda: fairtest.compare(result, tmp_path, confidence=2), "confidence=2 is not allowed")
    refused(lambda: fairtest.compare(result, tmp_path, theta="x"), "theta='x' is not allowed")


def test_numbers_of_numpy_are_numbers(team: Path, tmp_path: Path) -> None:
    result = fairtest.test(team, out=tmp_path / "run", **{**SMALL, "budget": np.int64(20), "explain": 0})
    assert result.summary["evaluated"] == 20


@pytest.mark.slow
def test_an_interrupted_cell_says_how_to_go_on_and_ends_the_same(
    result: fairtest.Result, team: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, told = tmp_path / "run", Campaign.run

    def interrupted(campaign: Campaign) -> None:
        after = campaign._on_batch

        def stop(charged: int) -> None:
            after(charged)
            raise KeyboardInterrupt

        campaign._on_batch = stop
        told(campaign)

    with monkeypatch.context() as patch:
        patch.setattr(Campaign, "run", interrupted)
        with pytest.raises(KeyboardInterrupt, match="unfair episodes are kept") as stopped:
            fairtest.test(team, out=out, **SMALL)
    assert f"fairtest.resume({str(out)!r})" in str(stopped.value)
    refused(lambda: fairtest.load(out), "is not finished", f"fairtest.resume({str(out)!r})")
    again = fairtest.resume(out)
    assert (again.path / "failures.npz").read_bytes() == (result.path / "failures.npz").read_bytes()
    refused(lambda: fairtest.resume(out), "is finished")


def test_without_pandas_the_table_says_what_to_install(
    result: fairtest.Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "pandas":
            raise ModuleNotFoundError("No module named 'pandas'", name="pandas")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    fresh = fairtest.load(result.path)
    with pytest.raises(fairtest.FairTestError, match=r"epymarl-fairtest\[notebook\]"):
        fresh.failures  # noqa: B018
    assert len(fresh.arrays()["id"]), "arrays need no pandas"


# --- the package --------------------------------------------------------------------------------------


def test_the_names_are_there_before_they_are_loaded() -> None:
    assert {"test", "load", "compare", "resume", "Result"} <= set(dir(fairtest))
    assert fairtest.test.__test__ is False, "pytest must not collect it"  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="nothing_like_it"):
        fairtest.nothing_like_it  # noqa: B018


def test_a_notebook_gets_a_bar_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not observers.in_notebook()
    monkeypatch.setitem(sys.modules, "ipykernel", sys)
    bar = observers.progress_bar(10, True, desc="searching", leave=False)
    bar.update(3)
    assert bar.n == 3
    bar.close()


def test_words_of_the_command_line_become_pythons() -> None:
    assert python_words("give fairtest_args.budget=5 or --set theta=0.7") == "give budget=5 or theta=0.7"
    assert python_words("resume with: fairtest run --resume 'a b'") == "resume with: fairtest.resume('a b')"
    assert python_words("judge both with --theta 0.8.") == "judge both with theta=0.8."
