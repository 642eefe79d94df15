"""`fairtest repair`: control and repaired teams, chosen on some starts and judged on others, with an honest verdict."""

from __future__ import annotations

import importlib
import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support import lean_copy, policy_folder

from epymarl_fairtest.commands import main
from epymarl_fairtest.core.episodes import random_tests
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.indices import INDICES
from epymarl_fairtest.core.numbers import percent
from epymarl_fairtest.core.shipped import shipped
from epymarl_fairtest.curve.point import Played, curve_judge, point_of
from epymarl_fairtest.host import trainer as host_trainer
from epymarl_fairtest.repair.contract import Diverged, Lesson, Trained
from epymarl_fairtest.repair.document import odd, read_repair
from epymarl_fairtest.repair.interaction import interaction_of
from epymarl_fairtest.repair.regressions import STREAMS, regressions, repeated
from epymarl_fairtest.repair.verdict import ONE_SIDED, VERDICTS, chosen, judge, overall
from epymarl_fairtest.strategies import configure
from epymarl_fairtest.study import backends
from epymarl_fairtest.team.checkpoint import digest, load_record, load_weights, save_policy
from epymarl_fairtest.team.saved import saved_team

# --- verdicts -----------------------------------------------------------------------------------------


def played(gap: float, *, level: float = 10.0, seed: int = 0, size: int = 4000) -> Played:
    """Two agents; the better-off receives `gap` more, or nothing in a tenth of the episodes."""
    generator = np.random.default_rng(seed)
    received = np.column_stack([np.full(size, level), level + gap * generator.random(size) * 10])
    index = INDICES["jfi"](received)
    return Played(received, index, index <= 0.8)


BEFORE = played(4.0)


def test_a_lower_rate_with_a_gain_for_the_worst_off_is_a_repair() -> None:
    told = judge(BEFORE, played(4.0, seed=1), played(1.0, level=12.0), max_loss=1.0)
    assert (told.verdict, told.falls, told.gains) == ("repaired", True, True)


def test_a_lower_rate_without_a_gain_for_the_worst_off_is_levelling_down() -> None:
    told = judge(BEFORE, played(4.0, seed=1), played(1.0), max_loss=1.0)
    assert (told.verdict, told.falls, told.gains) == ("levelled down", True, False)
    assert "better-off receive less" in told.why


def test_a_repair_that_loses_too_much_return_is_none() -> None:
    told = judge(BEFORE, played(4.0, seed=1), played(1.0, level=12.0), max_loss=0.02)
    assert told.verdict == "not repaired"
    assert not told.within
    assert percent(told.loss) in told.why


def test_there_is_no_gain_without_the_control() -> None:
    """What more ordinary training achieves as well is no repair, whatever the team before was."""
    better = played(1.0, level=12.0)
    assert judge(BEFORE, better, better, max_loss=1.0).verdict == "not repaired"
    assert judge(better, BEFORE, better, max_loss=1.0).verdict == "not repaired"


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ((2, 2, 0), 2),
        ((2, 1, 0), 1),
        ((2, 0, 0), 0),
        ((2, 2, 1), 2),
        ((1, 2), 1),
        ((2, 0), 0),
        ((2,), 2),
    ],
)
def test_the_verdict_of_all_seeds_is_what_more_than_half_of_them_show(verdicts: Any, expected: int) -> None:
    assert overall([VERDICTS[one] for one in verdicts]) == VERDICTS[expected]


def test_the_weight_is_the_fairest_within_the_loss_and_without_one_the_least_loss() -> None:
    points = [point_of(0, played(gap, level=level)) for gap, level in ((2.5, 10.0), (3.0, 11.0), (5.0, 12.0))]
    before = point_of(0, played(4.0))
    rates = [point.unfair for point in points]
    assert rates[0] < rates[1] < rates[2]
    allowed = (before.team_return - points[1].team_return) / before.team_return + 0.001
    assert chosen(before, points, allowed) == 1
    assert chosen(before, points[:1], 0.0) == 0


# --- regressions --------------------------------------------------------------------------------------


def chances(probability: Any, seed: int, starts: int = 2000) -> Played:
    """Executions of `starts` starts, STREAMS of each, unfair with a probability that may differ by start."""
    generator = np.random.default_rng(seed)
    by_start = np.broadcast_to(np.asarray(probability, float), (starts,))
    unfair = generator.random((starts, STREAMS)) < by_start[:, None]
    index = np.where(unfair, 0.5, 0.9).ravel()
    return Played(np.ones((starts * STREAMS, 2)), index, unfair.ravel())


def test_a_team_that_did_not_change_makes_hardly_a_start_newly_unfair() -> None:
    """A single execution would call a tenth of them newly unfair."""
    before, same = chances(0.1, 0), chances(0.1, 1)
    assert same.unfair[~before.unfair].mean() > 0.08
    assert regressions(before, same).share < 0.005


def test_starts_that_turn_are_counted_beyond_what_the_control_shows() -> None:
    before = chances(np.repeat([0.0, 1.0], 1000), 0)
    control = chances(np.repeat([0.9, 0.0, 1.0], [20, 980, 1000]), 1)
    repaired = chances(np.repeat([0.9, 0.0], [50, 1950]), 2)
    found = regressions(before, repaired, control)
    assert (found.formerly_fair, found.newly_unfair, found.share) == (1000, 50, 0.05)
    assert found.beyond == pytest.approx(0.03)
    assert found.beyond_high == pytest.approx(0.03 + ONE_SIDED * np.sqrt(0.03 * 0.97 / 1000))
    assert regressions(before, control, control).beyond == 0.0
    never = regressions(chances(1.0, 0), repaired, control)
    assert (never.formerly_fair, never.share, never.beyond) == (0, 0.0, None)


def test_a_start_is_repeated_with_exploration_of_its_own() -> None:
    tests = random_tests(3, 4, np.random.default_rng(0))
    again = repeated(tests, np.random.default_rng(1))
    assert (again.root_seed.reshape(3, STREAMS) == tests.root_seed[:, None]).all()
    assert len(np.unique(again.stream)) == 3 * STREAMS


# --- which welfare ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "welfare"),
    [("lbf-qmix", "gini"), ("mpe-qmix", "jain"), pytest.param("pp-qmix", "jain", marks=pytest.mark.slow)],
)
def test_the_welfare_follows_from_whether_agents_affect_one_another(name: str, welfare: str) -> None:
    team, settings = saved_team(shipped("policies") / name, "env"), configure({"method": "random"})
    found = interaction_of(team, settings, curve_judge(settings, team.task))
    assert found.welfare == welfare
    assert percent(found.share) in found.sentence()


# --- the command --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fake:
    """Trains nothing: makes a team that is known beforehand. `diverging`: weights at which it fails."""

    diverging: tuple[float, ...] = ()
    learner: Mapping[str, Any] = field(default_factory=dict)

    def check(self, policy: Path) -> dict[str, Any]:
        load_record(policy)
        return {"host": "nobody"}

    def train(self, lesson: Lesson, out: Path) -> Trained:
        TRAINED.append((lesson.seed, lesson.shaping.weight if lesson.shaping else None))
        if lesson.shaping and lesson.shaping.weight in self.diverging:
            raise Diverged("training diverged")
        weights = load_weights(lesson.policy / "agent.th")
        scale = 1.0 if lesson.shaping is None else 1 + lesson.shaping.weight
        generator = torch.Generator().manual_seed(lesson.seed)
        changed = {name: value + 0.05 * scale * torch.randn(value.shape, generator=generator)
                   for name, value in weights.items()}  # fmt: skip
        save_policy(out, replace(load_record(lesson.policy), training_steps=lesson.steps), changed)
        return Trained(lesson.steps, ("nothing was learned",))


TRAINED: list[tuple[int, float | None]] = []


def serially(work: Any, items: Any, place: Any) -> Iterator[Any]:
    return ((item, work(item)) for item in items)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    TRAINED.clear()
    monkeypatch.setattr(backends, "run_all", serially)
    monkeypatch.setattr(host_trainer, "HostTrainer", Fake)
    return monkeypatch


QUICK = ["--executions", "120", "--steps", "100", "--weight", "1", "--weight", "2", "--seeds", "2", "--jobs", "1"]
ONE = ["--executions", "120", "--steps", "100", "--weight", "1", "--seeds", "1", "--jobs", "1"]  # of everything
SEARCH = ["--method", "random", "--budget", "40"]


def repair(*words: Any) -> int:
    return main(["repair", *map(str, words)])


@pytest.mark.slow
def test_a_repair_leaves_teams_a_document_a_page_and_a_figure(
    tmp_path: Path, fake: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    team, out = policy_folder(tmp_path / "team"), tmp_path / "out"
    code = repair("--policy", team, "--out", out, *QUICK, *SEARCH, "--json")
    document = json.loads(capsys.readouterr().out)
    assert document == read_repair(out)
    assert code == {"repaired": 0, "levelled down": 3, "not repaired": 1}[document["verdict"]]
    assert document["welfare"]["why"] in (out / "index.html").read_text()
    assert (out / "trade-off.svg").stat().st_size > 1000
    for seed in (0, 1):
        for arm in ("control", "repaired"):
            saved_team(out / f"seed-{seed}" / arm, "env")
            (entry,) = (entry for entry in document[arm] if entry["seed"] == seed)
            assert entry["executions"] == 120
            assert entry["policy"] == f"seed-{seed}/{arm}"
            assert entry["low"] <= entry["rate"] <= entry["high"]
            assert entry["search"]["failures"] >= entry["search"]["distinct_failures"]
            assert 0 <= entry["newly_unfair"] <= 1
            assert entry["formerly_fair"] <= 12
            assert entry["regression"]["unfair"] <= entry["regression"]["failures"]
    assert len(document["points"]) == 6
    assert sum(point["chosen"] for point in document["points"]) == 2
    assert [(seed, weight) for seed in (0, 1) for weight in (None, 1.0, 2.0)] == TRAINED
    repair("--policy", team, "--out", out, *QUICK, *SEARCH, "--json")
    assert len(TRAINED) == 6, "finished arms were trained again"
    assert json.loads(capsys.readouterr().out)["repaired"] == document["repaired"]


@pytest.mark.slow
def test_the_table_of_repairs_grows_by_seeds(tmp_path: Path, fake: pytest.MonkeyPatch) -> None:
    fake.syspath_prepend(Path(__file__).resolve().parents[1] / "tools")
    tool = importlib.import_module("repair_page")
    fake.setattr(tool, "DATA", tmp_path / "repair.csv")
    team, out = policy_folder(tmp_path / "team"), tmp_path / "lbf-iql"
    for seeds in ("1", "2"):
        repair("--policy", team, "--out", out, *QUICK, *SEARCH, "--seeds", seeds, "--learner", "lr=0.01")
        tool.take([out])
    rows = tool.read(tool.DATA)
    document = read_repair(out)
    assert [(row["arm"], row["seed"]) for row in rows] == [
        ("before", ""), ("control", "0"), ("control", "1"), ("repaired", "0"), ("repaired", "1"),
    ]  # fmt: skip
    assert [float(row["rate"]) for row in rows[3:]] == [entry["rate"] for entry in document["repaired"]]
    (line,) = [line for line in tool.table(rows).splitlines() if line.startswith("| lbf-iql")]
    assert line.split(" | ")[1:6] == [f"{document['steps']:,}", "1, 2", "30%", "lr=0.01", "2"]
    (line,) = [line for line in tool.table(rows, tool.BRIEFLY).splitlines() if line.startswith("| lbf-iql")]
    assert line.split(" | ")[1:3] == [f"{document['steps']:,}", "2"]
    fake.setattr(tool, "FIGURE", tmp_path / "repairs.png")
    tool.draw(rows)
    assert tool.FIGURE.read_bytes().startswith(b"\x89PNG")


def test_what_testers_find_after_repairs_is_a_line_per_team_and_method(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[1] / "tools")
    tool = importlib.import_module("repair_page")
    rows = [
        {"policy": f"lbf-qmix-{seed}-{arm}", "variant": "scout", "distinct_failures": distinct, "distinct_starts": 9}
        for seed, arm, distinct in (("1", "control", "500"), ("2", "control", "600"), ("1", "repaired", "300"))
    ]
    assert tool.testers_table(rows).splitlines()[2:] == ["| lbf-qmix | scout | 550 | 300 | 9 | 9 |"]


@pytest.mark.slow
def test_a_finished_run_is_repaired_with_its_own_settings_and_failures(
    tmp_path: Path, fake: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    team, run, out = policy_folder(tmp_path / "team"), tmp_path / "run", tmp_path / "out"
    main(["run", "--policy", str(team), "--out", str(run), *SEARCH, "--set", "theta=0.9", "--seed", "7"])
    capsys.readouterr()
    repair(run, "--out", out, *ONE)
    document = read_repair(out)
    assert document["theta"] == 0.9
    assert document["before"]["search"]["failures"] == json.loads((run / "summary.json").read_text())["failures"]
    assert document["before"]["policy"] == str(team)
    assert document["sentence"] in capsys.readouterr().out
    assert repair(run, "--out", tmp_path / "other", *ONE, "--budget", "5") == 2
    assert "own settings" in capsys.readouterr().err


@pytest.mark.slow
def test_an_arm_that_diverges_is_stopped_and_named_and_the_others_go_on(
    tmp_path: Path, fake: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.setattr(host_trainer, "HostTrainer", lambda learner: Fake(diverging=(2.0,)))
    team, out = policy_folder(tmp_path / "team"), tmp_path / "out"
    repair("--policy", team, "--out", out, *QUICK, *SEARCH)
    document = read_repair(out)
    assert [one["arm"] for one in document["stopped"]] == ["seed 0 weight-2", "seed 1 weight-2"]
    assert {entry["weight"] for entry in document["repaired"]} == {1.0}
    assert "seed 0 weight-2 was stopped: training diverged" in capsys.readouterr().out
    fake.setattr(host_trainer, "HostTrainer", lambda learner: Fake(diverging=(1.0,)))
    assert repair("--policy", team, "--out", tmp_path / "none", *ONE, *SEARCH) == 2
    assert "No seed was trained to its end" in capsys.readouterr().err
    assert not (tmp_path / "none" / "repair.json").exists()


@pytest.mark.slow
def test_what_was_half_done_when_a_repair_was_killed_is_done_again(tmp_path: Path, fake: pytest.MonkeyPatch) -> None:
    team, out = policy_folder(tmp_path / "team"), tmp_path / "out"
    repair("--policy", team, "--out", out, *QUICK, *SEARCH)
    whole = read_repair(out)
    TRAINED.clear()
    (out / "repair.json").unlink()
    shutil.move(out / "seed-1" / "control", out / "seed-1" / ".control.tmp")  # as a kill in the middle leaves it
    (out / "seed-0" / "weight-1" / "measured.npz").unlink()
    repair("--policy", team, "--out", out, *QUICK, *SEARCH)
    assert TRAINED == [(0, 1.0), (1, None)]
    again = read_repair(out)
    assert [again[name] for name in ("control", "points")] == [
        [{**entry, "training_cpu_seconds": new["training_cpu_seconds"]} if "steps" in entry else entry
         for entry, new in zip(whole[name], again[name], strict=True)]
        for name in ("control", "points")
    ]  # fmt: skip


@pytest.mark.slow
def test_the_fairest_checkpoint_of_the_training_is_judged_beside(tmp_path: Path, fake: pytest.MonkeyPatch) -> None:
    team, run = policy_folder(tmp_path / "team", training_steps=300), tmp_path / "run"
    main(["run", "--policy", str(team), "--out", str(run), *SEARCH])
    record, weights = load_record(team), load_weights(team / "agent.th")
    for step in (100, 200):
        changed = {name: value * (1 + step / 1000) for name, value in weights.items()}
        save_policy(run / "curve" / str(step), replace(record, training_steps=step), changed)
    repair(run, "--out", tmp_path / "out", *ONE)
    document = read_repair(tmp_path / "out")
    assert document["checkpoint"]["candidates"] == 2
    assert document["checkpoint"]["step"] in (100, 200)
    assert document["checkpoint"]["executions"] == 120


@dataclass(frozen=True)
class Ruin(Fake):
    """Trains teams that do nothing but explore."""

    def train(self, lesson: Lesson, out: Path) -> Trained:
        weights = load_weights(lesson.policy / "agent.th")
        weights["fc2.bias"][0] = 1e6
        save_policy(out, load_record(lesson.policy), weights)
        return Trained(lesson.steps, ())


def test_a_loss_that_no_weight_keeps_within_is_no_repair_and_exit_code_1(
    tmp_path: Path, fake: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.setattr(host_trainer, "HostTrainer", Ruin)
    quick = ["--executions", "120", "--steps", "100", "--seeds", "1", "--jobs", "1", "--max-loss", "0", "--json"]
    team, out = shipped("policies") / "lbf-qmix", tmp_path / "out"
    assert repair("--policy", team, "--out", out, "--welfare", "gini", *quick, *SEARCH) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["verdict"] == "not repaired"
    assert all(point["return"] < document["before"]["return"] for point in document["points"])


def test_ctrl_c_says_that_the_same_command_continues(
    tmp_path: Path, fake: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(work: Any, items: Any, place: Any) -> Iterator[Any]:
        yield items[0], work(items[0])
        raise KeyboardInterrupt

    fake.setattr(backends, "run_all", stopped)
    team, out = policy_folder(tmp_path / "team"), tmp_path / "out"
    assert repair("--policy", team, "--out", out, *QUICK, *SEARCH) == 130
    assert "the same command continues" in capsys.readouterr().err
    assert (out / "before" / "measured.npz").is_file()
    assert not (out / "repair.json").exists()


@pytest.mark.slow
def test_an_environment_without_a_twin_is_told_with_an_estimate_and_a_changed_team_is_refused(
    tmp_path: Path, fake: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    team, run = policy_folder(tmp_path / "team", time_limit=5), tmp_path / "run"
    main(["run", "--policy", str(team), "--out", str(run), *SEARCH, "--set", "engine=lockstep"])
    capsys.readouterr()
    repair(run, "--out", tmp_path / "out", *ONE)
    assert "per arm" in capsys.readouterr().err
    weights = load_weights(team / "agent.th")
    save_policy(team, load_record(team), {name: value + 1 for name, value in weights.items()})
    assert repair(run, "--out", tmp_path / "other", *ONE) == 2
    assert "other weights" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


@pytest.mark.slow
def test_a_full_disk_stops_the_arm_and_leaves_nothing_half_written(
    tmp_path: Path, fake: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from epymarl_fairtest.repair import arms

    write = arms.write_arrays

    def full(path: Path, arrays: Any) -> None:
        if ".weight-2" in str(path):
            raise FairTestError("FairTest cannot write it: No space left on device.")
        write(path, arrays)

    fake.setattr(arms, "write_arrays", full)
    team, out = policy_folder(tmp_path / "team"), tmp_path / "out"
    repair("--policy", team, "--out", out, *QUICK, *SEARCH, "--seeds", "1")
    assert "weight-2 was stopped: FairTest cannot write it: No space left" in capsys.readouterr().out
    assert not list(out.rglob(".*.tmp"))
    assert not (out / "seed-0" / "weight-2").exists()


BAD = {
    "--share 1.5": "share from 0 to 1",
    "--max-loss -0.1": "share from 0 to 1",
    "--max-loss nan": "share from 0 to 1",
    "--steps 0": "--steps 0 is not allowed",
    "--executions 0": "--executions 0 is not allowed",
    "--seeds none": "--seeds 'none' is neither",
    "--weight -1": "above 0",
    "--welfare gini --weight 3": "at most 1",
    "--jobs 0": "at least 1",
    "--learner lr": "is not NAME=VALUE; for example --learner lr=0.001",
    "--learner lr=[0.1": "the value is not YAML",
    "--address tcp://x:1": "--backend dask",
}


@pytest.mark.parametrize("words", BAD)
def test_bad_input_is_refused_before_anything_is_written(
    words: str, tmp_path: Path, fake: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    team = policy_folder(tmp_path / "team")
    assert repair("--policy", team, "--out", tmp_path / "out", *words.split()) == 2
    assert BAD[words] in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_folders_that_hold_something_else_are_left_alone(
    tmp_path: Path, fake: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    team, out = policy_folder(tmp_path / "team"), tmp_path / "out"
    assert repair("--policy", team, "--out", team, *ONE, *SEARCH) == 2
    assert "holds no repair" in capsys.readouterr().err
    assert repair("--out", out) == 2
    assert "either a finished RUN or --policy" in capsys.readouterr().err
    assert repair("--policy", team, "--out", out, *ONE, *SEARCH) in (0, 1, 3)
    capsys.readouterr()
    assert repair("--policy", team, "--out", out, *ONE, *SEARCH, "--steps", "101") == 2
    assert "steps 100 there, 101 now" in capsys.readouterr().err


def test_a_document_that_was_changed_is_refused(tmp_path: Path) -> None:
    assert "before" in odd({})
    assert odd([]) == ["everything"]
    (tmp_path / "repair.json").write_text('{"verdict": "splendid"}')
    with pytest.raises(FairTestError, match="verdict"):
        read_repair(tmp_path)


@pytest.mark.slow
def test_a_shipped_team_is_repaired_with_a_real_host_the_same_way_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(backends, "run_all", serially)
    monkeypatch.setattr(host_trainer, "RELEARNED", 2)
    monkeypatch.delenv("EPYMARL_HOME", raising=False)
    team = lean_copy(shipped("policies") / "lbf-qmix", tmp_path / "team")
    for name in ("a", "b"):
        words = ["--steps", "1000", "--executions", "120", "--seeds", "1", "--weight", "1", *SEARCH]
        assert repair("--policy", team, "--out", tmp_path / name, *words) in (0, 1, 3)
    one, other = (digest(load_weights(tmp_path / name / "seed-0" / "repaired" / "agent.th")) for name in ("a", "b"))
    assert one == other
    assert any("learner.th is not in the policy folder" in note for note in read_repair(tmp_path / "a")["notes"])
