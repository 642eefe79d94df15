"""`fairtest replay`: execute failures of a finished run again in the real environment, compare bit for bit, and draw.

What is drawn is the replay: where it agrees, it is the failure.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
from argparse import Namespace
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from epymarl_fairtest.commands.arguments import warn
from epymarl_fairtest.core.errors import FairTestError

if TYPE_CHECKING:
    from epymarl_fairtest.api.replaying import Replayed
    from epymarl_fairtest.report.scenes import Scene

ORDER = 70


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "replay",
        help="execute failures again in the real environment, and draw them",
        epilog="example: fairtest replay runs/1 4711 --gif",
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of a finished run")
    parser.add_argument(
        "ids", nargs="*", type=int, metavar="ID",
        help="failures: column id of failures.csv (the 5 most unfair of different roots)",
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
    from epymarl_fairtest.api.replaying import replay
    from epymarl_fairtest.core.files import refuse_link
    from epymarl_fairtest.report.libraries import needed_for
    from epymarl_fairtest.store.finished import read_run

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
    done = replay(run, args.ids, warn, policy=args.policy)
    scenes = [done.scene(row) for row in range(len(done.outcomes))] if kinds else []
    for own in () if args.out else (args.run / "report", args.run / "report" / "replays"):
        refuse_link(own)
    files = _draw(scenes, kinds, args.out or args.run / "report" / "replays") if kinds else []
    agree = all(one.agrees for one in done.outcomes)
    if args.json:
        replays = [asdict(one) for one in done.outcomes]
        print(json.dumps({"agree": agree, "replays": replays, "files": [str(file) for file in files]}))
    else:
        print("\n".join([table(done.outcomes), *map(str, files)]))
    return 0 if agree else 1


# --- the result ---------------------------------------------------------------------------------------


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
