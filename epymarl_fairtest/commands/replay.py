"""`fairtest replay`: execute failures of a finished run again in the real environment, compare bit for bit, and draw.

What is drawn is the replay: where it agrees, it is the failure.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
from argparse import Namespace
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core.errors import FairTestError

if TYPE_CHECKING:
    from epymarl_fairtest.core.episodes import Episodes
    from epymarl_fairtest.core.judged import Judge
    from epymarl_fairtest.report.scenes import Scene
    from epymarl_fairtest.settings import Settings
    from epymarl_fairtest.team.contract import Team

ORDER = 70
MOST_UNFAIR = 5  # failures, where the user names none


@dataclass(frozen=True)
class Difference:
    """Where two episodes begin to differ."""

    step: int
    field: str  # states, length, actions or rewards


@dataclass(frozen=True)
class Replayed:
    """The outcome for one failure."""

    id: int
    index: float
    operator: str
    start_step: int
    root_seed: int
    agrees: bool
    differs: Difference | None
    index_now: float | None  # None: nobody received anything


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "replay",
        help="execute failures again in the real environment, and draw them",
        epilog="example: fairtest replay runs/1 4711 --gif",
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of a finished run")
    parser.add_argument(
        "ids", nargs="*", type=int, metavar="ID",
        help=f"failures: column id of failures.csv (the {MOST_UNFAIR} most unfair of different roots)",
    )  # fmt: skip
    parser.add_argument("--gif", action="store_true", help="write replay-ID.gif")
    parser.add_argument(
        "--png", action="store_true", help="write replay-ID.png: one still with the agents' whole paths"
    )
    parser.add_argument("--show", action="store_true", help="open the still in a viewer")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where to write them (RUN/report/replays)")
    parser.add_argument("--policy", type=Path, metavar="DIR", help="the team, or another one for comparison")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.set_defaults(func=replay_failures)


def replay_failures(args: Namespace) -> int:
    from epymarl_fairtest.core.files import refuse_link
    from epymarl_fairtest.core.indices import INDICES
    from epymarl_fairtest.core.judged import Judge
    from epymarl_fairtest.report.libraries import needed_for
    from epymarl_fairtest.report.scenes import scene_of
    from epymarl_fairtest.store.failures import load_failures
    from epymarl_fairtest.store.finished import read_run
    from epymarl_fairtest.strategies import configure

    if args.show and not display():
        raise FairTestError(
            "--show needs a display, and there is none here (neither DISPLAY nor WAYLAND_DISPLAY is set)."
            " Write files instead, with --gif or --png."
        )
    kinds = [kind for kind in ("gif", "png", "show") if getattr(args, kind)]
    if kinds:
        with needed_for(f"--{kinds[0]}"):
            import epymarl_fairtest.report.drawing  # noqa: F401  (before anything is executed)
    run = read_run(args.run, "failures.npz")
    chosen = configure(run.settings)
    judge = Judge(INDICES[chosen.index], run.theta, chosen.agents)
    failures = wanted_failures(args.run, load_failures(args.run / "failures.npz"), args.ids, judge)
    team = team_of_run(args.run, run.manifest, chosen, args.policy, failures)
    again = _executed(failures, team, chosen)
    replayed = compare(failures, again, judge)
    rows = range(len(again)) if kinds else ()
    scenes = [scene_of(team.task, again, row, chosen.index, run.theta, chosen.agents) for row in rows]
    for own in () if args.out else (args.run / "report", args.run / "report" / "replays"):
        refuse_link(own)
    files = _draw(scenes, kinds, args.out or args.run / "report" / "replays") if kinds else []
    agree = all(one.agrees for one in replayed)
    if args.json:
        replays = [asdict(one) for one in replayed]
        print(json.dumps({"agree": agree, "replays": replays, "files": [str(file) for file in files]}))
    else:
        print("\n".join([table(replayed), *map(str, files)]))
    return 0 if agree else 1


# --- the run ------------------------------------------------------------------------------------------


def wanted_failures(path: Path, failures: Episodes, ids: list[int], judge: Judge, what: str = "replay") -> Episodes:
    """The failures with these ids, or the most unfair ones."""
    from epymarl_fairtest.campaign.selection import worst

    if not len(failures):
        raise FairTestError(f"The run {str(path)!r} found no failures: there is nothing to {what}.")
    if not ids:
        return failures.take(worst(index_of(failures, judge), MOST_UNFAIR, failures.root_seed))
    known = {number: row for row, number in enumerate(failures.id.tolist())}
    for number in ids:
        if number not in known:
            near = sorted(known, key=lambda other: (abs(other - number), other))[:2]
            raise FairTestError(
                f"{number} is not a failure of {str(path)!r}; its {len(known)} failures have ids from {min(known)} to"
                f" {max(known)}, the nearest to it {' and '.join(map(str, sorted(near)))}. The column id of"
                f" {str(path / 'failures.csv')!r} lists them."
            )
    return failures.take([known[number] for number in dict.fromkeys(ids)])


def team_of_run(path: Path, manifest: dict[str, Any], chosen: Settings, given: Path | None, failures: Episodes) -> Team:
    """The team that was tested, or the one that was asked for, in an environment that the failures fit."""
    from epymarl_fairtest.team.saved import saved_team, team_folder

    folder = team_folder(path, manifest, given)
    team = saved_team(folder, chosen.allocation)
    here = (team.task.name, team.limit, team.task.n_agents, team.policy.n_actions, team.task.state_size)
    there = (manifest["task"], failures.limit, *failures.q.shape[2:], failures.states.shape[-1])
    names = ("task", "time limit", "agents", "actions", "numbers of a state")
    unlike = [f"{name} {a} here and {b} there" for name, a, b in zip(names, here, there, strict=True) if a != b]
    if unlike:
        raise FairTestError(
            f"The team in {str(folder)!r} plays in another environment than {str(path)!r} was made in:"
            f" {', '.join(unlike)}. Give the right folder with --policy."
        )
    if team.origin["policy_digest"] != manifest.get("policy_digest"):
        if given is None:
            raise FairTestError(
                f"The team in {str(folder)!r} is not the one that {str(path)!r} tested (other weights). Give the right"
                " folder with --policy; named there, another team is replayed from the same starts."
            )
        print(
            f"fairtest: {str(folder)!r} is another team than {str(path)!r} tested (other weights): it starts where the"
            " failures did and acts by itself.",
            file=sys.stderr,
        )
    return team


def _executed(failures: Episodes, team: Team, chosen: Settings) -> Episodes:
    from epymarl_fairtest.campaign.steps.replay import tests_again
    from epymarl_fairtest.engine.selection import real_engine

    real = real_engine(team, chosen)
    again = real.execute(tests_again(failures, real.seen, restorable=team.task.restorable))
    # Where nothing can be restored a replay begins with the first step, whatever was executed then.
    return replace(again, id=failures.id, start_step=failures.start_step)


# --- the result ---------------------------------------------------------------------------------------


def index_of(episodes: Episodes, judge: Judge) -> NDArray[np.float64]:
    return judge.index(judge.received(episodes.rewards))


def compare(failures: Episodes, again: Episodes, judge: Judge) -> list[Replayed]:
    from epymarl_fairtest.campaign.steps.replay import agrees
    from epymarl_fairtest.core.episodes import OPERATORS

    same, before, now = agrees(failures, again), index_of(failures, judge), index_of(again, judge)
    return [
        Replayed(
            int(failures.id[row]),
            float(before[row]),
            OPERATORS[failures.operator[row]],
            int(failures.start_step[row]),
            int(failures.root_seed[row]),
            bool(same[row]),
            None if same[row] else first_difference(failures, again, row),
            None if np.isnan(now[row]) else float(now[row]),
        )
        for row in range(len(failures))
    ]


def first_difference(stored: Episodes, again: Episodes, row: int) -> Difference:
    """The first step at which the two, which do differ, are not the same; a state is the one before its step."""
    lengths = int(stored.length[row]), int(again.length[row])
    differences = [(min(lengths), "length")] if lengths[0] != lengths[1] else []
    for name in ("states", "actions", "rewards"):
        unlike = getattr(stored, name)[row] != getattr(again, name)[row]
        if unlike.any():
            differences.append((int(unlike.reshape(len(unlike), -1).any(axis=1).argmax()), name))
    order = ("states", "length", "actions", "rewards")  # within a step, what comes first explains the rest
    return Difference(*min(differences, key=lambda one: (one[0], order.index(one[1]))))


def table(replayed: list[Replayed]) -> str:
    """One line per failure."""
    rows = [("id", "index", "operator", "from step", "root seed", "agrees")]
    for one in replayed:
        now = "undefined" if one.index_now is None else f"{one.index_now:.3f}"
        agrees = "yes"
        if one.differs:
            agrees = f"no: other {one.differs.field} from step {one.differs.step} on, index now {now}"
        rows.append((str(one.id), f"{one.index:.3f}", one.operator, str(one.start_step), str(one.root_seed), agrees))
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    lines = ["  " + "  ".join([*(f"{v:>{w}}" for v, w in zip(row, widths, strict=False)), row[5]]) for row in rows]
    agree = sum(one.agrees for one in replayed)
    lines.append(f"{agree} of {len(replayed)} failures came out the same in the real environment, bit for bit.")
    return "\n".join(lines)


# --- the pictures -------------------------------------------------------------------------------------


def display() -> bool:
    """Can a window be opened here?"""
    return sys.platform in ("darwin", "win32") or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))


def _draw(scenes: list[Scene], kinds: list[str], out: Path) -> list[Path]:
    """Files of these kinds, and windows for `show`; gives the files."""
    from epymarl_fairtest.core.files import cannot_write, write_atomically
    from epymarl_fairtest.report import drawing

    files = []
    for scene, kind in itertools.product(scenes, kinds):
        if kind == "show":
            if not drawing.show(scene):
                raise FairTestError("--show found no program that opens pictures; write files with --gif or --png.")
            continue
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise cannot_write(out, error) from error
        files.append(out / f"replay-{scene.id}.{kind}")
        write_atomically(files[-1], partial(_fill, drawing.gif(scene) if kind == "gif" else drawing.png(scene)))
    return files


def _fill(content: bytes, file: BinaryIO) -> None:
    file.write(content)
