"""After the search: failures are replayed in the real environment, and those that differ do not count."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_search import THE_PAPERS, chosen, search, team

from epymarl_fairtest.campaign.steps import replay
from epymarl_fairtest.campaign.summary import summary_table
from epymarl_fairtest.campaign.tally import Tally
from epymarl_fairtest.core.indices import INDICES
from epymarl_fairtest.core.indices.jain import jfi
from epymarl_fairtest.core.judged import Judge, totals
from epymarl_fairtest.engine.selection import real_engine
from epymarl_fairtest.store.failures import load_failures
from epymarl_fairtest.store.finished import read_run
from epymarl_fairtest.strategies import configure
from epymarl_fairtest.team.contract import Team


class Moody:
    """A world whose rewards change after a number of episodes, as a nondeterministic simulator's would."""

    episodes = 0

    def __init__(self, world: Any, after: int) -> None:
        self._world, self._after = world, after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world, name)

    def reset(self, seed: int) -> None:
        Moody.episodes += 1
        self._world.reset(seed)

    def step(self, actions: Any) -> None:
        self._world.step(actions)
        if Moody.episodes > self._after:
            self._world.reward = self._world.reward + np.array([1e-9, 0.0, 0.0])


def moody(subject: Team, after: int) -> Team:
    Moody.episodes = 0
    return replace(subject, make_world=lambda: Moody(subject.make_world(), after))


most_tasks = pytest.mark.parametrize("task", ["spread", "foraging", pytest.param("tag", marks=pytest.mark.slow)])


@pytest.mark.parametrize("engine", ["twin", "lockstep"])
@most_tasks
def test_failures_of_either_engine_agree_with_the_real_environment(task: str, engine: str, tmp_path: Path) -> None:
    result = search(team(task), chosen(engine=engine, replay="all", **THE_PAPERS), tmp_path / "run")
    assert result.summary["failures"] == result.summary["confirmed_failures"] == len(result.failures["status"]) > 0
    assert set(result.failures["status"].tolist()) == {"confirmed"}
    if task != "foraging":  # where a small search need not find one by mutation
        assert {"seed", "mutation"} <= set(result.failures["operator"].tolist())


@most_tasks
def test_what_a_memory_needs_is_looked_at_again_and_is_what_was_seen(task: str, tmp_path: Path) -> None:
    subject, given = team(task), chosen(engine="lockstep")  # a twin need not record what is seen
    result = search(subject, given, tmp_path / "run")
    _, mutants = next((why, e) for why, e in result.folder.batches if why == "mutant")
    looked = real_engine(subject, given).seen(replace(mutants, obs=np.empty((*mutants.actions.shape, 0), np.float32)))
    before = np.arange(mutants.limit)[None, :] < mutants.start_step[:, None]
    assert before.any()
    assert np.array_equal(looked.obs[before], mutants.obs[before])


@pytest.mark.slow
def test_a_failure_that_does_not_come_out_the_same_is_kept_marked_and_counted_apart(tmp_path: Path) -> None:
    given = chosen(method="random", budget=100, theta=0.9, engine="lockstep", replay="all")
    sane = search(team(), given, tmp_path / "sane")
    assert sane.summary["failures"] > 5
    result = search(moody(team(), after=100), given, tmp_path / "moody")
    found = len(result.failures["status"])
    assert found == sane.summary["failures"]
    assert set(result.failures["status"].tolist()) == {"unstable"}
    assert (result.summary["failures"], result.summary["unstable_failures"]) == (0, found)
    assert f"{found} do not and are not counted" in summary_table(result.summary, tmp_path)
    with open(tmp_path / "moody" / "failures.csv", newline="") as file:
        assert {row["status"] for row in csv.DictReader(file)} == {"unstable"}


@pytest.mark.slow
def test_an_unstable_failure_is_left_out_of_every_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = chosen(theta=0.9, replay="all")
    whole = search(team(), given, tmp_path / "whole").summary

    def odd_ones_agree(failures: Any, _: Any) -> Any:
        agree = np.arange(len(failures)) % 2 == 1
        agree[np.argmin(jfi(totals(failures.rewards)))] = False
        return agree

    monkeypatch.setattr(replay, "agrees", odd_ones_agree)
    monkeypatch.setattr("epymarl_fairtest.campaign.run.AT_ONCE", 7)
    result = search(team(), given, tmp_path / "run")
    summary, failures = result.summary, load_failures(tmp_path / "run" / "failures.npz")
    stable = failures.take(result.failures["status"] == "confirmed")
    task, judge = team().task, Judge(INDICES["jfi"], 0.9)
    assert (summary["failures"], summary["unstable_failures"]) == (len(stable), len(failures) - len(stable))
    again = Tally(task, judge, bins=4, distinct_distance=task.distinct_distance)
    again.add(judge(stable), "execution")  # as if the others had never been found
    for name in ("unique_failures", "distinct_failures", "distinct_failures_wide", "distinct_starts", "roots",
                 "suffix_failures", "coverage"):  # fmt: skip
        assert summary[name] == again.summary()[name] < whole[name], name
    with np.load(tmp_path / "run" / "evidence.npz") as file:
        assert file["coverage_cells"].tolist() == again.cells().tolist()
    unstable = failures.id[result.failures["status"] == "unstable"]
    with np.load(tmp_path / "run" / "executions.npz") as file:
        counted = ~np.isin(file["id"], unstable)
        assert summary["index_quantiles"]["0"] == file["index"][counted].min() > whole["index_quantiles"]["0"]
        assert summary["natural_rate"]["unfair"] == ((file["index"] <= 0.9) & counted & file["random"]).sum()
    assert (summary["evaluated"], summary["undefined"]) == (whole["evaluated"], whole["undefined"])
    rate = read_run(tmp_path / "run").natural_rate()
    assert rate is not None
    assert rate.as_dict() == summary["natural_rate"]


def test_what_was_replayed_is_told_with_how_many_failures_there_are() -> None:
    def told(confirmed: int, unstable: int, failures: int) -> str:
        counts = {"confirmed_failures": confirmed, "unstable_failures": unstable, "failures": failures}
        return replay.replay_sentence(counts)

    assert told(1000, 0, 3606) == "1,000 of 3,606 failures were replayed in the real environment: 1,000 agree."
    assert told(998, 2, 3604).endswith("1,000 of 3,606 failures were replayed in the real environment: 998 agree,"
                                       " 2 do not and are not counted.")  # fmt: skip
    assert told(0, 0, 9) == "No failure was replayed in the real environment."


@pytest.mark.parametrize(("wanted", "replayed"), [(0, 0), (5, 5), ("all", None), (10_000, None)])
def test_so_many_are_replayed_as_the_user_wants(wanted: int | str, replayed: int | None, tmp_path: Path) -> None:
    result = search(team(), chosen(method="random", budget=100, theta=0.9, replay=wanted), tmp_path / "run")
    found = result.summary["failures"]
    expected = found if replayed is None else replayed
    status = result.failures["status"].tolist()
    assert status.count("confirmed") == result.summary["confirmed_failures"] == expected < found + 1
    assert status.count("unchecked") == found - expected
    assert result.summary["ledger"].get("replay", {"episodes": 0})["episodes"] == expected


def test_the_ones_that_are_replayed_are_drawn_at_random_from_the_seed(tmp_path: Path) -> None:
    given = chosen(method="random", budget=200, theta=0.9, replay=8)
    drawn = [
        np.flatnonzero(search(team(), given, tmp_path / str(n)).failures["status"] == "confirmed").tolist()
        for n in range(2)
    ]
    assert drawn[0] == drawn[1]
    assert drawn[0] != list(range(8))


@pytest.mark.parametrize(
    ("budget", "expected"), [(100, (100, 1000)), (1000, (100, 1000)), (2000, (200, 1000)), (18_000, (300, 1000))]
)
def test_by_default_a_tenth_of_the_budget_is_replayed(budget: int, expected: tuple[int, int]) -> None:
    assert configure({"budget": budget, "replay": None}).replays == expected
    for preset in ("paper", "strict"):
        assert configure({"preset": preset, "replay": None}).replays == (300, 1000)


@pytest.mark.parametrize("stable", [True, False])
def test_where_one_of_the_drawn_ones_is_unstable_more_are_replayed(
    stable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("epymarl_fairtest.settings.schema.FEWEST_REPLAYS", 8)
    monkeypatch.setattr("epymarl_fairtest.settings.schema.REPLAYS_AFTER_ONE", 20)
    monkeypatch.setattr(replay, "agrees", lambda failures, _: np.arange(len(failures)) >= (0 if stable else 3))
    given = chosen(method="random", budget=200, theta=0.9, replay=None)
    summary = search(team(), replace(given, budget=60), tmp_path / "run").summary
    assert summary["failures"] + summary["unstable_failures"] > 20
    counts = (summary["confirmed_failures"], summary["unstable_failures"])
    assert counts == ((8, 0) if stable else (14, 6))
    assert summary["ledger"]["replay"]["episodes"] == sum(counts)


def test_replays_are_charged_to_nobody(tmp_path: Path) -> None:
    given = {"method": "random", "budget": 100, "theta": 0.9}
    without = search(team(), chosen(**given, replay=0), tmp_path / "without").summary
    replayed = search(team(), chosen(**given, replay="all"), tmp_path / "with").summary
    for name in ("executed_episodes", "executed_steps", "charged_strict", "charged_paper", "failures"):
        assert without[name] == replayed[name]


def test_one_different_bit_is_a_disagreement(tmp_path: Path) -> None:
    subject, given = team(), chosen(method="random", budget=100, theta=0.9)
    search(subject, given, tmp_path / "run")
    failures = load_failures(tmp_path / "run" / "failures.npz")
    real = real_engine(subject, given)
    again = real.execute(replay.tests_again(failures, real.seen, restorable=True))
    assert replay.agrees(failures, again).all()
    again.rewards[2, 1, 0] = np.nextafter(again.rewards[2, 1, 0], 1)
    assert np.flatnonzero(~replay.agrees(failures, again)).tolist() == [2]
