"""The figures of a run's page: the view's numbers as SVG text. Knows matplotlib's objects, never pyplot's state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter, StrMethodFormatter

from epymarl_fairtest.core.statistics import Rate
from epymarl_fairtest.report.curve import curve_figures
from epymarl_fairtest.report.drawing import colour
from epymarl_fairtest.report.operators import operator_named
from epymarl_fairtest.report.svg import ACCENT, GRID, INK, PAPER, QUIET, element_of
from epymarl_fairtest.report.view import Coverage, Group, Link, Round, View
from epymarl_fairtest.report.wording import agent, coverage_label, percent, threshold

WIDE, PANEL, SMALL = 4.5, 3.5, 2.45  # inches; at 72 points to the inch text stays readable on a phone
OURS: dict[str, Any] = {
    "svg.fonttype": "none",  # text stays text, in the page's font
    "svg.hashsalt": "fairtest",
    "font.size": 9.5,
    "axes.edgecolor": QUIET,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "text.color": INK,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
}


def figures_of(view: View, chains: Sequence[Sequence[Link]]) -> dict[str, list[str]]:
    """Section -> its drawings; sections that the view has nothing for are left out."""
    drawn: dict[str, list[str]] = {}
    with style.context(["default", OURS]):  # whatever the user's or the host's style is, and back to it
        if view.histogram is not None:
            drawn["index"] = [index_figure(view)]
        if view.groups and view.agents:
            drawn["who"] = [worst_figure(view), share_figure(view)]
        drawn |= curve_figures(view.record.summary.get("curve"))
        if view.growth is not None:
            drawn["growth"] = [growth_figure(view)]
        if view.rounds:
            drawn["rounds"] = [round_figure(one, view.rounds) for one in view.rounds]
        if view.coverage is not None:
            drawn["coverage"] = [coverage_figure(view.coverage, place) for place in range(len(view.coverage.maps))]
        if "predictor" not in view.missing and "roc" not in view.missing:
            drawn["predictor"] = [roc_figure(view)]
        if any(len(chain) > 1 for chain in chains):
            drawn["lineage"] = [lineage_figure(view, chains)]
    return drawn


# --- how often, and who -------------------------------------------------------------------------------


def index_figure(view: View) -> str:
    figure, axes = _axes(WIDE, 2.75)
    index_axes(axes, view)
    quantiles = view.record.summary.get("index_quantiles") or {}
    known = ", ".join(f"quantile {name}: {value:.3f}" for name, value in quantiles.items() if value is not None)
    return element_of(
        figure, "index", f"Histogram of {view.index_name}, threshold {threshold(view.theta)}. All executions: {known}."
    )


def index_axes(axes: Axes, view: View, ink: str = INK, quiet: str = QUIET, accent: str = ACCENT) -> None:
    """The distribution of the index: random executions filled, everything that was judged as a line."""
    histogram = view.histogram
    if histogram is not None:
        both = histogram.random is not None and view.searched
        if histogram.random is not None and both:
            axes.stairs(
                histogram.random, histogram.edges, fill=True, color=quiet, alpha=0.35, label="random executions"
            )
        axes.stairs(histogram.everything, histogram.edges, color=accent, linewidth=1.6, fill=not both,
                    alpha=None if both else 0.6, label="all that were judged")  # fmt: skip
        axes.set_xlim(histogram.edges[0], 1)
    axes.axvline(view.theta, color=ink, linewidth=1, linestyle=(0, (4, 3)))
    right = view.theta > (axes.get_xlim()[0] + 1) / 2
    beside: Any = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points", "va": "top", "fontsize": 8.5}
    axes.annotate(f"unfair up to θ = {threshold(view.theta)}", (view.theta, 1), (-5 if right else 5, -3),
                  ha="right" if right else "left", **beside)  # fmt: skip
    axes.set_xlabel(view.index_name)
    axes.set_ylabel("share of the episodes")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g}%"))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    _grid(axes, "y")


def worst_figure(view: View) -> str:
    values = [group.worst_off for group in view.groups]
    return _agents_figure(
        view, values, "worst", "worst off in", "how often each agent is the worst off", view.worst.least
    )


def share_figure(view: View) -> str:
    values = [group.share for group in view.groups]
    label = "share of the cost" if view.sign == "negative" else "share of the sum"
    return _agents_figure(view, values, "share", label, "mean share of each agent")


def _agents_figure(
    view: View, values: Sequence[Any], name: str, label: str, description: str, intervals: Sequence[Rate] = ()
) -> str:
    """The intervals are those of the last values."""
    figure, axes = _axes(PANEL, 2.5)
    numbers = _bars(axes, view.places, view.groups, values, intervals)
    axes.axhline(float(np.mean(values[-1])), color=INK, linewidth=1, linestyle=(0, (1, 2)))
    axes.set_ylabel(label)
    return element_of(figure, name, f"Bars: {description}. {numbers}")


def _bars(
    axes: Axes, places: Sequence[int], groups: Sequence[Group], values: Sequence[Any], intervals: Sequence[Rate]
) -> str:
    """Agents side by side, each group a bar: the last one solid, the others pale. Gives the numbers in words."""
    count, agents = len(groups), len(values[0])
    wide = 0.78 / count
    most = max([float(np.max(one)) for one in values] + [one.high for one in intervals])
    for g, one in enumerate(values):
        for n, value in enumerate(one):
            solid = g == count - 1
            x = n + (g - (count - 1) / 2) * wide
            axes.bar(x, value, wide * 0.94, color=colour(places[n]), alpha=None if solid else 0.35)
            if solid and intervals:
                axes.plot([x, x], [intervals[n].low, intervals[n].high], color=INK, linewidth=1.2)
            if agents <= 4:
                label = percent(float(value)).replace("\u00a0", "")
                behind: Any = {"facecolor": PAPER, "edgecolor": "none", "pad": 0.6}
                top = intervals[n].high if solid and intervals else value
                axes.annotate(label, (x, top), (0, 3), textcoords="offset points", ha="center", fontsize=8, bbox=behind)
    axes.set_xticks(range(agents), [agent(place) if agents <= 4 else str(place + 1) for place in places])
    axes.tick_params(axis="x", length=0)
    axes.set_ylim(0, most * 1.16 if most else 1)
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.yaxis.set_major_locator(MaxNLocator(4))
    _grid(axes, "y")
    return " ".join(
        f"{group.name.capitalize()}: "
        + ", ".join(f"{agent(place)} {percent(float(value))}" for place, value in zip(places, one, strict=True))
        + "."
        for group, one in zip(groups, values, strict=True)
    )


# --- the search ---------------------------------------------------------------------------------------


def growth_figure(view: View) -> str:
    growth = view.growth
    assert growth is not None
    figure, axes = _axes(WIDE, 2.85)
    judged = int(growth.episodes[-1])
    for _, first, last, random in growth.phases:
        if not random:
            axes.axvspan(first, last, color=ACCENT, alpha=0.09, linewidth=0)
    description = f"Starts with a failure, found over {judged:,} executed episodes: {growth.total:,}."
    top = float(growth.total)
    if view.rate is not None:
        ends = np.array([0, judged])
        axes.fill_between(ends, view.rate.low * ends, view.rate.high * ends, color=QUIET, alpha=0.35, linewidth=0)
        axes.plot(ends, view.rate.estimate * ends, color=QUIET, linewidth=1.3)
        expected = view.rate.estimate * judged
        top = max(top, view.rate.high * judged)
        description += (
            f" Random's expectation {expected:,.0f}, {view.rate.low * judged:,.0f} to {view.rate.high * judged:,.0f}."
        )
        if abs(growth.total - expected) > 0.12 * top:
            # In the free corner below the line, or above a line that leaves no room there.
            at = (judged, 0.03 * top if expected > 0.25 * top else expected)
            _at_end(axes, *at, f"Random: {expected:,.0f} expected")
    axes.plot(growth.episodes, growth.starts, color=ACCENT, linewidth=1.8)
    _at_end(axes, judged, growth.total, f"found: {growth.total:,}")
    axes.set_xlim(0, max(judged, 1))
    axes.set_ylim(0, max(top, 1) * 1.14)
    axes.set_xlabel("executed episodes")
    axes.set_ylabel("starts with an unfair execution")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axis.set_major_locator(MaxNLocator(5, integer=True))
    _grid(axes, "y")
    return element_of(figure, "growth", description)


def _at_end(axes: Axes, x: float, y: float, label: str) -> None:
    axes.annotate(label, (x, y), (-3, 4), textcoords="offset points", ha="right", va="bottom", fontsize=8.5)


def round_figure(one: Round, rounds: Sequence[Round]) -> str:
    """All rounds on the same axes."""
    figure, axes = _axes(SMALL + 0.45, 2.5)
    axes.scatter(
        one.candidates[:, 0], one.candidates[:, 1], s=4, color=QUIET, alpha=0.4, linewidths=0, label="candidate"
    )
    axes.scatter(one.population[:, 0], one.population[:, 1], s=5, color=ACCENT, alpha=0.55, linewidths=0, label="taken")
    if len(one.front):
        axes.step(*one.front.T, where="post", color=INK, linewidth=1)
        axes.scatter(
            one.front[:, 0],
            one.front[:, 1],
            s=15,
            color=PAPER,
            edgecolors=INK,
            linewidths=1,
            label="Pareto front",
            zorder=3,
        )
    shown = np.concatenate([part for r in rounds for part in (r.candidates, r.population, r.front) if len(part)])
    shown = shown[np.isfinite(shown).all(axis=1)]
    low, high = shown.min(axis=0), shown.max(axis=0)
    pad = np.maximum(0.05 * (high - low), 1e-9)
    axes.set_xlim(low[0] - pad[0], high[0] + pad[0])
    axes.set_ylim(low[1] - pad[1], high[1] + pad[1])
    axes.set_title(f"round {one.number}", loc="left", fontsize=9.5, fontweight="bold")
    axes.set_xlabel("f2: predicted fairness")
    axes.set_ylabel("f3: certainty")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(4))
        axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    _grid(axes, "both")
    description = (
        f"Scatter of round {one.number}: {one.counts[0]:,} candidates by f2 and f3, {one.counts[1]:,} taken. The Pareto"
        f" front has {len(one.front)} points"
    )
    if len(one.front):
        description += (
            f", from ({one.front[0, 0]:.3f}, {one.front[0, 1]:.3f}) to ({one.front[-1, 0]:.3f}, {one.front[-1, 1]:.3f})"
        )
    return element_of(figure, f"round{one.number}", f"{description}.")


def coverage_figure(coverage: Coverage, place: int) -> str:
    figure, axes = _axes(SMALL, 2.35)
    bins, values = coverage.bins, coverage.maps[place]
    for first in range(bins):
        for second in range(bins):
            # On a grid the first coordinate is the row, counted from the top; in the plane x grows to the right.
            x, y = (second, bins - 1 - first) if coverage.grid else (first, second)
            share = float(values[first, second])
            axes.add_patch(Rectangle((x, y), 1, 1, facecolor=ACCENT, alpha=0.03 + 0.62 * share, linewidth=0))
            if bins <= 6:
                axes.text(x + 0.5, y + 0.5, f"{100 * share:.0f}", ha="center", va="center", fontsize=8.5)
    axes.set_xlim(0, bins)
    axes.set_ylim(0, bins)
    axes.set_aspect("equal")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_title(f"{agent(place)}, %", loc="left", fontsize=9.5, fontweight="bold")
    axes.set_xlabel("column →" if coverage.grid else "x →")
    axes.set_ylabel("← row" if coverage.grid else "y →")
    for side in axes.spines.values():
        side.set_visible(True)
    return element_of(figure, f"coverage{place}", f"Coverage map. {coverage_label(coverage, place)}")


def roc_figure(view: View) -> str:
    figure, axes = _axes(PANEL, 2.95)
    predictor = view.record.summary["predictor"]
    curves = []
    axes.plot([0, 1], [0, 1], color=QUIET, linewidth=1, linestyle=(0, (1, 2)))
    for name, key, ink, width in (
        ("without seeing rewards", "abstract", ACCENT, 1.8),
        ("with fairness features", "full", QUIET, 1.5),
    ):
        curve, auc = view.record.evidence.get(f"roc_{key}"), predictor.get(f"auc_{key}")
        if curve is not None:
            label = name if auc is None else f"{name}: {auc:.3f}"
            axes.plot(*curve.T, color=ink, linewidth=width, label=label)
            curves.append(f"{label} ({len(curve)} points)")
    axes.set_xlim(-0.01, 1)
    axes.set_ylim(0, 1.01)
    axes.set_xlabel("false alarms")
    axes.set_ylabel("unfair episodes recognised")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(PercentFormatter(1, decimals=0))
        axis.set_major_locator(MaxNLocator(4))
    axes.legend(loc="lower right", title="area under the curve", title_fontsize=8.5)
    _grid(axes, "both")
    return element_of(figure, "roc", f"ROC curves, area under the curve {'; '.join(curves)}.")


def lineage_figure(view: View, chains: Sequence[Sequence[Link]]) -> str:
    figure, axes = _axes(WIDE, 2.75)
    for number, chain in enumerate(chains):
        at, index = np.arange(len(chain)), np.array([link.index for link in chain])
        first = number == 0
        ink = ACCENT if first else QUIET
        axes.plot(at, index, color=ink, linewidth=1.8 if first else 1.1, zorder=3 if first else 2)
        for operator in sorted({link.operator for link in chain}):
            rows = [n for n, link in enumerate(chain) if link.operator == operator]
            marker = operator_named(operator).marker
            axes.scatter(
                at[rows], index[rows], s=22, marker=marker, color=PAPER, edgecolors=ink, linewidths=1.2, zorder=4
            )
    values = [link.index for chain in chains for link in chain]
    for number, end, y in _apart(chains, 0.06 * float(np.nanmax(values) - np.nanmin(values))):
        axes.annotate(str(number + 1), (end, y), (7, 0), textcoords="offset points", va="center", fontsize=8.5)
    axes.axhline(view.theta, color=INK, linewidth=1, linestyle=(0, (1, 2)))
    axes.set_xlim(-0.3, max(len(chain) for chain in chains) - 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("changes since the random start")
    axes.set_ylabel("fairness index")
    _grid(axes, "y")
    changes = " ".join(
        f"Failure {chain[-1].id}: from {chain[0].index:.3f} to {chain[-1].index:.3f} in {len(chain) - 1} changes."
        for chain in chains
    )
    return element_of(figure, "lineage", f"Lines: fairness index along the descent of the worst failures. {changes}")


def _apart(chains: Sequence[Sequence[Link]], gap: float) -> list[tuple[int, int, float]]:
    """Number, end and height of the chains' labels; those of one end at least `gap` above each other."""
    placed: list[tuple[int, int, float]] = []
    for number in sorted(range(len(chains)), key=lambda n: (len(chains[n]), chains[n][-1].index)):
        at, y = len(chains[number]) - 1, chains[number][-1].index
        if placed and placed[-1][1] == at:
            y = max(y, placed[-1][2] + gap)
        placed.append((number, at, y))
    return placed


# --- common -------------------------------------------------------------------------------------------


def _axes(width: float, height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def _grid(axes: Axes, which: Any) -> None:
    axes.grid(axis=which)
    axes.tick_params(length=0 if which == "both" else 3)
