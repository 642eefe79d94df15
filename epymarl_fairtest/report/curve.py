"""A fairness curve as figures and words: return, natural rate and worst-off agent over the steps of training.

Knows the story of a curve (curve/story.py), not where it comes from: a run's page and `fairtest curve` draw the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from epymarl_fairtest.core.indices import INDICES
from epymarl_fairtest.core.numbers import amount, as_given, percent, with_interval
from epymarl_fairtest.curve.story import at, choice_sentence, trend_sentence
from epymarl_fairtest.report.svg import ACCENT, GRID, INK, OURS, QUIET, element_of

PANEL, HEIGHT = 3.3, 2.5  # inches
MARKS = {"final": "s", "best_return": "^", "fairest": "o"}
NAMES = {"final": "final team", "best_return": "best return", "fairest": "fairest within {loss} of the best return"}
PARTS = {"return": "return", "rate": "natural rate", "worst_off": "worst-off agent"}


def curve_figures(story: Mapping[str, Any] | None) -> dict[str, list[str]]:
    """The drawings of the section, in the page's colours; none without points."""
    if not story or not story["points"]:
        return {}
    drawn = []
    with style.context(["default", OURS]):  # whatever the user's or the host's style is, and back to it
        for part, label in PARTS.items():
            figure = Figure(figsize=(PANEL, HEIGHT), layout="constrained")
            draw_part(figure.add_subplot(), story, part, (ACCENT, QUIET, INK, GRID))
            drawn.append(element_of(figure, f"curve-{part.replace('_', '-')}", _read_aloud(story, part, label)))
    return {"curve": drawn}


def draw_part(axes: Axes, story: Mapping[str, Any], part: str, colours: Sequence[str]) -> None:
    """One of return, rate and worst_off; what is undefined is a gap."""
    line, quiet, ink, grid = colours
    points = story["points"]
    steps = np.array([point["step"] for point in points], np.float64)

    def column(name: str) -> Any:
        return np.array([np.nan if point[name] is None else point[name] for point in points], np.float64)

    values = column(part)
    if part == "rate":
        axes.fill_between(steps, column("low"), column("high"), color=line, alpha=0.2, linewidth=0)
        undefined = column("undefined")
        if (undefined > 0).any():
            axes.plot(steps, undefined, color=quiet, linewidth=1.1, linestyle=(0, (1, 2)))
        axes.set_ylim(bottom=0)
    if part == "worst_off":
        axes.plot(steps, column("best_off"), color=quiet, linewidth=1.1, linestyle=(0, (4, 3)))
    axes.plot(steps, values, color=line, linewidth=1.6, marker=".", markersize=4)
    for mark, marker in MARKS.items():
        point = at(story, mark)
        if point is not None and point[part] is not None:
            axes.plot(point["step"], point[part], marker=marker, markersize=9, markerfacecolor="none",
                      markeredgecolor=ink, markeredgewidth=1.5, linestyle="none")  # fmt: skip
    axes.set_xlabel("training steps")
    axes.set_ylabel({"return": "return of the team", "rate": "natural rate", "worst_off": "received"}[part])
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_formatter(FuncFormatter(steps_text))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    if part == "rate":
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g}%"))
    axes.grid(axis="y", color=grid)


def steps_text(value: float, _: Any = None) -> str:
    if abs(value) >= 1e6:
        return f"{value / 1e6:g}M"
    return f"{value / 1e3:g}k" if abs(value) >= 1e3 else f"{value:g}"


def _read_aloud(story: Mapping[str, Any], part: str, label: str) -> str:
    known = [point for point in story["points"] if point[part] is not None]
    if not known:
        return f"Line: {label} over the training steps; it is nowhere defined."
    shown: Callable[[float], str] = percent if part == "rate" else amount
    first, last = known[0], known[-1]
    return (
        f"Line: {label} over the training steps, from {shown(first[part])} at step {first['step']:,} to"
        f" {shown(last[part])} at step {last['step']:,}."
    )


def curve_content(story: Mapping[str, Any] | None, drawn: Mapping[str, Sequence[str]]) -> dict[str, Any] | None:
    """What the template of the section is given; None where there is no curve."""
    if not story or not story["points"] or "curve" not in drawn:
        return None
    captions = (
        "What the judged agents receive together.",
        "Share of unfair executions with its exact 95% interval."
        + (" Dotted: executions in which nobody receives anything." if _undefined(story) else ""),
        "What the worst-off agent of an execution receives; dashed: the best-off.",
    )
    return {
        "text": [how_measured(story), trend_sentence(story), choice_sentence(story)],
        "key": [],
        "figures": [
            {"drawing": drawing, "caption": caption, "key": []}
            for drawing, caption in zip(drawn["curve"], captions, strict=True)
        ],
        "table": table_of(story),
    }


def how_measured(story: Mapping[str, Any]) -> str:
    label = INDICES[story["index"]].label if story["index"] in INDICES else story["index"]
    return (
        f"At each of {len(story['points'])} points of its training the team played the same"
        f" {story['episodes']:,} random executions, unfair at {label} of at most {story['theta']:.3g}. Marked are the"
        f" final team (square), the best return (triangle) and the fairest team within {as_given(story['max_loss'])} of"
        " it (circle)."
    )


def _undefined(story: Mapping[str, Any]) -> bool:
    return any(point["undefined"] for point in story["points"])


def table_of(story: Mapping[str, Any]) -> dict[str, Any]:
    """The marked points."""
    rows = []
    for mark, name in NAMES.items():
        point = at(story, mark)
        if point is not None:
            cells = [f"{point['step']:,}", amount(point["return"]), rate_text(point), amount(point["worst_off"])]
            rows.append((name.format(loss=as_given(story["max_loss"])), [*cells, amount(point["best_off"])]))
    return {
        "name": "Marked points of the curve",
        "caption": "The teams that are marked in the drawings",
        "columns": ["step", "return", "natural rate", "worst off", "best off"],
        "rows": rows,
    }


def rate_text(point: Mapping[str, Any]) -> str:
    if point["rate"] is None:
        return "undefined"
    return with_interval(point["rate"], point["low"], point["high"])


def curve_figure(story: Mapping[str, Any], title: str) -> Figure:
    """All three side by side, for a file of its own."""
    with style.context("default"):
        figure = Figure(figsize=(9.6, 3.0), layout="constrained")
        for axes, (part, label) in zip(figure.subplots(1, 3), PARTS.items(), strict=True):
            draw_part(axes, story, part, ("#0072B2", "#777777", "#222222", "#DDDDDD"))
            axes.set_title(label, fontsize=9.5, loc="left")
            axes.spines[["top", "right"]].set_visible(False)
            axes.tick_params(labelsize=8.5)
        figure.suptitle(title, fontsize=10, x=0.01, ha="left", fontweight="bold")
    return figure
