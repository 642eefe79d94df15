"""The figures of a study: boxes of the runs for RQ1 and RQ2, bars for RQ3-b, pairs for RQ3-a and RQ3-c.

Knows numbers and how to draw them, nothing of runs. Every figure is written as PNG and as PDF.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator, PercentFormatter, ScalarFormatter, StrMethodFormatter

Values = Mapping[str, Mapping[str, Sequence[float]]]
"""team -> variant -> one number per run"""

HIGHLIGHT, OTHERS, INK = "#0072B2", "#B0B7BF", "#22272B"  # blue on grey: told apart by everyone, and in print
FRONT = ("#D55E00", "#009E73", "#CC79A7", "#E69F00")  # told apart by everyone, and from the blue
FORMATS = ("png", "pdf")
NO_DATE = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}, "pdf": {"CreationDate": None}}
STYLE: dict[str, Any] = {"fontsize": 9, "color": INK}


@dataclass(frozen=True)
class Drawing:
    """What all figures of a study share."""

    teams: Sequence[str]
    variants: Sequence[str]
    labels: Mapping[str, str]
    reference: str
    front: Sequence[str] = ()  # variants with colours of their own, the reference beside them

    def label(self, variant: str) -> str:
        return self.labels.get(variant, variant)

    def colour(self, variant: str) -> str:
        if variant == self.reference:
            return HIGHLIGHT
        others = [name for name in self.front if name != self.reference]
        return FRONT[others.index(variant) % len(FRONT)] if variant in others else OTHERS

    def in_front(self, variant: str) -> bool:
        return variant == self.reference or variant in self.front


UNITS = {"failures": "failures", "distinct_failures": "distinct failures",
         "distinct_failures_wide": "wide distinct failures", "distinct_starts": "distinct starts of failures",
         "distinct_area": "distinct failures known on average", "roots": "starts of failures",
         "coverage": "coverage (share of grid cells)", "auc": "AUC-ROC"}  # fmt: skip


def study_figures(kind: str, drawing: Drawing, values: Mapping[str, Values], folder: Path, budget: str) -> list[Path]:
    """All figures of a study, one per metric in `values`; `budget` says what a run may spend."""
    folder.mkdir(exist_ok=True)
    written = []
    for metric, numbers in values.items():
        unit = UNITS[metric]
        counted = unit if metric in ("coverage", "auc") else f"{unit} per run ({budget})"
        if kind == "rq1":
            figure = methods_figure(drawing, numbers, counted)
        elif kind == "rq2":
            figure = ratios_figure(drawing, numbers, counted)
        elif kind == "rq3b":
            figure = bars_figure(drawing, numbers, counted)
        elif kind == "rq3a":
            figure = pairs_figure(drawing, numbers, counted, difference="difference in AUC-ROC", relative=False)
        else:
            figure = pairs_figure(drawing, numbers, counted, difference=f"gain in {unit.split(' (')[0]}", relative=True)
        written += save(figure, folder, f"{kind}_{metric}")
    return written


# --- boxes (RQ1, RQ2) ---------------------------------------------------------------------------------


def methods_figure(drawing: Drawing, values: Values, unit: str) -> Figure:
    """RQ1: one panel per team, one horizontal box per method, every run as a dot."""
    count = len(drawing.variants)
    figure, panels, columns = panels_of(drawing, width=3.4, height=0.75 + 0.34 * count)
    for number, (team, axes) in enumerate(zip(drawing.teams, panels, strict=True)):
        for place, variant in enumerate(drawing.variants):
            _box(axes, values[team][variant], place, drawing.colour(variant), vertical=False)
        axes.set_ylim(-0.6, count - 0.4)  # FairTest comes last: on top
        axes.set_yticks(range(count), [])
        if number % columns == 0:
            names = axes.set_yticklabels([drawing.label(variant) for variant in drawing.variants])
            for text, variant in zip(names, drawing.variants, strict=True):
                text.set_fontweight("bold" if drawing.in_front(variant) else "normal")
        logarithmic = _scale(axes, [v for runs in values[team].values() for v in runs])
        finish(axes, f"{team} (logarithmic)" if logarithmic else team, grid="x")
    figure.supxlabel(unit, **STYLE)
    return figure


def ratios_figure(drawing: Drawing, values: Values, unit: str) -> Figure:
    """RQ2: one panel per team, one box per ratio."""
    figure, panels, _ = panels_of(drawing, width=3.0, height=2.6)
    for team, axes in zip(drawing.teams, panels, strict=True):
        for place, variant in enumerate(drawing.variants):
            _box(axes, values[team][variant], place, drawing.colour(variant), vertical=True)
        axes.set_xticks(range(len(drawing.variants)), [drawing.label(variant) for variant in drawing.variants])
        axes.set_ylim(bottom=0)
        finish(axes, team, grid="y")
    figure.supxlabel("share of the candidates kept", **STYLE)
    figure.supylabel(unit.replace(" (", "\n("), multialignment="center", **STYLE)
    return figure


def _box(axes: Axes, runs: Sequence[float], place: int, colour: str, *, vertical: bool) -> None:
    if not len(runs):
        return
    axes.boxplot(
        [runs],
        positions=[place],
        orientation="vertical" if vertical else "horizontal",
        widths=0.56,
        showfliers=False,
        patch_artist=True,
        manage_ticks=False,
        boxprops={"facecolor": colour, "edgecolor": INK, "linewidth": 0.8, "alpha": 0.75},
        medianprops={"color": INK, "linewidth": 1.6},
        whiskerprops={"color": INK, "linewidth": 0.8},
        capprops={"color": INK, "linewidth": 0.8},
    )
    beside = place + spread(len(runs), 0.16)
    x, y = (beside, runs) if vertical else (runs, beside)
    axes.scatter(x, y, s=9, color=INK, alpha=0.65, linewidths=0, zorder=3, clip_on=False)


def spread(count: int, width: float) -> np.ndarray:
    """Dots side by side, always the same way."""
    return np.zeros(1) if count == 1 else np.linspace(-width, width, count)


# --- bars (RQ3-b) -------------------------------------------------------------------------------------


def bars_figure(drawing: Drawing, values: Values, unit: str) -> Figure:
    """RQ3-b: one panel per team, the mean of each configuration with its standard deviation and its runs."""
    figure, panels, _ = panels_of(drawing, width=3.8, height=2.7)
    for team, axes in zip(drawing.teams, panels, strict=True):
        for place, variant in enumerate(drawing.variants):
            runs = values[team][variant]
            if not len(runs):
                continue
            axes.bar(place, np.mean(runs), 0.66, color=drawing.colour(variant), edgecolor=INK, linewidth=0.8)
            axes.errorbar(place, np.mean(runs), _std(runs), color=INK, capsize=3, linewidth=1)
            axes.scatter(place + spread(len(runs), 0.2), runs, s=9, color=INK, alpha=0.65, linewidths=0, zorder=3)
        axes.set_xticks(range(len(drawing.variants)), [drawing.label(variant) for variant in drawing.variants])
        axes.set_ylim(bottom=0)
        finish(axes, team, grid="y")
    figure.supylabel(unit.replace(" (", "\n("), multialignment="center", **STYLE)
    return figure


# --- pairs (RQ3-a, RQ3-c) -----------------------------------------------------------------------------


def pairs_figure(drawing: Drawing, values: Values, unit: str, *, difference: str, relative: bool) -> Figure:
    """Left: without (hollow) and with (solid) for each team, mean and standard deviation. Right: what it adds."""
    without, with_it = drawing.variants
    figure = Figure(figsize=(7.6, 1.35 + 0.5 * len(drawing.teams)), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=[3, 2])
    for place, team in enumerate(drawing.teams):
        before, after = values[team][without], values[team][with_it]
        if not len(before) or not len(after):
            continue
        a, b = float(np.mean(before)), float(np.mean(after))
        above, below = place - 0.1, place + 0.1  # beside each other where they are equal
        left.plot([a, b], [above, below], color=OTHERS, linewidth=2, zorder=1)
        drawn = ((before, a, above, "white", without), (after, b, below, HIGHLIGHT, with_it))
        for runs, mean, at, face, name in drawn:
            left.errorbar(
                mean, at, xerr=_std(runs), fmt="o", markersize=8, markerfacecolor=face, markeredgecolor=HIGHLIGHT,
                markeredgewidth=1.5, ecolor=INK, elinewidth=1, capsize=3, label=drawing.label(name),
            )  # fmt: skip
        if not relative:
            gain, label = b - a, f"{b - a:+.3f}"
        elif a:
            gain = (b - a) / a
            label = f"{gain:+.0%}"
        else:  # no percentage of nothing
            gain, label = 0.0, f"from 0 to {b:,.3g}"
        right.barh(place, gain, 0.5, color=HIGHLIGHT, edgecolor=INK, linewidth=0.8)
        right.annotate(label, (gain, place), (4 if gain >= 0 else -4, 0), textcoords="offset points", va="center",
                       ha="left" if gain >= 0 else "right", fontsize=8, color=INK)  # fmt: skip
    left.set_yticks(range(len(drawing.teams)), drawing.teams)
    left.set_ylim(len(drawing.teams) - 0.4, -0.6)
    left.set_xlabel(unit, **STYLE)
    right.set_xlabel(difference, **STYLE)
    right.axvline(0, color=INK, linewidth=0.8)
    right.margins(x=0.25)
    if relative:
        left.set_xlim(left=0)
        right.xaxis.set_major_formatter(PercentFormatter(1.0))
    right.xaxis.set_major_locator(MaxNLocator(4))
    low, high = right.get_xlim()
    right.set_xlim(min(low, 0.0), max(high, 0.01))  # gains of nothing have an axis, too
    for axes in (left, right):
        finish(axes, "", grid="x")
    legend = {label: handle for handle, label in zip(*left.get_legend_handles_labels(), strict=True)}
    if legend:
        place_of: Any = {"loc": "outside upper left", "ncols": 2, "frameon": False, "fontsize": 9}
        figure.legend(list(legend.values()), list(legend), **place_of)
    return figure


# --- common -------------------------------------------------------------------------------------------


def panels_of(drawing: Drawing, *, width: float, height: float) -> tuple[Figure, list[Axes], int]:
    """Panels in rows of up to three, and how many are in a row; the last row's empty places stay empty."""
    count = len(drawing.teams)
    columns = min(count, 2 if count == 4 else 3)
    rows = math.ceil(count / columns)
    layout = ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08)
    figure = Figure(figsize=(1.0 + width * columns, 0.3 + height * rows), layout=layout)
    grid = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
    for axes in grid[count:]:
        axes.set_visible(False)
    return figure, grid[:count], columns


def _scale(axes: Axes, values: Sequence[float]) -> bool:
    """From 0; logarithmic, as the title says, where the small ones would vanish beside the largest."""
    largest, positive = max(values, default=0.0), [value for value in values if value > 0]
    if positive and largest > 30 * float(np.median(positive)):
        axes.set_xscale("symlog", linthresh=max(min(positive), largest * 1e-4))
        axes.set_xlim(left=0)
        return True
    if largest > 0:
        axes.set_xlim(0, largest * 1.06)
        axes.xaxis.set_major_locator(MaxNLocator(5))  # long numbers stand side by side
    return False


def _std(runs: Sequence[float]) -> float:
    return float(np.std(runs, ddof=1)) if len(runs) > 1 else 0.0


def finish(axes: Axes, title: str, *, grid: str) -> None:
    if title:
        axes.set_title(title, fontsize=10, color=INK, loc="left", fontweight="bold")
    values = axes.xaxis if grid == "x" else axes.yaxis
    if values.get_major_formatter().__class__ is ScalarFormatter:
        values.set_major_formatter(StrMethodFormatter("{x:,g}"))
    plain_axes(axes, "x" if grid == "x" else "y")


def plain_axes(axes: Axes, grid: Literal["x", "y", "both"]) -> None:
    """Small labels, a quiet grid and no frame."""
    axes.tick_params(labelsize=8.5, colors=INK)
    axes.grid(axis=grid, color="#DDE1E5", linewidth=0.7)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """The same numbers give the same bytes: no date goes into the files."""
    paths = [folder / f"{name}.{ending}" for ending in FORMATS]
    for path in paths:
        figure.savefig(path, dpi=200, metadata=NO_DATE[path.suffix[1:]])
    return paths
