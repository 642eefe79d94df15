"""A curve on disk: `curve.jsonl`, one sealed line for what was asked and one per point, and nothing half written.

Lines are appended while training runs, so that a training that is killed leaves what it had measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.curve.point import Point, read_point
from epymarl_fairtest.settings import Settings
from epymarl_fairtest.store.checksum import unsealed
from epymarl_fairtest.store.journal import append_journal, journal_line
from epymarl_fairtest.store.read import damaged

FILE = "curve.jsonl"
FOLDER = "curve"  # in a run folder: curve.jsonl, and the kept teams in folders named by their steps
FORMAT = 1
LONGEST = 100_000_000  # bytes
ASKED = ("index", "theta", "agents", "allocation", "execution", "epsilon", "temperature")


@dataclass(frozen=True)
class Curve:
    """Points in the order of training, and how they were measured."""

    asked: Mapping[str, Any]  # what must agree for two points to be compared
    points: Sequence[Point] = field(default_factory=list)

    @property
    def episodes(self) -> int:
        return int(self.asked["episodes"])


def asked_for(
    settings: Settings, *, task: str, theta: float, allocation: str, seed: int, episodes: int
) -> dict[str, Any]:
    """What every point of a curve has in common."""
    values = {**settings.as_dict(), "theta": theta, "allocation": allocation}
    return {
        "curve": FORMAT,
        "task": task,
        **{name: values[name] for name in ASKED},
        "seed": seed,
        "episodes": episodes,
    }


def begin(path: Path, asked: Mapping[str, Any]) -> None:
    append_journal(path, asked)


def append(path: Path, point: Point) -> None:
    append_journal(path, point.as_dict())


def content_of(curve: Curve) -> bytes:
    return b"".join(journal_line(entry) for entry in (curve.asked, *(point.as_dict() for point in curve.points)))


def read_curve(path: Path, warn: Callable[[str], None] | None = None) -> Curve:
    """The curve in a file. A torn last line, as a kill leaves it, and damaged ones are left out with a warning."""
    try:
        if path.exists() and not path.is_file():
            raise damaged(path, "it is no file")
        if path.stat().st_size > LONGEST:
            raise damaged(path, f"it is longer than {LONGEST:,} bytes")
        lines = [line for line in path.read_bytes().split(b"\n") if line]
    except OSError as error:
        raise FairTestError(f"{str(path)!r} cannot be read: {error.strerror or error}.") from error
    try:
        asked = unsealed(lines[0])
        if asked.get("curve") != FORMAT or not all(name in asked for name in (*ASKED, "task", "seed", "episodes")):
            raise ValueError("its first line says nothing of a curve")
    except (IndexError, ValueError) as error:
        raise damaged(path, f"it is not a curve ({error})") from error
    points: dict[int, Point] = {}
    torn = 0
    for line in lines[1:]:
        try:
            point = read_point(unsealed(line))
        except (ValueError, TypeError):
            torn += 1
            continue
        points[point.step] = point
    if torn and warn is not None:
        warn(f"{str(path)!r} has {torn} damaged line{'s' * (torn > 1)}, left out; the other points are drawn.")
    return Curve(asked, [points[step] for step in sorted(points)])
