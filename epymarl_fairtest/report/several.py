"""Several runs on one page, side by side: methods on one team, or teams under one method.

Each keeps its own numbers, and what cannot be compared is said. `fairtest compare` decides whether a difference is more
than chance.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from epymarl_fairtest.campaign.cautions import cautions
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.files import write_atomically
from epymarl_fairtest.core.numbers import percent
from epymarl_fairtest.report import opening
from epymarl_fairtest.report.one_file import one_file
from epymarl_fairtest.report.page import team_of
from epymarl_fairtest.report.view import View, view_of
from epymarl_fairtest.report.wording import number, starts, threshold
from epymarl_fairtest.store.finished import read_run

ALIKE: dict[str, Callable[[View], Any]] = {  # must be the same for rates to be compared -> how a run tells it
    "task": lambda view: view.record.manifest["task"],
    "environment": lambda view: view.record.manifest.get("key"),
    "fairness index": lambda view: view.index_name,
    "threshold": lambda view: threshold(view.theta),
    "allocation": lambda view: view.record.settings["allocation"],
}


def make_side_by_side(paths: Sequence[Path], out: Path) -> Path:
    """Write the page of these runs to `out`."""
    if len({path.resolve() for path in paths}) < len(paths):
        raise FairTestError("A run is named twice; name each once.")
    if not out.resolve().parent.is_dir():
        raise FairTestError(f"--out {str(out)!r} must be a file in a folder that exists.")
    views = [view_of(read_run(path)) for path in paths]
    content = html_of(views, out).encode()
    write_atomically(out, lambda file: file.write(content))
    return out


def html_of(views: Sequence[View], out: Path) -> str:
    return one_file(
        "several.html",
        f"FairTest: {len(views)} runs",
        runs=[one_run(view, out, highest(views)) for view in views],
        unlike=unlike(views),
        rows=[(name, [value(view) for view in views]) for name, value in ROWS.items()],
    )


def highest(views: Sequence[View]) -> float:
    """The end of the line that all natural rates are drawn on."""
    return max((view.rate.high for view in views if view.rate), default=1.0)


def one_run(view: View, out: Path, most: float) -> dict[str, Any]:
    page = view.record.path / "report" / "index.html"
    return {
        "name": view.record.path.resolve().name,
        "team": team_of(view),
        "page": os.path.relpath(page.resolve(), out.resolve().parent) if page.is_file() else "",
        "rate": opening.rate_card(view.rate) | {"interval": view.rate and opening.interval_of(view.rate, most)},
        "answers": opening.answers(view)[1:],
        "cautions": cautions(view.summary),
    }


def unlike(views: Sequence[View]) -> str:
    """What the runs differ in that makes their rates incomparable."""
    values_of = {name: list(dict.fromkeys(str(of(view)) for view in views)) for name, of in ALIKE.items()}
    apart = [f"{name} ({', '.join(values)})" for name, values in values_of.items() if len(values) > 1]
    return f"These runs differ in {'; '.join(apart)}: their rates cannot be compared." if apart else ""


ROWS: dict[str, Callable[[View], str]] = {
    "method": lambda view: f"{view.summary['method']} ({view.summary.get('preset')})",
    "seed": lambda view: str(view.summary["seed"]),
    "budget": lambda view: f"{number(view.summary['charged_strict'])} episodes",
    "unfair executions found": lambda view: number(view.summary["failures"]),
    "different failures": lambda view: number(view.summary["distinct_failures"]),
    "at three times the distance": lambda view: number(view.summary.get("distinct_failures_wide") or 0),
    "starts": lambda view: number(starts(view.summary)),
    "coverage": lambda view: percent(float(view.summary["coverage"])),
    "return": lambda view: opening.return_card(view)[0]["value"] if opening.return_card(view) else "unknown",
    "CPU seconds": lambda view: f"{float(view.summary.get('cpu_seconds') or 0):.0f}",
}
