"""The fairness curve: points, what is kept, the trend, the choice, and curves of teams that were saved on the way."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from support import few_and_many, host_models, policy_folder, random_weights, record_of

from epymarl_fairtest.commands import main
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.indices.jain import jfi
from epymarl_fairtest.curve.choose import choose, verdict
from epymarl_fairtest.curve.keep import MOST, front, keep_teams, kept_steps, saved_steps
from epymarl_fairtest.curve.marks import fairest
from epymarl_fairtest.curve.point import Played, Point, point_of, read_point
from epymarl_fairtest.curve.series import FILE, append, begin, read_curve
from epymarl_fairtest.curve.story import story_of, trend_sentence
from epymarl_fairtest.curve.trend import NOT_SHOWN, WORSE, trend_of
from epymarl_fairtest.report.curve import curve_content, curve_figures
from epymarl_fairtest.report.page import make_report
from epymarl_fairtest.store.content import curve as is_curve
from epymarl_fairtest.strategies import configure
from epymarl_fairtest.team.checkpoint import load_record, load_weights, save_policy

ASKED = {
    "curve": 1, "task": "spread", "index": "jfi", "theta": 0.8, "agents": "all", "allocation": "env",
    "execution": "epsilon_greedy", "epsilon": 0.05, "temperature": 1.0, "seed": 0, "episodes": 40,
}  # fmt: skip


def played(unfair: Sequence[bool], returned: float = 3.0, undefined: Sequence[bool] = ()) -> Played:
    """Three agents in these executions: two get all where it is unfair, nobody anything where it is undefined."""
    share = np.where(np.array(unfair)[:, None], [[0.98, 0.01, 0.01]], [[1 / 3] * 3]) * returned
    if len(undefined):
        share[np.array(undefined)] = 0
    index = jfi(share)
    return Played(share, index, index <= 0.8)


def a_point(step: int, unfair: int, returned: float = 3.0, of: int = 40) -> Point:
    return point_of(step, played(np.arange(of) < unfair, returned))


# --- points -------------------------------------------------------------------------------------------


def test_a_point_says_what_its_executions_came_to() -> None:
    point = point_of(7, played([True, False, False, True], 3.0, [False, False, True, False]))
    assert (point.step, point.executions, point.unfair, point.undefined) == (7, 4, 2, 1)
    assert point.team_return == pytest.approx(3.0 * 3 / 4)
    assert point.best_off == pytest.approx((2 * 0.98 * 3 + 1) / 4)
    assert point.worst_off == pytest.approx((2 * 0.01 * 3 + 1) / 4)
    assert point.verdicts().tolist()[:2] == [1, 0]
    assert np.isnan(point.verdicts()[2])
    interval = stats.binomtest(2, 4).proportion_ci(0.95, method="exact")
    assert point.rate is not None
    assert (point.rate.low, point.rate.high) == (interval.low, interval.high)
    assert read_point(json.loads(json.dumps(point.as_dict()))) == point


def test_a_rate_is_undefined_where_nobody_receives_anything_and_a_gap_in_the_curve() -> None:
    nothing, something = point_of(1, played([False] * 4, 3.0, [True] * 4)), a_point(2, 1, of=4)
    assert nothing.rate is None
    story = story_of(type(read_nothing())(ASKED, [nothing, something]))
    assert story["points"][0]["rate"] is None
    assert is_curve(story)
    assert "rate" in str(curve_figures(story)["curve"])
    assert "not known" in trend_sentence(story_of(replace(read_nothing(), points=[nothing])))


def read_nothing() -> Any:
    from epymarl_fairtest.curve.series import Curve

    return Curve(ASKED, [])


@pytest.mark.parametrize("change", [{"unfair": 3}, {"step": -1}, {"index": float("inf")}, {"unfair_starts": "zz"}])
def test_a_point_that_cannot_be_one_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r".+"):
        read_point(a_point(1, 2).as_dict() | change)


# --- on disk ------------------------------------------------------------------------------------------


def test_a_curve_whose_last_line_is_torn_is_read_without_it(tmp_path: Path) -> None:
    path = tmp_path / FILE
    begin(path, ASKED)
    for step in (10, 20):
        append(path, a_point(step, 3))
    path.write_bytes(path.read_bytes()[:-40])
    said: list[str] = []
    assert [point.step for point in read_curve(path, said.append).points] == [10]
    assert "1 damaged line" in said[0]


@pytest.mark.parametrize("content", [b"", b"{}\n", b"\x00\xff", b"[1, 2]\n"])
def test_a_file_that_is_no_curve_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(FairTestError, match=r"curve\.jsonl' is damaged"):
        read_curve(tmp_path / FILE)


# --- what is kept -------------------------------------------------------------------------------------


def test_the_front_is_what_no_other_team_beats() -> None:
    points = [a_point(step, unfair, returned) for step, (unfair, returned) in enumerate(
        [(5, 1.0), (2, 1.0), (5, 2.0), (6, 2.0), (0, 0.5), (9, 3.0)]
    )]  # fmt: skip
    beaten = {
        a.step
        for a, b in [*combinations(points, 2), *((b, a) for a, b in combinations(points, 2))]
        if b.team_return >= a.team_return
        and b.unfair <= a.unfair
        and (b.unfair, b.team_return) != (a.unfair, a.team_return)
    }
    assert {point.step for point in front(points)} == set(range(6)) - beaten == {1, 2, 4, 5}


def test_no_more_than_ten_teams_are_kept_and_they_return_most() -> None:
    points = [a_point(step, step, 1.0 + step) for step in range(15)]
    assert kept_steps(points, "best") == set(range(15 - MOST, 15))
    assert kept_steps(points, "all") == set(range(15))
    assert kept_steps(points, "none") == set()


def test_a_team_that_is_beaten_is_let_go_and_nothing_else_in_the_folder_is_touched(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    for step, wanted in ((1, {1}), (2, {1, 2}), (3, {3})):
        keep_teams(tmp_path, wanted, step, lambda folder: folder.mkdir())
    assert saved_steps(tmp_path) == [3]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["3", "notes"]


# --- marks and the trend ------------------------------------------------------------------------------


def test_the_fairest_within_the_loss_is_found_for_negative_returns_too() -> None:
    points = [a_point(1, 0, -100.0), a_point(2, 2, -51.0), a_point(3, 8, -50.0), a_point(4, 1, -52.0)]
    near = fairest(points, 0.02)
    assert near is not None
    assert near.step == 2
    assert fairest(points, 0.0) == points[2]


def test_two_points_are_compared_as_mcnemars_exact_test_does() -> None:
    before, after = np.arange(60) < 5, (np.arange(60) < 3) | (np.arange(60) >= 45)
    trend = trend_of([point_of(1, played(before)), point_of(2, played(after))])
    assert trend is not None
    assert (trend.worse, trend.better) == (15, 2)
    assert trend.p == pytest.approx(stats.binomtest(15, 17).pvalue)
    assert trend.direction == WORSE


def test_the_trend_counts_pairs_of_points_start_by_start_and_leaves_undefined_ones_out() -> None:
    generator = np.random.default_rng(0)
    unfair, empty = generator.random((6, 50)) < 0.4, generator.random((6, 50)) < 0.3
    points = [point_of(step, played(unfair[step], 3.0, empty[step])) for step in range(6)]
    votes = np.zeros(50)
    for start in range(50):
        for a, b in combinations(range(6), 2):
            if not (empty[a, start] or empty[b, start]):
                votes[start] += int(unfair[b, start]) - int(unfair[a, start])
    trend = trend_of(points)
    assert trend is not None
    assert (trend.worse, trend.better) == ((votes > 0).sum(), (votes < 0).sum())


@few_and_many("trials", 30, 400)
def test_a_training_without_a_trend_is_rarely_said_to_have_one(trials: int) -> None:
    generator = np.random.default_rng(1)
    shown = 0
    for _ in range(trials):
        prone = generator.random(100) * 0.5  # some starts are unfair more often than others, at all points alike
        trend = trend_of([point_of(step, played(generator.random(100) < prone)) for step in range(8)])
        assert trend is not None
        shown += trend.direction != NOT_SHOWN
    assert stats.binomtest(shown, trials, 0.05, alternative="greater").pvalue > 0.001


def test_learning_to_achieve_something_is_not_said_to_make_a_team_unfair() -> None:
    """At first hardly anybody receives anything, and always unfairly; later everybody does, half of the time fairly."""
    empty = np.arange(80) >= 20
    points = [point_of(step, played([True] * 80, 3.0, empty)) for step in (1, 2)]
    points += [point_of(step, played(np.arange(80) % 2 == 0)) for step in (3, 4)]
    assert points[0].unfair < points[-1].unfair
    told = trend_sentence(story_of(replace(read_nothing(), points=points)))
    assert "Fairness got better with training" in told
    assert "in the first half of the points 100% were unfair" in told
    assert "in the second half 50%" in told


# --- choosing -----------------------------------------------------------------------------------------


def fake_play(rates: dict[int, float], returns: dict[int, float], asked: list[tuple[int, str]] | None = None) -> Any:
    """Teams with these natural rates and returns."""

    def play(step: int, name: str) -> Played:
        if asked is not None:
            asked.append((step, name))
        generator = np.random.default_rng(1 if name == "judging" else 2)
        return played(generator.random(4000) < rates[step], returns[step])

    return play


def test_a_fairer_team_within_the_loss_is_chosen_and_judged_by_executions_that_did_not_choose_it() -> None:
    asked: list[tuple[int, str]] = []
    play = fake_play({1: 0.0, 2: 0.02, 3: 0.06}, {1: 1.0, 2: 2.97, 3: 3.0}, asked)
    choice = choose([1, 2, 3], {1: a_point(1, 0, 1.0)}, play, 0.02)
    assert (choice.chosen.step, choice.shown) == (2, True)
    assert "The team of step 2 is fairer than the final one" in verdict(choice)
    assert {name for step, name in asked if step == 2} == {"choosing", "judging"}


@pytest.mark.parametrize(
    ("rates", "returns", "said"),
    [
        ({1: 0.05, 2: 0.05}, {1: 2.99, 2: 3.0}, "No checkpoint is shown to be fairer"),
        ({1: 0.01, 2: 0.05}, {1: 2.0, 2: 3.0}, "No checkpoint is shown to be fairer: of"),
    ],
)
def test_where_no_team_is_shown_to_be_fairer_it_says_so(rates: Any, returns: Any, said: str) -> None:
    choice = choose([1, 2], {}, fake_play(rates, returns), 0.02)
    assert not choice.shown
    assert said in verdict(choice)


# --- saved teams --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return host_models(tmp_path_factory.mktemp("results"))


WORK = ["--episodes", "24", "--set", "theta=0.9"]


def drawn(models: Path, out: Path, *more: str) -> dict[str, Any]:
    assert main(["curve", str(models), "--out", str(out), *WORK, *more]) == 0
    story: dict[str, Any] = json.loads((out / "curve.json").read_text())
    return story


@pytest.mark.slow
def test_models_that_a_host_saved_are_described_by_its_sacred_run(models: Path, tmp_path: Path) -> None:
    story = drawn(models, tmp_path / "out")
    assert [point["step"] for point in story["points"]] == [25, 5000, 10025]
    assert (story["final"], story["episodes"], story["theta"]) == (10025, 24, 0.9)
    assert is_curve(story)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "points", "curve.jsonl", "curve.json", "curve.svg", "curve.png",
    }  # fmt: skip
    assert story_of(read_curve(tmp_path / "out" / FILE)) == story


@pytest.mark.slow
def test_a_curve_goes_on_where_it_stopped_and_looks_at_the_weights(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = shutil.copytree(models.parent.parent, tmp_path / "results") / "models" / models.name
    whole = drawn(mine, tmp_path / "out")
    (tmp_path / "out" / "points" / "5000.json").write_text("torn")
    shutil.copy(mine / "25" / "agent.th", mine / "10025" / "agent.th")
    from epymarl_fairtest.curve import measure

    executed: list[int] = []
    play = measure.Players.play

    def counting(self: Any, checkpoint: Any, *given: Any) -> Any:
        executed.append(checkpoint.step)
        return play(self, checkpoint, *given)

    monkeypatch.setattr(measure.Players, "play", counting)
    again = drawn(mine, tmp_path / "out")
    assert executed == [5000, 10025]
    assert again["points"][:2] == whole["points"][:2]
    assert {**again["points"][2], "step": 25} == whole["points"][0]


def test_a_broken_and_a_foreign_checkpoint_are_named_and_the_others_drawn(
    models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = shutil.copytree(models.parent.parent, tmp_path / "results") / "models" / models.name
    (mine / "5000" / "agent.th").write_bytes(b"PK\x03\x04 and then nothing")
    (mine / "77").mkdir()
    other = record_of("foraging", "mlp")
    save_policy(mine / "20000", other, random_weights(other))
    (mine / "20000" / "policy.yaml").unlink()
    assert main(["curve", str(mine), "--out", str(tmp_path / "out"), *WORK]) == 1
    said = capsys.readouterr().err
    story = json.loads((tmp_path / "out" / "curve.json").read_text())
    assert [point["step"] for point in story["points"]] == [25, 10025]
    for name, why in (("5000", "is not a readable checkpoint"), ("77", "holds no agent.th"), ("20000", "does not fit")):
        assert f"{name}'" in said
        assert why in said


def test_teams_of_another_environment_and_undescribed_ones_are_no_part_of_the_curve(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Kept teams are policy folders of their own; what else lies beside them is named, whatever it is."""
    place = tmp_path / "run-curve"
    ours, other = record_of("spread", "mlp"), record_of("foraging", "mlp")
    for step, record in ((1, other), (25, ours), (50, ours)):
        save_policy(place / str(step), record, random_weights(record, step))
    save_policy(place / "75", ours, random_weights(ours))
    (place / "75" / "policy.yaml").unlink()
    assert main(["curve", str(place), "--out", str(tmp_path / "out"), *WORK]) == 1
    said = capsys.readouterr().err
    story = json.loads((tmp_path / "out" / "curve.json").read_text())
    assert [point["step"] for point in story["points"]] == [25, 50]
    for name, why in (("1", "it plays"), ("75", "is not described")):
        assert any(f"/{name}' is left out: " in line and why in line for line in said.splitlines()), said


@pytest.mark.fresh
def test_several_processes_draw_the_same_curve(models: Path, tmp_path: Path) -> None:
    assert drawn(models, tmp_path / "one") == drawn(models, tmp_path / "two", "--jobs", "2")


@pytest.mark.ray
def test_a_cluster_draws_the_same_curve(models: Path, tmp_path: Path) -> None:
    """Dask's; which cluster it is is the business of `run_all`, which tests/test_study.py looks at."""
    pytest.importorskip("distributed", reason="dask is not installed")
    assert drawn(models, tmp_path / "one") == drawn(models, tmp_path / "two", "--backend", "dask")


@pytest.mark.slow
def test_what_takes_long_is_estimated_first(models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drawn(models, tmp_path / "out", "--set", "engine=lockstep")
    first = capsys.readouterr().err.splitlines()[0]
    assert "there is no twin of" in first
    assert "24 executions take about" in first
    assert "for 3 of them" in first


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["curve", "nowhere"], "There is no folder"),
        (["curve", "."], "holds no saved teams"),
        (["curve", ".", "--episodes", "0"], "--episodes 0 is not allowed"),
        (["choose", ".", "--max-loss", "2"], "--max-loss 2.0 is not allowed"),
        (["choose", ".", "--max-loss", "nan"], "--max-loss nan is not allowed"),
        (["choose", ".", "--out", "."], "exists already"),
    ],
)
def test_bad_input_is_told_in_one_message(
    words: list[str], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    said = capsys.readouterr().err
    assert why in said
    assert "Traceback" not in said
    assert not list(tmp_path.iterdir())


def test_teams_that_nothing_describes_are_refused_with_what_to_name(
    models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = shutil.copytree(models, tmp_path / "alone" / "deep" / "models")
    assert main(["curve", str(alone), "--out", str(tmp_path / "out"), *WORK]) == 2
    assert "Name it with --config" in capsys.readouterr().err
    (config,) = models.parent.parent.glob("sacred/*/*/*/config.json")
    assert len(drawn(alone, tmp_path / "out", "--config", str(config))["points"]) == 3


def test_the_chosen_team_is_an_ordinary_policy_folder(
    models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With all of the return allowed to be lost, the fairest of the three random teams is shown to be fairer."""
    words = ["choose", str(models), "--episodes", "400", "--max-loss", "1", "--set", "theta=0.9", "--json"]
    code = main([*words, "--out", str(tmp_path / "fairest")])
    told = json.loads(capsys.readouterr().out)
    assert (code == 0) is told["shown"] is (tmp_path / "fairest").is_dir()
    assert told["shown"], told
    record = load_record(tmp_path / "fairest")
    assert record.training_steps == told["chosen"]["step"]
    ours, theirs = (load_weights(f / "agent.th") for f in (tmp_path / "fairest", models / str(record.training_steps)))
    assert all((ours[name] == theirs[name]).all() for name in theirs)
    assert told["chosen"]["unfair"] < told["final"]["unfair"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fairest"], "nothing half written is left"


# --- a run of a team that has a curve -----------------------------------------------------------------


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = policy_folder(tmp_path_factory.mktemp("team") / "policy")
    begin(folder / FILE, ASKED)
    for step, unfair in ((25, 3), (50_000, 9), (100_000, 20)):
        append(folder / FILE, a_point(step, unfair, 1.0 + step / 1e6))
    return folder


@pytest.mark.usefixtures("pages")
@pytest.mark.slow
def test_the_page_of_a_run_shows_the_curve_of_its_teams_training(team: Path, tmp_path: Path) -> None:
    words = ["run", "--policy", str(team), "--out", str(tmp_path / "run"), "--method", "random", "--budget", "40"]
    assert main([*words, "--set", "report=false"]) == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["curve"] == story_of(read_curve(team / FILE))
    page = make_report(tmp_path / "run").read_text()
    assert "How fair was it while it learned?" in page
    assert "Fairness got worse with training" in page
    assert page.count('aria-label="Line: ') == 3


def test_a_team_without_a_curve_has_none_in_its_summary_and_no_section(tmp_path: Path) -> None:
    assert curve_content(None, {}) is None
    assert curve_figures(None) == {}
    folder = policy_folder(tmp_path / "policy")
    (folder / FILE).write_text("not a curve")
    words = ["run", "--policy", str(folder), "--out", str(tmp_path / "run"), "--method", "random", "--budget", "20"]
    assert main([*words, "--set", "report=false"]) == 0
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["curve"] is None


@pytest.mark.parametrize("change", [{"final": 7}, {"points": [{}]}, {"trend": {"p": 3}}, {"max_loss": "2"}])
def test_a_summary_with_an_odd_curve_is_refused(change: dict[str, Any], team: Path) -> None:
    assert not is_curve(story_of(read_curve(team / FILE)) | change)


def test_the_settings_of_the_curve_are_checked() -> None:
    assert configure({}).curve_keep == "best"
    for name, value in (("curve_keep", "some"), ("curve_episodes", -1), ("curve_episodes", 10**6)):
        with pytest.raises(FairTestError, match=name):
            configure({name: value})


@few_and_many("seeds", 2, 10)
def test_a_point_agrees_with_the_natural_rate_of_a_run_of_the_same_team(seeds: int, tmp_path: Path) -> None:
    from epymarl_fairtest.curve.checkpoints import Checkpoint
    from epymarl_fairtest.curve.measure import Players

    folder = policy_folder(tmp_path / "team")
    players, one = Players(), Checkpoint(0, folder, load_record(folder))
    for seed in range(seeds):
        out = tmp_path / str(seed)
        words = ["run", "--policy", str(folder), "--out", str(out), "--method", "random", "--budget", "300"]
        assert main([*words, "--seed", str(seed), "--set", "report=false"]) == 0
        natural = json.loads((out / "summary.json").read_text())["natural_rate"]
        rate = point_of(0, players.play(one, configure({"method": "random"}), seed, 500)).rate
        assert rate is not None
        assert rate.low <= natural["high"]
        assert natural["low"] <= rate.high


def test_a_choice_can_be_written_as_json() -> None:
    choice = choose([1, 2], {}, fake_play({1: 0.01, 2: 0.2}, {1: 3.0, 2: 3.0}), 0.02)
    assert json.loads(json.dumps(choice.as_dict()))["chosen"]["step"] == asdict(choice)["chosen"]["step"] == 1
