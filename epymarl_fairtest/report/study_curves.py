"""Two figures of RQ1 about time: distinct failures over executed episodes, and how soon the tenth was found.

Knows numbers and how to draw them, nothing of runs. The methods in front have colours, the others are grey; each line
is labelled where it ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, StrMethodFormatter
from numpy.typing import NDArray

from epymarl_fairtest.report.study_figures import INK, STYLE, Drawing, finish, panels_of, save, spread

Array = NDArray[np.float64]
Curve = tuple[Sequence[int], Sequence[int]]
"""executed episodes, and what was found by then"""
Curves = Mapping[str, Mapping[str, Sequence[Curve]]]
"""team -> variant -> one curve per run"""
Firsts = Mapping[str, Mapping[str, Sequence[float | None]]]
"""team -> variant -> one number per run, None if it never came to that"""

GREY = "#7C858D"
DASHES = (
    "-",
    (0, (5, 1.5)),
    (0, (1, 1)),
    (0, (6, 1.5, 1, 1.5)),
    (0, (3, 1, 1, 1, 1, 1)),
)  # greys are told apart by them
STEEP = 6  # where the most is so many times the median, the small ones need a logarithmic axis
LINE = 0.058  # the height of a label, as a share of a panel's
PLAIN = StrMethodFormatter("{x:,g}")
LOWEST = 0.5  # on a logarithmic axis: nothing found is below it


def curves_figure(drawing: Drawing, curves: Curves, areas: Mapping[str, Mapping[str, float]], unit: str) -> Figure:
    """One panel per team: the mean of the runs, and between the lowest and the highest run a band."""
    figure, drawn, _ = panels_of(drawing, width=3.9, height=3.1)
    for team, axes in zip(drawing.teams, drawn, strict=True):
        lines = {v: _mean_curve(curves[team][v]) for v in drawing.variants if len(curves[team].get(v, ()))}
        ends = {variant: float(line[1][-1]) for variant, line in lines.items()}
        logarithmic = bool(ends) and max(ends.values()) > STEEP * max(float(np.median([*ends.values()])), 1.0)
        longest = max((float(line[0][-1]) for line in lines.values()), default=1.0)
        largest = max((float(line[3][-1]) for line in lines.values()), default=1.0)
        if logarithmic:
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(PLAIN)
        axes.set_ylim(1.0 if logarithmic else 0.0, max(largest, 1.0) * (1.25 if logarithmic else 1.04))
        axes.set_xlim(0, longest)
        axes.xaxis.set_major_locator(MaxNLocator(4))
        axes.xaxis.set_major_formatter(PLAIN)
        for number, (variant, (x, mean, low, high)) in enumerate(lines.items()):
            front = drawing.in_front(variant)
            colour = drawing.colour(variant) if front else GREY
            mean, low, high = (np.maximum(y, LOWEST) if logarithmic else y for y in (mean, low, high))
            if front:
                axes.fill_between(x, low, high, color=colour, alpha=0.18, linewidth=0, zorder=2)
            axes.plot(x, mean, color=colour, linewidth=2.2 if front else 1.1, zorder=3 if front else 1,
                      linestyle="-" if front else DASHES[number % len(DASHES)])  # fmt: skip
        finish(axes, f"{team} (logarithmic)" if logarithmic else team, grid="y")
        _label_ends(axes, drawing, ends, areas.get(team, {}))
    beside = "beside each name: distinct failures known on average, the area below its line divided by the episodes"
    figure.supxlabel(f"executed episodes ({beside})", **STYLE)
    figure.supylabel(unit, **STYLE)
    return figure


def _mean_curve(runs: Sequence[Curve]) -> tuple[Array, Array, Array, Array]:
    """Episodes, mean, lowest and highest, from nothing on; runs of different lengths end with the shortest."""
    known = [(np.array([0, *x], float), np.array([0, *y], float)) for x, y in runs]
    last = min(x[-1] for x, _ in known)
    at = np.unique(np.append(known[0][0][known[0][0] <= last], last))
    values = np.array([np.interp(at, x, y) for x, y in known])
    return at, values.mean(axis=0), values.min(axis=0), values.max(axis=0)


def _label_ends(axes: Axes, drawing: Drawing, ends: Mapping[str, float], areas: Mapping[str, float]) -> None:
    """The name of each line where it ends, and the area below it; names that would overlap move apart."""
    to_share = axes.transData.transform
    bottom, top = axes.transAxes.transform([(0, 0), (0, 1)])[:, 1]
    at = {v: float((to_share((0, max(end, LOWEST)))[1] - bottom) / (top - bottom)) for v, end in ends.items()}
    order = sorted(at, key=lambda variant: at[variant])
    for variant, place in zip(order, _apart([at[variant] for variant in order]), strict=True):
        front = drawing.in_front(variant)
        colour = drawing.colour(variant) if front else GREY
        area = f"  {areas[variant]:,.0f}" if variant in areas else ""
        axes.plot([1.0, 1.035], [at[variant], place], color=colour, linewidth=0.6, transform=axes.transAxes,
                  clip_on=False)  # fmt: skip
        axes.text(1.045, place, f"{drawing.label(variant)}{area}", color=colour if front else INK, fontsize=7,
                  va="center", fontweight="bold" if front else "normal", transform=axes.transAxes)  # fmt: skip


def _apart(places: Sequence[float]) -> list[float]:
    """The same places, ascending, at least a line apart and inside the panel as far as there is room."""
    moved = np.clip(np.array(places, float), 0, 1)
    for row in range(1, len(moved)):
        moved[row] = max(moved[row], moved[row - 1] + LINE)
    highest = max(1.0, LINE * (len(moved) - 1))
    for row in range(len(moved) - 1, -1, -1):
        moved[row] = min(moved[row], highest - LINE * (len(moved) - 1 - row))
    return [float(place) for place in moved]


def tenth_figure(drawing: Drawing, firsts: Firsts, budget: str) -> Figure:
    """One panel per team, one row per method: a dot per run, a bar at their median, and who never came so far."""
    count = len(drawing.variants)
    figure, drawn, columns = panels_of(drawing, width=3.4, height=0.75 + 0.26 * count)
    for number, (team, axes) in enumerate(zip(drawing.teams, drawn, strict=True)):
        axes.set_xscale("log")
        for place, variant in enumerate(drawing.variants):
            _dots(
                axes,
                firsts[team].get(variant, ()),
                place,
                drawing.colour(variant) if drawing.in_front(variant) else GREY,
            )
        _span(axes, [value for runs in firsts[team].values() for value in runs])
        axes.set_ylim(-0.6, count - 0.4)
        axes.set_yticks(range(count), [])
        if number % columns == 0:
            names = axes.set_yticklabels([drawing.label(variant) for variant in drawing.variants])
            for text, variant in zip(names, drawing.variants, strict=True):
                text.set_fontweight("bold" if drawing.in_front(variant) else "normal")
        finish(axes, team, grid="x")
    figure.supxlabel(f"executed episodes until the tenth distinct failure, logarithmic ({budget})", **STYLE)
    return figure


def _span(axes: Axes, values: Sequence[float | None]) -> None:
    """From the first to the last; with room for words where somebody never came so far."""
    known = [value for value in values if value is not None]
    wide = max(known) / min(known) if known else 1.0
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if wide < 50 else (1,)))  # more would overlap
    axes.xaxis.set_major_formatter(PLAIN)
    axes.xaxis.set_minor_formatter(NullFormatter())
    if known:
        axes.set_xlim(
            min(known) / wide**0.05 / 1.02, max(known) * 1.02 * wide ** (0.05 if len(known) == len(values) else 0.35)
        )


def _dots(axes: Axes, runs: Sequence[float | None], place: int, colour: str) -> None:
    known = [value for value in runs if value is not None]
    if known:
        axes.scatter(known, place + spread(len(known), 0.2), s=13, color=colour, alpha=0.75, linewidths=0, zorder=3)
    middle = float(np.median([np.inf if value is None else value for value in runs])) if runs else np.inf
    if np.isfinite(middle):  # not where most never came so far: those that did would flatter the method
        axes.plot([middle] * 2, [place - 0.32, place + 0.32], color=colour, linewidth=2, zorder=2)
    if len(known) < len(runs):
        never = f"{len(runs) - len(known)} of {len(runs)} never" if known else "never"
        axes.text(0.995, place, never, fontsize=7, color=INK, ha="right", va="center",
                  transform=axes.get_yaxis_transform())  # fmt: skip


def curve_figures(
    drawing: Drawing,
    curves: Curves,
    areas: Mapping[str, Mapping[str, float]],
    firsts: Firsts,
    folder: Path,
    budget: str,
) -> list[Path]:
    """Both figures, as far as the runs tell what is on them."""
    written = []
    if any(runs for of_team in curves.values() for runs in of_team.values()):
        unit = f"distinct failures, mean of the runs ({budget})"
        written += save(curves_figure(drawing, curves, areas, unit), folder, "rq1_growth")
    if any(value is not None for of_team in firsts.values() for runs in of_team.values() for value in runs):
        written += save(tenth_figure(drawing, firsts, budget), folder, "rq1_tenth")
    return written
