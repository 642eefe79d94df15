"""`fairtest curve`: fairness over the training of teams that were saved on the way, with FairTest or without."""

from __future__ import annotations

import json
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epymarl_fairtest.commands.arguments import add_setting_arguments, given_settings, warn
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.numbers import as_given, percent, with_interval

if TYPE_CHECKING:
    from epymarl_fairtest.curve.checkpoints import Checkpoint
    from epymarl_fairtest.curve.series import Curve
    from epymarl_fairtest.settings import Settings

ORDER = 105
OUT = "fairtest-curve"
EPISODES = 500
TRIED = 8  # executions that estimate the time of an environment without a twin
MOST = 100_000


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "curve",
        help="fairness over a training, from the teams that were saved on the way",
        epilog="example: fairtest curve results/models/NAME --episodes 500 --out curve",
    )
    add_place_arguments(parser)
    parser.add_argument("--out", type=Path, metavar="DIR", help=f"folder of the curve; continued ({OUT} in the first)")
    parser.add_argument("--backend", choices=("processes", "dask", "ray"), default="processes", help="(processes)")
    parser.add_argument("--address", help="of the cluster, e.g. tcp://HOST:8786 (dask) or HOST:6379 (ray)")
    parser.add_argument("--jobs", type=int, default=1, help="teams at a time on this machine (1)")
    parser.add_argument("--timeout", type=float, default=20.0, help="seconds to wait for the cluster (20)")
    parser.set_defaults(func=curve)


def add_place_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("place", type=Path, metavar="RUN|MODELS", help="run folder, or the models that a host saved")
    parser.add_argument("--episodes", type=int, help=f"random executions per team ({EPISODES})")
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="sacred's config.json of the training, or a policy.yaml"
    )
    add_setting_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def curve(args: Namespace) -> int:
    from epymarl_fairtest.curve.checkpoints import curve_file
    from epymarl_fairtest.curve.series import read_curve
    from epymarl_fairtest.curve.story import story_of

    check_numbers(args)
    recorded = curve_file(args.place)
    if recorded is not None and args.episodes is None and not _given(args):
        drawn = read_curve(recorded, warn)
        whole = True
    else:
        drawn, whole = measured(args, args.out or args.place / OUT)
    if not drawn.points:
        raise FairTestError(f"No team of {str(args.place)!r} could be executed; the messages above say why.")
    story = story_of(drawn)
    files = written(args.out or args.place / OUT, drawn, story, title_of(args.place))
    print(json.dumps(story) if args.json else "\n".join([text_of(story), "", *map(str, files)]))
    return 0 if whole else 1


def check_numbers(args: Namespace) -> None:
    if args.episodes is not None and not 1 <= args.episodes <= MOST:
        raise FairTestError(f"--episodes {args.episodes} is not allowed; it must be a whole number from 1 to {MOST:,}.")
    if getattr(args, "jobs", 1) < 1:
        raise FairTestError(f"--jobs {args.jobs} is not allowed; it must be a whole number of at least 1.")
    if getattr(args, "address", None) and args.backend == "processes":
        raise FairTestError(f"--address {args.address} needs --backend dask or --backend ray.")


def _given(args: Namespace) -> dict[str, Any]:
    """Settings alone: --out is no run folder here."""
    return {name: value for name, value in given_settings(args).items() if name != "out"}


def settings_of(args: Namespace, record: Any) -> Settings:
    """As given, else those of the curve that was drawn during training, else the defaults."""
    from epymarl_fairtest.curve.checkpoints import curve_file
    from epymarl_fairtest.curve.series import ASKED, read_curve
    from epymarl_fairtest.strategies import configure

    recorded = curve_file(args.place)
    before: Mapping[str, Any] = {} if recorded is None else read_curve(recorded).asked
    unless = {name: before[name] for name in ASKED if name in before}
    values = {"method": "random", "allocation": record.allocation, **unless, **_given(args)}
    if recorded is not None:
        values.setdefault("seed", before["seed"])
    return configure({name: value for name, value in values.items() if value is not None})


def measured(args: Namespace, out: Path) -> tuple[Curve, bool]:
    """Every saved team plays, or is read back; those that cannot are named. Was none left out?"""
    from epymarl_fairtest.curve.checkpoints import checkpoints_of
    from epymarl_fairtest.curve.measure import Job, asked_of, measure
    from epymarl_fairtest.curve.point import read_point
    from epymarl_fairtest.curve.series import Curve
    from epymarl_fairtest.study.backends import Place, run_all

    left_out: list[str] = []
    checkpoints = checkpoints_of(args.place, args.config, left_out.append)
    for message in left_out:
        warn(message)
    if not checkpoints:
        raise FairTestError(f"No team of {str(args.place)!r} can be read; the messages above name their files.")
    settings = settings_of(args, checkpoints[0].record)
    episodes = args.episodes or EPISODES
    say_estimate(checkpoints, settings, episodes)
    whole = [replace(one, folder=one.folder.resolve()) for one in checkpoints]  # workers may be in another folder
    jobs = [Job(one, settings, settings.root_seed(), episodes, out.resolve()) for one in whole]
    _make(out)
    place = Place(args.backend, min(args.jobs, len(jobs)), args.address, args.timeout, None, (out.resolve(),))
    points = {}
    said: set[str] = set()
    for number, (job, result) in enumerate(run_all(measure, jobs, place), 1):
        step, folder = job.checkpoint.step, job.checkpoint.folder
        if "error" in result:
            left_out.append(f"[{number}/{len(jobs)}] {str(folder)!r} is left out: {result['error']}")
            warn(left_out[-1])
            continue
        for message in set(result["warnings"]) - said:
            said.add(message)
            warn(message)
        points[step] = read_point(result["point"])
        print(f"fairtest: [{number}/{len(jobs)}] step {step:,}: {points[step].rate or 'undefined'}", file=sys.stderr)
    return Curve(asked_of(jobs[0]), [points[step] for step in sorted(points)]), not left_out


def say_estimate(checkpoints: Sequence[Checkpoint], settings: Settings, episodes: int) -> None:
    """Before anything that may take long: an environment without a twin is tried first."""
    from epymarl_fairtest.campaign.observers import duration
    from epymarl_fairtest.curve.measure import Players
    from epymarl_fairtest.curve.player import has_twin

    players = Players()
    for one in checkpoints:
        try:
            team = players.team(one, settings)
            if has_twin(team.task, team.environment, settings):
                return
            began = time.perf_counter()
            players.play(one, settings, settings.root_seed(), TRIED, "estimate")
        except FairTestError:
            continue  # it is named when its turn comes
        once = (time.perf_counter() - began) / TRIED * episodes
        warn(
            f"there is no twin of {one.record.key!r}: {episodes} executions take about {duration(once)} per team,"
            f" {duration(once * len(checkpoints))} for {len(checkpoints)} of them one after the other (--jobs,"
            " --episodes)"
        )
        return


def _make(out: Path) -> None:
    from epymarl_fairtest.core.files import cannot_write

    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(out, error) from error


def written(out: Path, drawn: Curve, story: Mapping[str, Any], name: str) -> list[Path]:
    """curve.jsonl, the story as JSON, and the figure."""
    from epymarl_fairtest.core.files import json_bytes, write_bytes
    from epymarl_fairtest.curve.series import FILE, content_of
    from epymarl_fairtest.report.libraries import needed_for

    with needed_for("fairtest curve"):
        from epymarl_fairtest.report.compare_figure import drawn as as_file
        from epymarl_fairtest.report.curve import curve_figure
    _make(out)
    figure = curve_figure(story, name)
    content = {FILE: content_of(drawn), "curve.json": json_bytes(story)}
    content |= {f"curve.{ending}": as_file(figure, ending) for ending in ("svg", "png")}
    for file, text in content.items():
        write_bytes(out / file, text)
    return [out / "curve.png", out / "curve.json"]


def title_of(place: Path) -> str:
    """The training's name: that of the folder, or of the one above where it says nothing."""
    path = place.resolve()
    return path.parent.name if path.name in ("checkpoints", "models", "curve") else path.name


def text_of(story: Mapping[str, Any]) -> str:
    """A line per point, marks at their points, and the sentences."""
    from epymarl_fairtest.curve.story import choice_sentence, trend_sentence

    rows: list[tuple[str, ...]] = [
        ("step", "return", "natural rate", "index", "worst off", "best off", "undefined", "")
    ]
    names = {"final": "final", "best_return": "best return", "fairest": f"fairest within {as_given(story['max_loss'])}"}
    for point in story["points"]:
        marks = ", ".join(name for mark, name in names.items() if story[mark] == point["step"])
        rate = "-" if point["rate"] is None else with_interval(point["rate"], point["low"], point["high"])
        index = "-" if point["index"] is None else f"{point['index']:.3f}"
        amounts = [f"{point[name]:.3f}" for name in ("return", "worst_off", "best_off")]
        rows.append((f"{point['step']:,}", amounts[0], rate, index, *amounts[1:], percent(point["undefined"]), marks))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(f"{cell:>{w}}" for cell, w in zip(row[:-1], widths, strict=False)) for row in rows]
    lines = [f"{line}  {row[-1]}".rstrip() for line, row in zip(lines, rows, strict=True)]
    return "\n".join([*lines, "", trend_sentence(story), choice_sentence(story)]).rstrip()
