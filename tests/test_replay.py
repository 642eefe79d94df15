"""`fairtest replay`: failures come out the same, or it is told where not; and what is drawn of them is true."""

from __future__ import annotations

import argparse
import io
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from PIL import Image, ImageColor, ImageShow
from support import environment, policy_folder, random_weights, record_of
from test_operators import Drift

from epymarl_fairtest.api.replaying import Difference, first_difference
from epymarl_fairtest.campaign import selection
from epymarl_fairtest.campaign.run import run
from epymarl_fairtest.campaign.selection import medoids, representative, trajectories_of, worst
from epymarl_fairtest.commands import replay as command
from epymarl_fairtest.commands.replay import add_parser
from epymarl_fairtest.core.episodes import OPERATORS, Episodes
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.indices.jain import jfi
from epymarl_fairtest.core.judged import totals
from epymarl_fairtest.report import drawing
from epymarl_fairtest.report.scenes import Scene, scene_of, worse_off
from epymarl_fairtest.store.checksum import sealed
from epymarl_fairtest.store.failures import load_failures
from epymarl_fairtest.store.run import RunFolder
from epymarl_fairtest.strategies import configure
from epymarl_fairtest.tasks import task_for
from epymarl_fairtest.tasks.scene import Body, Field
from epymarl_fairtest.tasks.spread.rules import SpreadTask
from epymarl_fairtest.team.checkpoint import save_policy
from epymarl_fairtest.team.saved import saved_team

TASKS = ("spread", "tag", "foraging")
LIMITS = {"spread": 8, "tag": 10, "foraging": 25}
SMALL: dict[str, Any] = {"rounds": 1, "generations": 2, "theta": 0.8, "batch": 48, "engine": "twin", "budget": 160,
                         "accounting": "strict", "replay": 0}  # fmt: skip


def searched(policy: Path, path: Path, **changes: Any) -> Path:
    given = configure({**SMALL, "candidates": "random", "screen": 1, **changes})
    subject = saved_team(policy, "env")
    run(subject, given, RunFolder(path), seed=5, command="test", warn=lambda message: None)
    return path


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A search with a small team in each task; the teams lie elsewhere."""
    root = tmp_path_factory.mktemp("runs")
    found = {}
    for task in TASKS:
        team = policy_folder(root / f"{task}-team", task, "gru", time_limit=LIMITS[task])
        changes: dict[str, Any] = {"budget": 300, "epsilon": 0.3} if task == "foraging" else {}
        found[task] = searched(team, root / task, **changes)
    return found


@pytest.fixture
def mine(runs: dict[str, Path], tmp_path: Path) -> Callable[[str], Path]:
    """A copy of a run to do harm to."""
    return lambda task: Path(shutil.copytree(runs[task], tmp_path / task))


def replay(*words: object) -> int:
    parser = argparse.ArgumentParser()
    add_parser(parser.add_subparsers())
    args = parser.parse_args(["replay", *map(str, words)])
    code: int = args.func(args)
    return code


def result(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, dict[str, Any]]:
    code = replay(*words, "--json")
    return code, json.loads(capsys.readouterr().out)


def failures_of(path: Path) -> Episodes:
    return load_failures(path / "failures.npz")


def scenes_of(path: Path, task: str, count: int | None = None) -> Iterator[tuple[Scene, int, Episodes]]:
    failures = failures_of(path)
    for row in range(len(failures) if count is None else count):
        yield scene_of(task_for(environment(task)), failures, row, theta=0.8), row, failures


# --- the same again -----------------------------------------------------------------------------------


@pytest.mark.parametrize("task", TASKS)
def test_every_failure_of_a_search_agrees(task: str, runs: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    failures = failures_of(runs[task])
    code, told = result(capsys, runs[task], *failures.id)
    assert (code, told["agree"], told["files"]) == (0, True, [])
    assert [one["id"] for one in told["replays"]] == failures.id.tolist()
    assert all(one["agrees"] and one["differs"] is None and one["index"] == one["index_now"] for one in told["replays"])
    assert {"seed", "mutation"} <= {one["operator"] for one in told["replays"]}
    assert [one["index"] for one in told["replays"]] == jfi(totals(failures.rewards)).tolist()


def test_without_ids_the_most_unfair_of_different_starts_are_replayed(
    runs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    failures = failures_of(runs["tag"])
    assert len(set(failures.root_seed.tolist())) > 5
    code, told = result(capsys, runs["tag"])
    assert code == 0
    index = [one["index"] for one in told["replays"]]
    assert len(index) == len({one["root_seed"] for one in told["replays"]}) == 5
    assert index == sorted(index)
    assert index[0] == jfi(totals(failures.rewards)).min()


def test_the_table_names_each_failure_once(runs: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    failures = failures_of(runs["spread"])
    first, second = failures.id[:2].tolist()
    assert replay(runs["spread"], second, first, second) == 0
    header, *lines, last = capsys.readouterr().out.splitlines()
    assert header.split() == ["id", "index", "operator", "from", "step", "root", "seed", "agrees"]
    assert [line.split()[0] for line in lines] == [str(second), str(first)]
    assert all(line.endswith("yes") for line in lines)
    assert last.startswith("2 of 2")


def test_the_team_beside_the_results_comes_first(
    mine: Callable[[str], Path], runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = mine("spread")
    change_manifest(path, policy=str(tmp_path / "gone"))
    with pytest.raises(FairTestError, match="give its folder with --policy"):
        replay(path)
    shutil.copytree(runs["spread"].parent / "spread-team", path / "policy")
    assert replay(path) == 0
    (path / "policy").rename(tmp_path / "elsewhere")
    assert replay(path, "--policy", tmp_path / "elsewhere") == 0
    assert "another team" not in capsys.readouterr().err


def change_manifest(path: Path, **changes: Any) -> None:
    manifest = json.loads((path / "manifest.json").read_text())
    del manifest["crc"]
    (path / "manifest.json").write_text(json.dumps(sealed({**manifest, **changes})))


# --- not the same -------------------------------------------------------------------------------------


def tamper(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Changes stored failures as somebody would who takes the checksums away, too."""
    with np.load(path / "failures.npz") as file:
        columns = {name: file[name] for name in file.files}
    change(columns)
    np.savez(path / "failures.npz", **columns)
    (path / "checksums.json").unlink(missing_ok=True)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("field", ["states", "actions", "rewards"])
def test_what_was_changed_in_the_store_is_told_with_step_and_field(
    field: str, task: str, mine: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    path = mine(task)
    failures = failures_of(path)
    row, other = np.flatnonzero(failures.operator == OPERATORS.index("seed"))[:2].tolist()

    def change(columns: dict[str, Any]) -> None:
        value = columns[field][row, 3, 0]
        columns[field][row, 3, 0] = (value + 1) % 5 if field == "actions" else np.nextafter(value, 9)

    tamper(path, change)
    code, told = result(capsys, path, failures.id[row], failures.id[other])
    assert (code, told["agree"]) == (1, False)
    assert [one["agrees"] for one in told["replays"]] == [False, True]
    assert told["replays"][0]["differs"] == {"step": 3, "field": field}
    assert replay(path, failures.id[row]) == 1
    assert f"no: other {field} from step 3 on" in capsys.readouterr().out


def test_a_changed_start_of_a_mutant_gives_another_episode(
    mine: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    path = mine("spread")
    failures = failures_of(path)
    mutants = (failures.operator == OPERATORS.index("mutation")) & (failures.start_step > 0)
    row = int(np.flatnonzero(mutants & (failures.start_step < failures.length - 1))[0])
    start = int(failures.start_step[row])

    def change(columns: dict[str, Any]) -> None:
        columns["states"][row, start, :2] += 0.25

    tamper(path, change)
    code, told = result(capsys, path, failures.id[row])
    differs = told["replays"][0]["differs"]
    assert code == 1
    assert differs["step"] in (start, start + 1)
    assert differs["field"] != "length"


def test_a_changed_length_is_told_as_such(mine: Callable[[str], Path], capsys: pytest.CaptureFixture[str]) -> None:
    path = mine("spread")
    failures = failures_of(path)

    def change(columns: dict[str, Any]) -> None:
        columns["length"][0] -= 1

    tamper(path, change)
    code, told = result(capsys, path, failures.id[0])
    assert (code, told["replays"][0]["differs"]) == (1, {"step": LIMITS["spread"] - 1, "field": "length"})


def test_of_several_differences_the_first_is_told_and_within_a_step_the_cause(runs: dict[str, Path]) -> None:
    failures = failures_of(runs["spread"]).take([0])

    def parted(**steps: int) -> Difference:
        other = failures.take([0])
        for name, step in steps.items():
            getattr(other, name)[0, step, 0] += 1
        return first_difference(failures, other, 0)

    assert parted(rewards=2, actions=3) == Difference(2, "rewards")
    assert parted(rewards=3, actions=3) == Difference(3, "actions")
    assert parted(rewards=3, actions=3, states=3) == Difference(3, "states")
    assert parted(rewards=3, states=4) == Difference(3, "rewards")


def other_team(folder: Path, task: str, seed: int = 1, **changes: Any) -> Path:
    record = record_of(task, "gru", time_limit=LIMITS[task], **changes)
    save_policy(folder, record, random_weights(record, seed))
    return folder


def test_another_team_is_refused_unless_it_is_named_and_then_it_is_said(
    mine: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = mine("spread")
    other = other_team(path / "policy", "spread")
    with pytest.raises(FairTestError, match="other weights"):
        replay(path)
    failures = failures_of(path)
    starts = failures.id[failures.operator == OPERATORS.index("seed")][:3].tolist()
    assert replay(path, *starts, "--policy", other, "--gif", "--out", tmp_path / "out") == 1
    said = capsys.readouterr()
    assert "another team" in said.err
    assert said.out.count("no: other actions") == 3, "it stands where the failures began and does something else"
    assert len(list((tmp_path / "out").iterdir())) == 3


# --- bad input ----------------------------------------------------------------------------------------


def test_an_unknown_id_is_refused_with_the_nearest_and_where_to_find_them(runs: dict[str, Path]) -> None:
    ids = sorted(failures_of(runs["spread"]).id.tolist())
    unknown = next(number for number in range(ids[0], ids[-1]) if number not in ids)
    before, after = max(n for n in ids if n < unknown), min(n for n in ids if n > unknown)
    with pytest.raises(FairTestError) as error:
        replay(runs["spread"], ids[0], unknown)
    told = str(error.value)
    assert told.startswith(f"{unknown} is not a failure of")
    assert f"from {ids[0]} to {ids[-1]}" in told
    assert str(before) in told or str(after) in told
    assert "failures.csv" in told


def test_a_run_without_failures_has_nothing_to_replay(tmp_path: Path) -> None:
    team = policy_folder(tmp_path / "team", time_limit=4)
    path = searched(team, tmp_path / "run", method="random", budget=20, theta=0.01)
    with pytest.raises(FairTestError, match="found no failures"):
        replay(path)


def test_an_unfinished_run_is_to_be_resumed(mine: Callable[[str], Path]) -> None:
    path = mine("spread")
    (path / "summary.json").unlink()
    with pytest.raises(FairTestError, match=f"fairtest run --resume {path}"):
        replay(path)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"settings": 3, "theta": 1, "policy_digest": "", "task": ""}'])
def test_a_damaged_manifest_is_told(content: str, mine: Callable[[str], Path]) -> None:
    path = mine("spread")
    (path / "manifest.json").write_text(content)
    with pytest.raises(FairTestError, match=r"manifest\.json' is damaged"):
        replay(path)


def test_what_is_no_run_is_told(tmp_path: Path, mine: Callable[[str], Path]) -> None:
    for path, told in ((tmp_path, "is not a run"), (tmp_path / "nowhere", "There is no folder")):
        with pytest.raises(FairTestError, match=told):
            replay(path)
    path = mine("spread")
    (path / "failures.npz").unlink()
    with pytest.raises(FairTestError, match=r"failures\.npz"):
        replay(path)


def test_a_team_of_another_environment_is_refused_with_what_differs(runs: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(FairTestError, match="task tag here and spread there, time limit 10 here and 8 there"):
        replay(runs["spread"], "--policy", other_team(tmp_path / "tag", "tag"))
    size = record_of("spread", "gru").obs_size
    wider = other_team(tmp_path / "four", "spread", env_args={"N": 4}, n_agents=4, obs_size=size + 6)
    with pytest.raises(FairTestError, match="agents 4 here and 3 there"):
        replay(runs["spread"], "--policy", wider)


def test_pictures_that_cannot_be_written_are_told(runs: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("a file")
    with pytest.raises(FairTestError, match="cannot write"):
        replay(runs["spread"], "--png", "--out", tmp_path / "plain" / "below")


# --- files and windows --------------------------------------------------------------------------------


@pytest.mark.parametrize("task", TASKS)
def test_a_gif_has_a_frame_per_step_and_one_before_and_all_differ(
    task: str, mine: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    path = mine(task)
    code, told = result(capsys, path, "--gif", "--png")
    assert code == 0
    ids = [one["id"] for one in told["replays"]]
    named = [path / "report" / "replays" / f"replay-{number}.{kind}" for number in ids for kind in ("gif", "png")]
    assert told["files"] == [str(file) for file in named]
    failures = failures_of(path)
    length = dict(zip(failures.id.tolist(), failures.length.tolist(), strict=True))
    for number in ids:
        with Image.open(path / "report" / "replays" / f"replay-{number}.gif") as film:
            assert film.n_frames == length[number] + 1
            assert film.width <= 480
            frames = []
            for step in range(film.n_frames):
                film.seek(step)
                frames.append(film.convert("RGB").tobytes())
        assert len(set(frames)) == len(frames)
        with Image.open(path / "report" / "replays" / f"replay-{number}.png") as still:
            assert still.size == (drawing.WIDTH, drawing.HEIGHT)
    assert all(Path(file).stat().st_size < 200_000 for file in told["files"])


def test_the_same_failure_gives_the_same_bytes(runs: dict[str, Path], tmp_path: Path) -> None:
    for name in ("a", "b"):
        replay(runs["foraging"], *failures_of(runs["foraging"]).id[:1], "--gif", "--png", "--out", tmp_path / name)
    files = sorted(file.name for file in (tmp_path / "a").iterdir())
    assert len(files) == 2
    assert all((tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes() for name in files)


def test_nothing_is_shown_where_there_is_no_display(
    runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(command.sys, "platform", "linux")
    with pytest.raises(FairTestError, match=r"--show needs a display.*--gif"):
        replay(runs["spread"], "--show", "--png", "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_stills_are_shown_where_there_is_one_and_it_is_told_if_no_viewer_is(
    runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISPLAY", ":7")
    shown: list[Any] = []
    monkeypatch.setattr(ImageShow, "show", lambda image, title: not shown.append((image.size, title)))
    ids = failures_of(runs["spread"]).id[:2].tolist()
    assert replay(runs["spread"], *ids, "--show") == 0
    assert shown == [((drawing.WIDTH, drawing.HEIGHT), f"failure {number}") for number in ids]
    monkeypatch.setattr(ImageShow, "show", lambda image, title: False)
    with pytest.raises(FairTestError, match="no program that opens pictures"):
        replay(runs["spread"], *ids, "--show")


# --- scenes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", TASKS)
def test_a_scene_ends_with_what_was_received_and_the_index_that_was_judged(task: str, runs: dict[str, Path]) -> None:
    index = np.load(runs[task] / "failures.npz")["index"]
    for scene, row, failures in scenes_of(runs[task], task):
        assert np.array_equal(scene.received[-1], totals(failures.rewards[row]))
        assert not scene.received[0].any()
        assert scene.index == index[row]
        assert scene.steps == failures.length[row] == len(scene.received) - 1
        assert np.array_equal(scene.actions, failures.actions[row, : scene.steps])
        assert (scene.id, scene.root_seed) == (failures.id[row], failures.root_seed[row])
        assert (scene.start_step, scene.operator) == (failures.start_step[row], OPERATORS[failures.operator[row]])


@pytest.mark.parametrize("task", TASKS)
def test_the_window_holds_every_body_at_every_step(task: str, runs: dict[str, Path]) -> None:
    for scene, _, _ in scenes_of(runs[task], task):
        sides = scene.field.high - scene.field.low
        assert sides[0] == pytest.approx(sides[1])
        for body in scene.field.bodies:
            assert body.at.shape == (scene.steps + 1, 2)
            assert (body.at - body.radius >= scene.field.low).all()
            assert (body.at + body.radius <= scene.field.high).all()


def shaped(scene: Scene, shape: str) -> list[Body]:
    return [body for body in scene.field.bodies if body.shape == shape]


def test_particles_are_where_the_environment_puts_them(runs: dict[str, Path]) -> None:
    """Looked up in a simulator that is put into the state."""
    for task, others in (("spread", {"target": 3}), ("tag", {"disc": 2, "diamond": 1})):
        env, known = environment(task), task_for(environment(task))
        env.reset(seed=0)
        scene, row, failures = next(scenes_of(runs[task], task))
        for step in (0, scene.steps):
            known.write(env, failures.states[row, step], step)
            world = env.unwrapped._env.world
            moving = [agent.state.p_pos for agent in world.agents]
            drawn = [body.at[step] for body in shaped(scene, "agent") + shaped(scene, "diamond")]
            assert np.array_equal(drawn, moving)
            resting = shaped(scene, "target") + shaped(scene, "disc")
            assert np.array_equal([body.at[step] for body in resting], [one.state.p_pos for one in world.landmarks])
            sizes = [body.radius for body in shaped(scene, "agent") + shaped(scene, "diamond") + resting]
            assert sizes == [one.size for one in world.agents + world.landmarks]
        assert {shape: len(shaped(scene, shape)) for shape in others} == others
        assert [body.label for body in shaped(scene, "agent")] == ["1", "2", "3"]


def test_food_vanishes_exactly_when_it_is_loaded(runs: dict[str, Path]) -> None:
    eaten = 0
    for scene, row, failures in scenes_of(runs["foraging"], "foraging"):
        there = np.array([body.present for body in shaped(scene, "square")])
        lost = (there[:, :-1] & ~there[:, 1:]).any(axis=0)
        assert not (~there[:, :-1] & there[:, 1:]).any(), "nothing comes back"
        assert np.array_equal(lost, (failures.rewards[row, : scene.steps] > 0).any(axis=1))
        eaten += int(lost.sum())
    assert eaten > 20


def test_the_first_row_of_the_field_is_on_top_and_levels_are_told(runs: dict[str, Path]) -> None:
    env = environment("foraging").unwrapped
    scene, row, failures = next(scenes_of(runs["foraging"], "foraging"))
    task_for(env).write(env, failures.states[row, 0], 0)
    rows = env.field.shape[0]
    for body, player in zip(shaped(scene, "agent"), env.players, strict=True):
        assert body.at[0].tolist() == [player.position[1], rows - 1 - player.position[0]]
        assert body.level == player.level
    for body in shaped(scene, "square"):
        x, y = body.at[0].astype(int).tolist()
        assert env.field[rows - 1 - y, x] == int(body.label) > 0
    assert len(shaped(scene, "square")) == np.count_nonzero(env.field)


@pytest.mark.parametrize("task", TASKS)
def test_the_plain_form_is_what_the_player_expects(task: str, runs: dict[str, Path]) -> None:
    scene, _, _ = next(scenes_of(runs[task], task))
    told = json.loads(json.dumps(scene.as_json(), allow_nan=False))
    assert set(told) == {"kind", "low", "high", "bodies", "received", "start", "operator", "index", "id", "seed"}
    assert told["kind"] == ("grid" if task == "foraging" else "plane")
    assert (told["id"], told["seed"], told["start"]) == (scene.id, scene.root_seed, scene.start_step)
    assert np.array(told["received"]) == pytest.approx(scene.received, abs=5.1e-4)
    for body, plain in zip(scene.field.bodies, told["bodies"], strict=True):
        assert np.array(plain["at"]) == pytest.approx(body.at, abs=5.1e-4)
        assert plain.get("present", [1] * (scene.steps + 1)) == body.present.astype(int).tolist()
        assert ("present" in plain) == (not body.present.all())
        assert max(len(f"{abs(x)}".partition(".")[2]) for place in plain["at"] for x in place) <= 3


def test_an_undefined_index_is_null(runs: dict[str, Path]) -> None:
    failures = failures_of(runs["foraging"])
    failures.rewards[0] = 0
    assert scene_of(task_for(environment("foraging")), failures, 0).as_json()["index"] is None


# --- pictures -----------------------------------------------------------------------------------------


def pixels(image: Image.Image, colour: str, box: tuple[int, int, int, int]) -> int:
    found = np.asarray(image.crop(box).convert("RGB")) == ImageColor.getrgb(colour)
    return int(found.all(axis=-1).sum())


@pytest.mark.parametrize("task", TASKS)
def test_bars_are_as_long_as_what_was_received_and_agents_are_on_the_field(task: str, runs: dict[str, Path]) -> None:
    left, top, right, bottom = drawing.PANEL
    for scene, _, _ in scenes_of(runs[task], task, 5):
        still = Image.open(io.BytesIO(drawing.png(scene)))
        assert all(pixels(still, drawing.colour(n), drawing.FIELD) > 50 for n in range(3))
        ends = []
        for n in range(3):  # a column through each bar, beside the agent's sign
            x = round(left + (n + 0.5) * (right - left) / 3) - 13
            column = np.asarray(still.crop((x, top + 84, x + 1, bottom - 44)))[:, 0]
            rows = np.flatnonzero((column == ImageColor.getrgb(drawing.colour(n))).all(axis=-1))
            ends.append((rows.min(), rows.max()) if len(rows) else (np.nan, np.nan))
        heights = np.nan_to_num(np.diff(ends, axis=1)[:, 0])
        size = np.abs(scene.received[-1])
        assert heights.max() > 80
        assert heights == pytest.approx(size / size.max() * heights.max(), abs=6)  # frames take some of it
        from_zero = np.array(ends)[:, 0 if task != "foraging" else 1]
        assert np.nanmax(from_zero) - np.nanmin(from_zero) <= 3, "less than nothing hangs down, more stands up"


def test_the_colours_of_the_agents_survive_in_a_gif(runs: dict[str, Path]) -> None:
    scene, _, _ = next(scenes_of(runs["foraging"], "foraging"))
    with Image.open(io.BytesIO(drawing.gif(scene))) as film:
        film.seek(film.n_frames - 1)
        last = film.convert("RGB")
    drawn = drawing.frame(scene, scene.steps)
    for n in range(3):
        assert pixels(last, drawing.colour(n), drawing.FIELD) >= pixels(drawn, drawing.colour(n), drawing.FIELD) > 50
    gap = np.abs(np.asarray(last, float) - np.asarray(drawn, float))
    assert gap.mean() < 1.5
    assert gap.max() < 90


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("kind", ["as it is", "none"])
def test_a_film_shows_of_each_step_what_is_drawn_of_it_by_itself(task: str, kind: str, runs: dict[str, Path]) -> None:
    palette = drawing._palette(3)
    colours = np.array(palette.getpalette(), np.uint8).reshape(-1, 3)
    for scene, _, _ in scenes_of(runs[task], task, 3):
        shown = scene if kind == "as it is" else replace(scene, field=replace(scene.field, kind=kind))
        with Image.open(io.BytesIO(drawing.gif(shown))) as film:
            for step in range(scene.steps + 1):
                film.seek(step)
                alone = drawing.frame(shown, step).quantize(palette=palette, dither=Image.Dither.NONE)
                assert np.array_equal(np.asarray(film.convert("RGB")), colours[np.asarray(alone)])


@pytest.mark.parametrize("task", TASKS)
def test_a_mutation_is_marked_where_it_happened_and_from_then_on(task: str, runs: dict[str, Path]) -> None:
    scene = next(s for s, _, _ in scenes_of(runs[task], task) if s.operator == "mutation" and s.start_step > 0)
    assert scene.happened == f"mutated at step {scene.start_step}"
    plain = replace(scene, operator="action")  # the same without a sign

    def fields(step: int) -> list[bytes]:
        return [drawing.frame(one, step).crop(drawing.FIELD).tobytes() for one in (scene, plain)]

    before, after = fields(scene.start_step - 1), fields(scene.steps)
    assert before[0] == before[1]
    assert after[0] != after[1]


def reshaped(scene: Scene, **changes: Any) -> Scene:
    """The scene with everything but its agents changed."""
    bodies = [body if body.shape == "agent" else replace(body, **changes) for body in scene.field.bodies]
    return replace(scene, field=replace(scene.field, bodies=bodies))


def test_what_a_task_calls_a_shape_that_nobody_knows_is_drawn_as_a_disc(runs: dict[str, Path]) -> None:
    scene, _, _ = next(scenes_of(runs["tag"], "tag"))
    still = {shape: drawing.png(reshaped(scene, shape=shape, label="x")) for shape in (*drawing.SHAPES, "hexagon", "")}
    assert still["hexagon"] == still[""] == still["disc"]
    assert len({still[shape] for shape in drawing.SHAPES}) == len(drawing.SHAPES) == 4


def test_what_is_gone_leaves_a_cross_whatever_its_shape_and_trails_are_drawn_where_wanted(
    runs: dict[str, Path],
) -> None:
    scene, _, _ = next(scenes_of(runs["tag"], "tag"))
    gone = np.zeros(scene.steps + 1, bool)
    crosses = {drawing.png(reshaped(scene, shape=shape, present=gone)) for shape in drawing.SHAPES}
    assert len(crosses) == 1
    assert crosses != {drawing.png(reshaped(scene, shape="disc"))}
    assert drawing.png(reshaped(scene, trail=True)) != drawing.png(reshaped(scene, trail=False))
    still = [replace(body, trail=False) for body in scene.field.bodies]
    assert drawing.png(replace(scene, field=replace(scene.field, bodies=still))) != drawing.png(scene)


class Crowded(SpreadTask):
    """Draws somebody who is not under test as an agent."""

    def field(self, states: Any) -> Field:
        drawn = super().field(states)
        return replace(drawn, bodies=[*drawn.bodies, drawn.bodies[-1]])


def test_a_task_must_draw_every_agent_once(runs: dict[str, Path]) -> None:
    with pytest.raises(FairTestError, match="'spread' draws 4 bodies of the shape 'agent' for 3 agents"):
        scene_of(Crowded(environment("spread")), failures_of(runs["spread"]), 0)


@pytest.mark.parametrize(
    ("received", "worse"),
    [
        ([-25.0, -4.0, -5.0], [True, False, False]),
        ([0.25, 0.0, 0.0], [False, True, True]),
        ([-90.0, -10.0, -80.0], [True, False, True]),
        ([1.0, 1.0, 1.0], [False, False, False]),
        ([-2.0, 3.0], [True, False]),
    ],
)
def test_worse_off_is_who_ends_nearer_to_the_least(received: list[float], worse: list[bool]) -> None:
    assert worse_off(np.array(received)).tolist() == worse


class Wide(Drift):
    """An environment that FairTest knows nothing of."""

    n_agents = 2


def test_where_no_places_are_known_the_rewards_are_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    gymnasium.register("Wide-v0", Wide, disable_env_checker=True)
    try:
        team = policy_folder(
            tmp_path / "team", key="Wide-v0", time_limit=10, n_agents=2, n_actions=3, obs_size=2, obs_agent_id=True
        )
        path = searched(team, tmp_path / "run", method="random", budget=60, theta=0.9, engine="auto")
        code, told = result(capsys, path, "--gif")
        task = saved_team(team, "env").task
    finally:
        del gymnasium.registry["Wide-v0"]
    assert (code, task.name) == (0, "generic")
    failures = failures_of(path)
    scene = scene_of(task, failures, 0)
    assert (scene.field.kind, scene.field.bodies) == ("none", [])
    assert np.array_equal(scene.received[-1], totals(failures.rewards[0]))
    with Image.open(told["files"][0]) as film:
        assert film.n_frames == 11
        film.seek(10)
        last = film.convert("RGB")
    assert all(pixels(last, drawing.colour(n), drawing.FIELD) > 50 for n in range(2))


# --- which to show ------------------------------------------------------------------------------------


def test_the_worst_come_first_and_one_of_each_start_before_the_second_of_any() -> None:
    index = np.array([0.5, 0.3, 0.3, 0.2, 0.6, 0.1])
    roots = np.array([7, 8, 7, 8, 9, 8])
    assert worst(index, 3).tolist() == [5, 3, 1]
    assert worst(index, 4, roots).tolist() == [5, 2, 4, 3]
    assert worst(index, 99, roots).tolist() == [5, 2, 4, 3, 1, 0]
    assert worst(index[:0], 5, roots[:0]).tolist() == []


def grouped(sizes: list[int], noise: float = 0.05) -> tuple[Any, Episodes, np.ndarray]:
    """Failures of spread whose agents walk about one of several places each; which group each is of."""
    task = task_for(environment("spread"))
    generator = np.random.default_rng(3)
    group = generator.permutation(np.repeat(np.arange(len(sizes)), sizes))
    count, limit = len(group), 6
    states = np.zeros((count, limit + 1, task.state_size))
    places = generator.uniform(-3, 3, (len(sizes), 1, 3, 2))
    task.everyone(states)[..., :2] = places[group] + noise * generator.normal(size=(count, limit + 1, 3, 2))
    whole = np.zeros(count, np.int64)
    short = np.zeros(count, np.int32)
    length = np.where(np.arange(count) % 3, limit, limit - 2).astype(np.int32)
    return task, Episodes(
        states, np.zeros((count, limit, 3, 0), np.float32), np.zeros((count, limit, 3), np.int16),
        np.zeros((count, limit, 3)), np.zeros((count, limit, 3, 5), np.float32), length, whole,
        np.zeros(count, np.uint64), short, short, np.zeros(count, np.int8), whole, np.arange(count),
    ), group  # fmt: skip


@pytest.mark.parametrize("sizes", [[30, 20, 10], [5, 80, 12, 40], [500, 300, 150, 50, 25]])
def test_medoids_are_of_different_groups_the_largest_first_and_always_the_same(sizes: list[int]) -> None:
    task, failures, group = grouped(sizes)
    found = representative(*trajectories_of(task, failures), len(sizes))
    assert [sizes[number] for number in group[found]] == sorted(sizes, reverse=True)
    assert representative(*trajectories_of(task, failures), len(sizes)).tolist() == found.tolist()


def test_only_so_many_failures_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    monkeypatch.setattr(selection, "medoids", lambda apart, count: seen.append(len(apart)) or medoids(apart, count))
    task, failures, _ = grouped([900, 300])
    representative(*trajectories_of(task, failures), 2)
    assert seen == [selection.MOST]


def test_a_gallery_reads_few_of_many_failures() -> None:
    """With many agents they fill gigabytes."""
    task, failures, _ = grouped([900, 600, 300])
    asked: list[int] = []

    def load(rows: Any) -> Any:
        asked.append(len(rows))
        return trajectories_of(task, failures.take(rows))

    index = np.linspace(0.2, 0.7, len(failures))
    lowest, typical = selection.failures_to_watch(index, np.arange(len(failures)), np.arange(len(failures)), load)
    assert (len(lowest), len(typical), asked) == (selection.EACH, selection.EACH, [selection.MOST])


def test_there_are_no_more_medoids_than_different_trajectories() -> None:
    task, failures, group = grouped([4, 3], noise=0)
    failures.length[:] = failures.limit
    found = representative(*trajectories_of(task, failures), 5)
    assert group[found].tolist() == [0, 1]
    assert representative(*trajectories_of(task, failures.take(slice(0, 1))), 5).tolist() == [0]
    assert representative(*trajectories_of(task, failures.take(slice(0, 0))), 5).tolist() == []


def test_no_swap_of_a_medoid_brings_the_others_nearer() -> None:
    best = 0
    for seed in range(10):
        points = np.random.default_rng(seed).normal(size=(14, 2))
        apart = np.linalg.norm(points[:, None] - points, axis=-1)
        found = medoids(apart, 3).tolist()

        def cost(chosen: Any, apart: np.ndarray = apart) -> float:
            return float(apart[list(chosen)].min(axis=0).sum())

        swaps = [[*found[:i], other, *found[i + 1 :]] for i in range(3) for other in range(14)]
        assert len(set(found)) == 3
        assert all(cost(swap) >= cost(found) - 1e-9 for swap in swaps)
        best += cost(found) <= min(map(cost, combinations(range(14), 3))) + 1e-9
    assert best >= 7, "mostly it is the best there is"


def test_the_command_is_known_before_anything_heavy_is_loaded() -> None:
    program = "import sys, epymarl_fairtest.commands.replay; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert "numpy" in loaded
    assert not loaded & {"torch", "PIL", "sklearn", "matplotlib"}
