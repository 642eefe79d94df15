"""`fairtest choose`: the fairest checkpoint of a training that loses little return, judged on fresh executions.

Exit code 0: a fairer team than the final one is shown, and copied. 1: none is shown, and nothing is copied.
"""

from __future__ import annotations

import json
import math
import shutil
import tempfile
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epymarl_fairtest.commands.arguments import warn
from epymarl_fairtest.commands.curve import OUT, add_place_arguments, check_numbers, say_estimate, settings_of
from epymarl_fairtest.core.errors import FairTestError

if TYPE_CHECKING:
    from epymarl_fairtest.curve.checkpoints import Checkpoint
    from epymarl_fairtest.curve.point import Point

ORDER = 106
EPISODES = 5000
COPY = "fairest"


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "choose",
        help="the fairest checkpoint that loses little return",
        epilog="example: fairtest choose results/fairtest/RUN --max-loss 0.02 --out fairest",
    )
    add_place_arguments(parser)
    parser.add_argument("--max-loss", type=float, default=0.02, metavar="SHARE", help="of the best return (0.02)")
    parser.add_argument("--out", type=Path, metavar="DIR", help=f"where the team is copied to ({COPY} in the first)")
    parser.set_defaults(func=choose)


def choose(args: Namespace) -> int:
    from epymarl_fairtest.curve.checkpoints import checkpoints_of
    from epymarl_fairtest.curve.choose import choose as chosen_of
    from epymarl_fairtest.curve.choose import verdict
    from epymarl_fairtest.curve.measure import Players

    check_numbers(args)
    if not (math.isfinite(args.max_loss) and 0 <= args.max_loss <= 1):
        raise FairTestError(f"--max-loss {args.max_loss} is not allowed; it must be a share from 0 to 1, e.g. 0.02.")
    out = args.out or args.place / COPY
    if out.exists():
        raise FairTestError(f"{str(out)!r} exists already, and is not overwritten. Choose another --out.")
    checkpoints = checkpoints_of(args.place, args.config, warn)
    if not checkpoints:
        raise FairTestError(f"No team of {str(args.place)!r} can be read; the messages above name their files.")
    settings, episodes, players = settings_of(args, checkpoints[0].record), args.episodes or EPISODES, Players()
    say_estimate(checkpoints, settings, 2 * episodes)
    usable = {one.step: one for one in checkpoints if _can_play(players, one, settings)}
    if checkpoints[-1].step not in usable:
        raise FairTestError(
            f"The final team, of step {checkpoints[-1].step:,}, cannot be executed: nothing to compare with."
        )

    def play(step: int, name: str) -> Any:
        return players.play(usable[step], settings, settings.root_seed(), episodes, name)

    choice = chosen_of(sorted(usable), _curve_points(args.place), play, args.max_loss)
    if choice.shown:
        copy_team(usable[choice.chosen.step], out)
    if args.json:
        print(json.dumps({**choice.as_dict(), "copied": str(out) if choice.shown else None}))
    else:
        print(verdict(choice))
        print(f"Copied to {out}" if choice.shown else "Nothing is copied.")
    return 0 if choice.shown else 1


def _can_play(players: Any, one: Checkpoint, settings: Any) -> bool:
    try:
        players.team(one, settings)
    except FairTestError as error:
        warn(f"{str(one.folder)!r} is left out: {error}")
        return False
    return True


def _curve_points(place: Path) -> dict[int, Point]:
    """Of the curve that was drawn while the training ran, or by `fairtest curve`; none where there is neither."""
    from epymarl_fairtest.curve.checkpoints import curve_file
    from epymarl_fairtest.curve.series import FILE, read_curve

    drawn = place / OUT / FILE
    file = curve_file(place) or (drawn if drawn.is_file() else None)
    return {} if file is None else {point.step: point for point in read_curve(file, warn).points}


def copy_team(team: Checkpoint, out: Path) -> None:
    """An ordinary policy folder, there whole or not at all."""
    from epymarl_fairtest.core.files import cannot_write
    from epymarl_fairtest.team.checkpoint import load_weights, save_policy

    half: Path | None = None
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        half = Path(tempfile.mkdtemp(prefix=f".{out.name}.", suffix=".tmp", dir=out.parent))
        save_policy(half, team.record, load_weights(team.folder / "agent.th"))
        half.chmod(0o755)
        half.rename(out)
    except OSError as error:
        raise cannot_write(out, error) from error
    finally:
        if half is not None and half.exists():
            shutil.rmtree(half, ignore_errors=True)
