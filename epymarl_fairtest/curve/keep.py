"""Which teams of a training are kept: those that no other one beats in return and natural rate, ten at most.

A team that is beaten stays beaten, so that it can be let go at once; nothing of it is needed later.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.files import cannot_write, uninterrupted
from epymarl_fairtest.curve.point import Point

MOST = 10
HALF = ".{}.tmp"  # a folder of that step, while it is written or deleted


def front(points: Sequence[Point]) -> list[Point]:
    """Those that no other beats: at least the return and at most the rate, and better in one of them."""
    known = [point for point in points if point.rate is not None]

    def beaten(point: Point) -> bool:
        return any(
            other.team_return >= point.team_return
            and other.unfair <= point.unfair
            and (other.team_return > point.team_return or other.unfair < point.unfair)
            for other in known
        )

    return [point for point in known if not beaten(point)]


def kept_steps(points: Sequence[Point], keep: str) -> set[int]:
    """The steps whose teams are kept, by the setting `curve_keep`. Of a long front those that return most."""
    if keep == "none":
        return set()
    if keep == "all":
        return {point.step for point in points}
    chosen = sorted(front(points), key=lambda point: (-point.team_return, -point.step))[:MOST]
    return {point.step for point in chosen}


def keep_teams(folder: Path, wanted: Collection[int], newest: int, save: Callable[[Path], None]) -> None:
    """Save the newest team if it is wanted, then let those go that are no longer. Each is there whole or not at all."""
    try:
        with uninterrupted():
            if newest in wanted and not (folder / str(newest)).exists():
                half = folder / HALF.format(newest)
                save(half)
                half.rename(folder / str(newest))
            for step in saved_steps(folder):
                if step not in wanted:
                    gone = (folder / str(step)).rename(folder / HALF.format(step))
                    shutil.rmtree(gone)
    except OSError as error:
        raise cannot_write(folder, error) from error


def saved_steps(folder: Path) -> list[int]:
    """The steps whose teams are in this folder, in the order of training."""
    if not folder.is_dir():
        raise FairTestError(f"There is no folder {str(folder)!r}.")
    names = [path.name for path in folder.iterdir() if is_step(path.name) and path.is_dir() and not path.is_symlink()]
    return sorted(map(int, names))


def is_step(name: str) -> bool:
    """As the hosts name the folders of their models."""
    return name.isascii() and name.isdigit() and str(int(name[:19])) == name
