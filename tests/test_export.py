"""`fairtest export`: the written tests fail for the team they come from and pass for one that was repaired."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support import lean_copy, policy_folder
from test_search import chosen, search, walkers

from epymarl_fairtest.commands import export as exporting
from epymarl_fairtest.commands import main
from epymarl_fairtest.commands.export import Candidates
from epymarl_fairtest.core.episodes import operator_code
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.indices.jain import jfi
from epymarl_fairtest.core.judged import totals
from epymarl_fairtest.core.shipped import shipped
from epymarl_fairtest.engine.action_rules import choose
from epymarl_fairtest.engine.contract import ActionRule
from epymarl_fairtest.store.failures import load_failures
from epymarl_fairtest.store.finished import read_run
from epymarl_fairtest.store.scenarios import Scenarios, load_scenarios, save_scenarios, scenarios_of
from epymarl_fairtest.team.checkpoint import load_record, load_weights, save_policy
from epymarl_fairtest.team.contract import CHUNK
from epymarl_fairtest.team.saved import saved_team
from epymarl_fairtest.testing.regression import Outcome, replay, replay_failure

TEAM = shipped("policies") / "mpe-qmix"
KINDS = {  # team -> how its run is made: the shipped one, and one with a memory of what it saw
    "spread": ["--budget", "400", "--set", "theta=0.8", "--seed", "1"],
    "tag": ["--budget", "300", "--set", "theta=0.9", "--seed", "2", "--set", "epsilon=0.2"],
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project: policies/TASK and runs/TASK."""
    root = tmp_path_factory.mktemp("project")
    lean_copy(TEAM, root / "policies" / "spread")
    policy_folder(root / "policies" / "tag", "tag", "gru", time_limit=15)
    for task, options in KINDS.items():
        words = ["--policy", str(root / "policies" / task), "--out", str(root / "runs" / task), *options]
        assert main(["run", *words]) == 0
    return root


def perturbed(team: Path, folder: Path, seed: int, size: float = 0.3) -> Path:
    """The team with other weights, as further training would leave it; whether it is better is for the test to say."""
    weights, generator = load_weights(team / "agent.th"), torch.Generator().manual_seed(seed)
    moved = {name: w + size * w.std() * torch.randn(w.shape, generator=generator) for name, w in weights.items()}
    save_policy(folder, load_record(team), moved)
    return folder


def export(home: Path, task: str, file: Path, *words: str) -> int:
    return main(["export", str(home / "runs" / task), "--pytest", str(file), *words])


def pytest_on(file: Path, policy: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "FAIRTEST_POLICY"}
    if policy is not None:
        environment["FAIRTEST_POLICY"] = str(policy)
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", str(file)]
    return subprocess.run(command, capture_output=True, text=True, cwd=file.parent, env=environment)


def args(**given: Any) -> Namespace:
    return Namespace(**{"ids": None, "worst": None, "representative": None, **given})


# --- the written file, run by pytest ------------------------------------------------------------------


@pytest.mark.fresh
def test_the_file_fails_on_the_team_it_comes_from_and_passes_on_a_repaired_one(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = home / "tests" / "test_fairness_regression.py"
    assert export(home, "spread", written, "--worst", "3", "--json") == 0
    told = json.loads(capsys.readouterr().out)["failures"]
    names = [
        f"test_fairness_regression.py::test_the_team_is_not_unfair_again[failure_{one['failure']}]" for one in told
    ]
    text = written.read_text()
    assert len(names) == 3
    assert str(home) not in text
    assert '"../policies/spread"' in text
    assert len(text.splitlines()) < 35

    for name in ("tests", "policies"):  # a project may move
        shutil.copytree(home / name, tmp_path / name)
    file = tmp_path / "tests" / written.name
    unfair = pytest_on(file)
    assert unfair.returncode == 1, unfair.stdout
    assert unfair.stdout.splitlines()[-1].startswith("3 failed")
    for name, one in zip(names, told, strict=True):
        assert f"FAILED {name}" in unfair.stdout
        assert (
            f"failure {one['failure']}: Jain's index {one['index']:.4f} is unfair, does not exceed 0.8" in unfair.stdout
        )
        assert ", ".join(f"agent {n} {x:.4g}" for n, x in enumerate(one["received"], 1)) in unfair.stdout

    scenarios = load_scenarios(file.with_name("test_fairness_regression_failures.npz"))
    teams = (perturbed(TEAM, tmp_path / str(seed), seed) for seed in range(400))
    repaired = next(team for team in teams if not any(o.unfair for o in replay(scenarios, saved_team(team, "env"))))
    fair = pytest_on(file, repaired)
    assert fair.returncode == 0, fair.stdout
    assert all(f"PASSED {name}" in fair.stdout for name in names)


def test_smallest_examples_are_exported_as_starts_from_which_the_team_is_unfair(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    words = ["--policy", str(TEAM), "--out", str(run), "--set", "explain=10"]
    assert main(["run", *words, *KINDS["spread"]]) == 0
    capsys.readouterr()
    assert main(["export", str(run), "--pytest", str(tmp_path / "test_small.py"), "--smallest", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["failures"]
    entries = json.loads((run / "explain.json").read_text())["failures"]
    small = {entry["id"]: entry["smallest"] for entry in entries if entry["smallest"]}
    assert small
    assert {one["failure"] for one in told} == set(small)
    assert all(one["unfair"] and one["start_step"] == 0 for one in told)
    rows = load_scenarios(tmp_path / "test_small_failures.npz").rows
    for number, states in zip(rows["id"].tolist(), rows["states"], strict=True):
        assert states[0].tolist() == small[number]["state"]


def test_a_run_without_smallest_examples_says_so(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bare = shutil.copytree(home / "runs" / "spread", tmp_path / "bare")
    for name in ("explain.json", "explain.npz"):
        (bare / name).unlink(missing_ok=True)
    assert main(["export", str(bare), "--pytest", str(tmp_path / "test_small.py"), "--smallest"]) != 0
    assert "holds no smallest examples" in capsys.readouterr().err
    assert not (tmp_path / "test_small.py").exists()


# --- what is played -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("task", KINDS)
def test_every_failure_of_a_search_comes_out_the_same_with_the_same_team(task: str, home: Path) -> None:
    run = read_run(home / "runs" / task)
    failures = load_failures(run.path / "failures.npz")
    team = saved_team(home / "policies" / task, "env")
    kinds = set(failures.operator.tolist())
    assert {operator_code("seed"), operator_code("mutation")} <= kinds
    facts = {"theta": run.theta, "index": "jfi", **{name: run.settings[name] for name in HOW}}
    outcomes = replay(scenarios_of(failures, failures.length * 1.0, facts), team)
    received = totals(failures.rewards)
    for row, outcome in enumerate(outcomes):
        assert (outcome.failure, outcome.length) == (failures.id[row], failures.length[row])
        assert outcome.received == tuple(received[row].tolist())
        assert outcome.index == jfi(received)[row]
        assert outcome.unfair


HOW = ("execution", "epsilon", "temperature")


@pytest.mark.parametrize("task", KINDS)
def test_another_team_acts_by_itself_from_the_same_start(task: str, home: Path, tmp_path: Path) -> None:
    """Against one world, stepped by hand: what was seen and done before the start is the old team's, the rest not."""
    run, team = read_run(home / "runs" / task), home / "policies" / task
    failures = load_failures(run.path / "failures.npz")
    late = np.flatnonzero((failures.start_step > 2) & (failures.operator == operator_code("mutation")))[:4]
    early = np.flatnonzero(failures.start_step == 0)[:2]
    file = tmp_path / "test_some.py"
    ids = failures.id[np.concatenate([late, early])].tolist()
    assert len(late) >= 2
    assert export(home, task, file, "--ids", *map(str, ids)) == 0
    other = perturbed(team, tmp_path / "other", 3, size=0.6)
    differing = 0
    for row, number in zip([*late, *early], ids, strict=True):
        outcome = replay_failure(tmp_path / "test_some_failures.npz", number, other)
        received, inherited = by_hand(failures, int(row), other, run.settings)
        assert outcome.received == pytest.approx(tuple(received), abs=1e-12)
        assert outcome.inherited == pytest.approx(tuple(inherited), abs=1e-12)
        assert outcome.index == pytest.approx(float(jfi(received)), abs=1e-12)
        assert outcome.unfair == (jfi(received) <= run.theta)
        differing += outcome.received != tuple(totals(failures.rewards)[row].tolist())
    assert differing >= len(ids) - 1


def by_hand(failures: Any, row: int, policy: Path, settings: dict[str, Any]) -> tuple[Any, Any]:
    """What each agent receives in the whole episode, and before its start."""
    team = saved_team(policy, "env")
    network, world = team.policy, team.make_world()
    how = ActionRule(*(settings[name] for name in HOW), team.available)
    hidden = np.zeros((CHUNK, network.n_agents, network.hidden_size), np.float32)
    last = np.full((CHUNK, network.n_agents), -1, np.int16)
    start, received = int(failures.start_step[row]), np.zeros(network.n_agents)
    for step in range(start):
        world.restore(failures.states[row, step], step)
        _, hidden = network.forward(np.repeat(world.obs[None], CHUNK, 0), last, hidden)
        last[:] = failures.actions[row, step]
        received += failures.rewards[row, step]
    inherited = received.copy()
    if failures.operator[row] == operator_code("seed"):
        world.reset(int(failures.root_seed[row]))
    else:
        world.restore(failures.states[row, start], start)
    for step in range(start, team.limit):
        q, hidden = network.forward(np.repeat(world.obs[None], CHUNK, 0), last, hidden)
        at = np.array([step + failures.shift[row]])
        actions = choose(q[:1], failures.stream[row : row + 1], at, how)
        world.step(actions[0])
        last[:] = actions[0]
        received += world.reward
        if world.done:
            break
    return received, inherited


def test_a_task_that_cannot_be_restored_exports_its_seeds_alone(tmp_path: Path) -> None:
    team = walkers()
    search(team, chosen(theta=0.9, epsilon=0.3), tmp_path / "run")
    run = read_run(tmp_path / "run")
    failures = load_failures(tmp_path / "run" / "failures.npz")
    candidates = Candidates(failures, run, team.task)
    rows = candidates.chosen(args(worst=10_000))
    seeds = failures.operator == operator_code("seed")
    assert seeds.sum() < len(seeds)
    assert sorted(rows.tolist()) == np.flatnonzero(seeds).tolist()
    facts = {"theta": 0.9, "index": "jfi", **{name: run.settings[name] for name in HOW}}
    outcomes = replay(scenarios_of(failures.take(rows), candidates.index[rows], facts), team)
    assert [outcome.index for outcome in outcomes] == candidates.index[rows].tolist()
    with pytest.raises(FairTestError, match="some actions were forced"):
        candidates.chosen(args(ids=failures.id[~seeds][:1].tolist()))


def test_nothing_received_is_not_unfair_and_is_told() -> None:
    outcome = Outcome(7, float("nan"), 0.8, "jfi", (0.0, 0.0), (0.0, 0.0), 0, 50)
    assert not outcome.unfair
    assert "nobody received anything" in outcome.sentence
    assert json.loads(json.dumps(outcome.as_dict(), allow_nan=False))["index"] is None


# --- which failures -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def candidates(home: Path) -> tuple[Candidates, Any, Any]:
    run = read_run(home / "runs" / "spread")
    failures = load_failures(run.path / "failures.npz")
    return Candidates(failures, run, saved_team(home / "policies" / "spread", "env").task), failures, run


def inherits(failures: Any, row: int, theta: float) -> bool:
    """Was it unfair before the team took over?"""
    paid = failures.rewards[row, : failures.start_step[row]]
    return bool(len(paid)) and bool(jfi(paid.sum(axis=0)) <= theta)


def test_the_worst_are_the_lowest_one_per_root_and_none_that_was_unfair_already(candidates: Any) -> None:
    pick, failures, run = candidates
    index = jfi(totals(failures.rewards))
    good = [row for row in range(len(failures)) if not inherits(failures, row, run.theta)]
    assert 5 < len(good) < len(failures)
    expected: list[int] = []
    for row in sorted(good, key=lambda row: index[row]):
        if failures.root_seed[row] not in failures.root_seed[expected]:
            expected.append(row)
    assert pick.chosen(args(worst=3)).tolist() == expected[:3]
    assert pick.chosen(args()).tolist() == expected[:5]
    everything = pick.chosen(args(worst=10_000)).tolist()
    assert everything[: len(expected)] == expected
    assert sorted(everything) == good


def test_representative_ones_are_good_ones_and_no_more_than_asked(candidates: Any) -> None:
    pick, _, _ = candidates
    rows = pick.chosen(args(representative=4)).tolist()
    assert 1 < len(set(rows)) == len(rows) <= 4
    assert set(rows) <= set(pick.chosen(args(worst=10_000)).tolist())
    assert rows != pick.chosen(args(worst=4)).tolist()


def test_named_ones_come_as_named_each_once_even_if_they_were_unfair_already(candidates: Any) -> None:
    pick, failures, run = candidates
    bad = next(row for row in range(len(failures)) if inherits(failures, row, run.theta))
    ids = [int(failures.id[bad]), int(failures.id[0]), int(failures.id[bad])]
    assert pick.chosen(args(ids=ids)).tolist() == [bad, 0]


def test_failures_with_forced_actions_are_never_chosen(candidates: Any, home: Path) -> None:
    _, failures, run = candidates
    forced = failures.take(np.arange(len(failures)))
    forced.operator[::2] = operator_code("action")
    pick = Candidates(forced, run, saved_team(home / "policies" / "spread", "env").task)
    assert all(row % 2 for row in pick.chosen(args(worst=10_000)).tolist())
    with pytest.raises(FairTestError, match=f"failure {failures.id[0]}: not exportable"):
        pick.chosen(args(ids=[int(failures.id[0]), int(failures.id[1])]))
    forced.operator[:] = operator_code("action")
    with pytest.raises(FairTestError, match=f"{len(forced)} have forced actions"):
        Candidates(forced, run, saved_team(home / "policies" / "spread", "env").task).chosen(args())


# --- files --------------------------------------------------------------------------------------------


def test_what_exists_is_not_overwritten_unless_forced(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, data = tmp_path / "test_it.py", tmp_path / "test_it_failures.npz"
    for taken in (file, data):
        taken.write_text("mine")
        assert export(home, "spread", file) == 2
        assert f"{taken} already exists; overwrite" in capsys.readouterr().err
        assert taken.read_text() == "mine"
        taken.unlink()
        assert list(tmp_path.iterdir()) == []
    file.write_text("mine")
    assert export(home, "spread", file, "--force", "--worst", "2") == 0
    assert "replay_failure" in file.read_text()
    assert len(load_scenarios(data)) == 2


@pytest.mark.parametrize("before", [None, b"older"])
def test_if_one_file_cannot_be_written_the_other_is_as_it_was(
    before: bytes | None, home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, data = tmp_path / "test_it.py", tmp_path / "test_it_failures.npz"
    file.mkdir()  # a folder cannot be replaced by a file
    if before:
        data.write_bytes(before)
    assert export(home, "spread", file, "--force") == 2
    assert str(file) in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == [file, *([data] if before else [])]
    assert before is None or data.read_bytes() == before


@pytest.fixture
def data(home: Path, tmp_path: Path) -> tuple[Path, int]:
    assert export(home, "spread", tmp_path / "test_it.py", "--worst", "1") == 0
    path = tmp_path / "test_it_failures.npz"
    return path, int(load_scenarios(path).rows["id"][0])


def test_a_data_file_holds_no_more_than_what_is_needed(data: tuple[Path, int]) -> None:
    scenarios = load_scenarios(data[0])
    latest = int(scenarios.rows["start_step"].max())
    assert scenarios.rows["actions"].shape[1] == latest
    assert scenarios.rows["states"].shape[1] == latest + 1
    assert data[0].stat().st_size < 20_000


def test_a_changed_threshold_is_noticed(data: tuple[Path, int], home: Path) -> None:
    path, number = data
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    facts = json.loads(str(arrays["facts"]))
    arrays["facts"] = np.array(json.dumps({**facts, "theta": 0.01}, sort_keys=True))
    np.savez(path, **arrays)
    with pytest.raises(FairTestError, match="does not match its checksum"):
        replay_failure(path, number, home / "policies" / "spread")


@pytest.mark.parametrize("harm", ["cut", "empty", "gone", "pickle", "text", "no column", "format"])
def test_a_damaged_data_file_is_told_and_never_executed(harm: str, data: tuple[Path, int], home: Path) -> None:
    path, number = data
    scenarios = load_scenarios(path)
    with np.load(path) as file:
        arrays: dict[str, Any] = {name: file[name] for name in file.files}
    if harm == "cut":
        path.write_bytes(path.read_bytes()[:1000])
    elif harm == "empty":
        path.write_bytes(b"")
    elif harm == "gone":
        path.unlink()
    elif harm == "text":
        path.write_text("id,index\n")
    elif harm == "pickle":
        np.savez(path, **{**arrays, "id": np.array([print], object)})
    elif harm == "no column":
        np.savez(path, **{name: array for name, array in arrays.items() if name != "stream"})
    else:
        save_scenarios(path, Scenarios({**scenarios.facts, "format": 2}, scenarios.rows))
    with pytest.raises(FairTestError, match="is missing" if harm == "gone" else "is damaged") as caught:
        replay_failure(path, number, home / "policies" / "spread")
    assert str(path) in str(caught.value)


def test_a_team_of_another_environment_cannot_play(data: tuple[Path, int], home: Path, tmp_path: Path) -> None:
    path, number = data
    with pytest.raises(FairTestError, match="task 'spread' there and 'tag' here") as caught:
        replay_failure(path, number, home / "policies" / "tag")
    assert "time_limit 25 there and 15 here" in str(caught.value)
    with pytest.raises(FairTestError, match="There is no policy folder"):
        replay_failure(path, number, tmp_path / "nowhere")
    with pytest.raises(FairTestError, match=rf"holds no failure -5, only {number}"):
        replay_failure(path, -5, home / "policies" / "spread")


# --- the command --------------------------------------------------------------------------------------


def test_another_team_may_be_named_and_what_it_does_now_is_shown(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = perturbed(TEAM, home / "policies" / "other", 3, size=0.6)
    file = tmp_path / "test_it.py"
    assert export(home, "spread", file, "--worst", "3", "--policy", str(other)) == 0
    said = capsys.readouterr().out
    assert "not the run's weights" in said
    rows = [line.split() for line in said.splitlines()[1:4]]
    for number, _, start, found, now in rows:
        outcome = replay_failure(tmp_path / "test_it_failures.npz", int(number), other)
        assert (start, now) == (str(outcome.start_step), f"{outcome.index:.4f}")
        assert found != now
    assert "policies/other" in file.read_text()


@pytest.mark.slow
def test_a_run_that_its_own_team_does_not_repeat_is_not_exported(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The threshold of a copy is lowered below what the failures have: as if another machine gave other numbers."""
    run = home / "runs" / "spread"
    copy = Path(shutil.copytree(run, tmp_path / "run"))
    (copy / "checksums.json").unlink(missing_ok=True)
    with np.load(run / "failures.npz") as file:
        columns = {name: file[name] for name in file.files}
    columns["stream"] = columns["stream"] + np.uint64(1)  # another exploration: most of them come out fair
    np.savez(copy / "failures.npz", **columns)
    policy = ["--policy", str(home / "policies" / "spread")]
    assert main(["export", str(copy), "--pytest", str(tmp_path / "test_it.py"), "--worst", "10000", *policy]) == 2
    assert "the same team is not unfair in failure" in capsys.readouterr().err
    assert not (tmp_path / "test_it.py").exists()


MISTAKES: dict[str, tuple[list[str], str]] = {
    "worst 0": (["--worst", "0"], "--worst 0 is not allowed; it must be at least 1"),
    "representative below 0": (["--representative", "-2"], "--representative -2 is not allowed"),
    "unknown ids": (["--ids", "0", "999999"], "failure 999999: not in this run"),
    "team that is not there": (["--policy", "nowhere"], "is not in 'nowhere'; give its folder with --policy"),
    "team of another task": (["--policy", "TAG"], "task 'spread' there and 'tag' here"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told_and_nothing_is_written(
    name: str, home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words, part = MISTAKES[name]
    known = load_failures(home / "runs" / "spread" / "failures.npz").id[0]
    words = [
        {"0": str(known) if "--ids" in words else "0", "TAG": str(home / "policies" / "tag")}.get(w, w) for w in words
    ]
    assert export(home, "spread", tmp_path / "test_it.py", *words) == 2
    assert part in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("file", ["regression.py", "test_it.txt", "test_it"])
def test_a_file_that_pytest_would_not_find_is_refused(
    file: str, home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert export(home, "spread", tmp_path / file) == 2
    assert "would not be found by pytest" in capsys.readouterr().err


def test_a_run_without_failures_or_without_their_file_has_nothing_to_export(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--method", "random", "--budget", "20", "--set", "theta=0.2", "--out", str(tmp_path / "fair")]
    assert main(["run", "--policy", str(TEAM), *words]) == 0
    assert main(["export", str(tmp_path / "fair"), "--pytest", str(tmp_path / "test_it.py")]) == 2
    assert "found no failures" in capsys.readouterr().err
    copy = Path(shutil.copytree(home / "runs" / "spread", tmp_path / "cell"))
    (copy / "failures.npz").unlink()
    assert main(["export", str(copy), "--pytest", str(tmp_path / "test_it.py")]) == 2
    assert "--keep-failures" in capsys.readouterr().err
    assert not (tmp_path / "test_it.py").exists()


@pytest.mark.parametrize("there", [True, False])
def test_the_message_says_so_where_pytest_is_missing(
    there: bool, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(exporting, "find_spec", lambda name: object() if there else None)
    words = [str(home / "runs" / "spread"), "--pytest", str(tmp_path / "test_fair.py"), "--worst", "1"]
    assert main(["export", *words]) == 0
    assert ("pip install pytest" in capsys.readouterr().out) != there
    assert (tmp_path / "test_fair.py").is_file()
