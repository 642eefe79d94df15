"""The natural rate: always there, from random executions alone, and nothing that the method found changes with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest
from test_search import chosen, search, team

from epymarl_fairtest.campaign.run import run
from epymarl_fairtest.campaign.steps import natural
from epymarl_fairtest.campaign.summary import summary_table
from epymarl_fairtest.core.ledger import ACCOUNTINGS, is_charged
from epymarl_fairtest.core.numbers import estimate, percent
from epymarl_fairtest.host.sacred_log import scalars
from epymarl_fairtest.report.view import view_of
from epymarl_fairtest.store.finished import read_run
from epymarl_fairtest.store.run import RunFolder

HILL: dict[str, Any] = {"method": "hill_climber", "budget": 60, "theta": 0.9, "replay": 5}


def rows(path: Path) -> dict[str, Any]:
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def without_natural(summary: dict[str, Any]) -> dict[str, Any]:
    """What published tables hold."""
    ledger = {name: spent for name, spent in summary["ledger"].items() if name not in ("natural", "random_team")}
    others = ("wall_seconds", "cpu_seconds", "phases", "natural_rate", "competence", "worst_off")
    return {name: value for name, value in summary.items() if name not in others} | {"ledger": ledger}


@pytest.mark.usefixtures("as_shipped")
@pytest.mark.slow
def test_a_method_that_executes_nothing_at_random_gets_natural_executions_of_its_own(tmp_path: Path) -> None:
    made = search(team(), chosen(**HILL), tmp_path / "made").summary
    none = search(team(), chosen(**HILL, natural_episodes=0), tmp_path / "none").summary
    assert none["natural_rate"] is None
    assert without_natural(made) == without_natural(none)
    executed = rows(tmp_path / "made" / "natural.npz")
    unfair = int((executed["index"] <= 0.9).sum())
    exact = binomtest(unfair, 200).proportion_ci(0.95, method="exact")
    expected = {"rate": unfair / 200, "low": exact.low, "high": exact.high, "unfair": unfair, "executions": 200}
    assert made["natural_rate"] == expected
    assert made["ledger"]["natural"] == {"episodes": 200, "steps": int(executed["length"].sum())}
    assert set(executed["purpose"].tolist()) == {"natural"}
    assert len(set(executed["root_seed"].tolist())) == 200
    assert not any(is_charged(natural.NATURAL, accounting) for accounting in ACCOUNTINGS)


@pytest.mark.slow
def test_random_executions_of_the_method_are_enough_and_more_may_be_asked_for(tmp_path: Path) -> None:
    own = search(team(), chosen(theta=0.9), tmp_path / "own").summary
    executed = rows(tmp_path / "own" / "executions.npz")
    random = np.isin(executed["purpose"], ("predictor", "candidate"))
    unfair = int((executed["index"][random] <= 0.9).sum())
    assert (own["natural_rate"]["unfair"], own["natural_rate"]["executions"]) == (unfair, random.sum())
    assert not (tmp_path / "own" / "natural.npz").exists()
    assert "natural" not in own["ledger"]
    more = search(team(), chosen(theta=0.9, natural_episodes=30), tmp_path / "more").summary
    added = rows(tmp_path / "more" / "natural.npz")
    assert without_natural(more) == without_natural(own)
    both = (unfair + int((added["index"] <= 0.9).sum()), int(random.sum()) + 30)
    assert (more["natural_rate"]["unfair"], more["natural_rate"]["executions"]) == both
    rate = read_run(tmp_path / "more").natural_rate()
    assert rate is not None
    assert (rate.count, rate.executions) == both


def test_natural_executions_do_not_depend_on_how_many_are_made_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search(team(), chosen(**HILL, natural_episodes=50), tmp_path / "once")
    monkeypatch.setattr(natural, "AT_ONCE", 17)
    search(team(), chosen(**HILL, natural_episodes=50), tmp_path / "parts")
    once, parts = (rows(tmp_path / name / "natural.npz") for name in ("once", "parts"))
    assert once.keys() == parts.keys()
    assert all(once[name].tobytes() == parts[name].tobytes() for name in once)


def test_a_run_that_was_stopped_before_them_ends_with_the_same_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = chosen(**HILL, natural_episodes=20)
    whole = search(team(), given, tmp_path / "whole").summary

    def stop(*_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(natural, "random_tests", stop)
        with pytest.raises(KeyboardInterrupt):
            search(team(), given, tmp_path / "stopped")
    folder = RunFolder.resume(tmp_path / "stopped")
    resumed = run(team(), given, folder, seed=5, command="test", warn=print)
    assert resumed["natural_rate"] == whole["natural_rate"] is not None
    assert without_natural(resumed) == without_natural(whole)


def test_a_run_without_its_natural_executions_still_knows_the_rate(tmp_path: Path) -> None:
    summary = search(team(), chosen(**HILL), tmp_path / "run").summary
    (tmp_path / "run" / "natural.npz").unlink()
    found = read_run(tmp_path / "run")
    rate = found.natural_rate()
    assert rate is not None
    assert rate.as_dict() == summary["natural_rate"]
    assert found.natural_rate(theta=0.5) is None  # at another threshold the rows would be needed


def test_an_earlier_summary_without_the_rate_is_read(tmp_path: Path) -> None:
    summary = search(team(), chosen(theta=0.9), tmp_path / "run").summary
    rate = summary.pop("natural_rate")
    for name in ("distinct_failures_wide", "distinct_starts", "coverage_of"):
        del summary[name]
    (tmp_path / "run" / "checksums.json").unlink()
    (tmp_path / "run" / "summary.json").write_text(json.dumps(summary))
    view = view_of(read_run(tmp_path / "run"))
    assert view.rate is not None
    assert view.rate.as_dict() == rate
    assert view.coverage is not None


def test_the_rate_leads_in_the_terminal_and_the_log_and_the_share_of_the_search_is_called_that(tmp_path: Path) -> None:
    summary = search(team(), chosen(**HILL), tmp_path / "run").summary
    rate, lines = summary["natural_rate"], summary_table(summary, tmp_path).splitlines()
    value, low, high = estimate(rate["rate"], rate["low"], rate["high"])
    told = f"{value} unfair ({low} to {high}, 95% interval)"
    assert lines[3].split(maxsplit=2) == ["natural", "rate", f"{told}, {rate['unfair']} of 20 random executions"]
    share = summary["failures"] / summary["evaluated"]
    (found,) = (line for line in lines if "found by the search" in line)
    assert f"{summary['failures']} unfair episodes of 60 ({percent(share)}, the search's share)" in found
    logged = scalars(summary)
    assert list(logged)[:3] == ["natural_rate", "natural_rate_low", "natural_rate_high"]
    assert [logged[name] for name in list(logged)[:3]] == [rate["rate"], rate["low"], rate["high"]]
    assert logged["search_share"] == share
    assert "failure_rate" not in logged


def test_long_rows_of_the_terminal_are_folded_and_paths_stay_whole(tmp_path: Path) -> None:
    summary = search(team(), chosen(**HILL), tmp_path / "run").summary
    run = tmp_path / " ".join(["a folder"] * 20)
    long = {"agent": None, "unit": "starts", "votes": 10**90, "least": [{"agent": n, "count": n} for n in range(6)]}
    rule, _, _, *lines, last = summary_table({**summary, "worst_off": long}, run).splitlines()
    assert rule == last
    assert 130 > len(rule) >= max(len(line) for line in lines if str(run) not in line)
    assert sum(str(run) in line for line in lines) == 1


def test_the_predictor_that_does_not_see_rewards_leads_in_the_terminal(tmp_path: Path) -> None:
    summary = search(team(), chosen(**HILL), tmp_path / "run").summary
    seen = {"auc_abstract": 0.71, "auc_full": 1.0, "d": 0.5, "joint_states": 1500}
    assert "AUC" not in summary_table(summary, tmp_path), "there is no predictor"
    table = summary_table({**summary, "predictor": seen}, tmp_path)
    assert "out-of-bag AUC 0.710 (1.000 seeing rewards), 1500 joint states" in table


def test_the_page_shows_the_rate_of_natural_executions(tmp_path: Path) -> None:
    summary = search(team(), chosen(**HILL, natural_episodes=100), tmp_path / "run").summary
    view = view_of(read_run(tmp_path / "run"))
    assert view.rate is not None
    assert view.rate.as_dict() == summary["natural_rate"]
    assert view.histogram is not None
    assert view.histogram.random is not None
    assert [group.name for group in view.groups] == ["random executions", "natural failures"]
    assert view.groups[0].episodes == 100
