"""The figures of a run's page: the view's numbers as SVG text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from epymarl_fairtest.core.numbers import percent
from epymarl_fairtest.report import wording
from epymarl_fairtest.report.chart import ACCENT, DASHED, DOTTED, INK, PAPER, QUIET, Chart, Span, ticks
from epymarl_fairtest.report.drawing import colour
from epymarl_fairtest.report.operators import operator_named
from epymarl_fairtest.report.view import Coverage, Group, Link, Round, View
from epymarl_fairtest.report.wording import agent, coverage_label, threshold

WIDE, PANEL, NARROW = 4.5, 3.5, 2.45  # inches; at 72 points to the inch text stays readable on a phone
Labels = Callable[[float], str]


def figures_of(view: View, chains: Sequence[Sequence[Link]]) -> dict[str, list[str]]:
    """Section -> its drawings; sections that the view has nothing for are left out."""
    drawn: dict[str, list[str]] = {}
    if view.histogram is not None:
        drawn["index"] = [index_figure(view)]
    if view.groups and view.agents:
        drawn["who"] = [worst_figure(view), share_figure(view)]
    if view.record.summary.get("curve"):
        from epymarl_fairtest.report.curve import curve_figures  # matplotlib's

        drawn |= curve_figures(view.record.summary["curve"])
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
    """The distribution of the index: random executions filled, everything that was judged as a line."""
    histogram = view.histogram
    assert histogram is not None
    shown = [histogram.everything, *([] if histogram.random is None else [histogram.random])]
    across, up = (float(histogram.edges[0]), 1.0), (0.0, 1.15 * max(float(np.max(one)) for one in shown) or 1.0)
    chart = Chart(WIDE, 2.75, across, up, x=ticks(across, 6, _plain), y=ticks(up, 6, _share),
                  labels=(view.index_name, "share of the episodes"))  # fmt: skip
    if histogram.random is not None and view.searched:
        chart.steps(histogram.edges.tolist(), histogram.random.tolist(), QUIET, fill=0.35)
        chart.steps(histogram.edges.tolist(), histogram.everything.tolist(), ACCENT)
    else:
        chart.steps(histogram.edges.tolist(), histogram.everything.tolist(), ACCENT, fill=0.6)
    chart.line([(view.theta, up[0]), (view.theta, up[1])], INK, 1, DASHED)
    right = view.theta > sum(across) / 2
    chart.text((view.theta, up[1]), f"unfair up to θ = {threshold(view.theta)}", beside=(-5 if right else 5, 2),
               align="right" if right else "left", upright="top")  # fmt: skip
    quantiles = view.record.summary.get("index_quantiles") or {}
    known = ", ".join(f"quantile {name}: {value:.3f}" for name, value in quantiles.items() if value is not None)
    return chart.element(f"Histogram of {view.index_name}, threshold {threshold(view.theta)}. All executions: {known}.")


def worst_figure(view: View) -> str:
    values = [group.worst_off for group in view.groups]
    intervals = [(one.low, one.high) for one in view.worst.least]
    return _agents_figure(view, values, "worst off in", "how often each agent is the worst off", intervals)


def share_figure(view: View) -> str:
    values = [group.share for group in view.groups]
    label = "share of the cost" if view.sign == "negative" else "share of the sum"
    last = view.groups[-1]
    ends = zip((last.share - last.share_error).tolist(), (last.share + last.share_error).tolist(), strict=True)
    intervals = list(ends) if np.isfinite(last.share_error).all() else []
    return _agents_figure(view, values, label, "mean share of each agent", intervals)


def _agents_figure(
    view: View, values: Sequence[Any], label: str, description: str, intervals: Sequence[tuple[float, float]]
) -> str:
    """Agents side by side, each group a bar: the last one solid, the others pale. The intervals are the last one's."""
    count, agents = len(view.groups), len(values[0])
    most = max([float(np.max(one)) for one in values] + [high for _, high in intervals])
    across, up = (-0.55, agents - 0.45), (0.0, most * 1.16 if most else 1.0)
    names = [agent(place) if agents <= 4 else str(place + 1) for place in view.places]
    chart = Chart(PANEL, 2.5, across, up, x=list(enumerate(names)), y=ticks(up, 5, lambda v: f"{100 * v:.0f}%"),
                  labels=("", label), grid="bars")  # fmt: skip
    wide = 0.78 / count
    for g, one in enumerate(values):
        for n, value in enumerate(one):
            solid, x = g == count - 1, n + (g - (count - 1) / 2) * wide
            chart.box((x - 0.47 * wide, x + 0.47 * wide), (0, value), colour(view.places[n]), 1 if solid else 0.35)
            if solid and intervals:
                chart.line([(x, end) for end in intervals[n]], INK, 1.2)
            if agents <= 4:
                top = intervals[n][1] if solid and intervals else value
                words = percent(float(value)).replace("\u00a0", "")
                chart.text((x, top), words, beside=(0, -3), size=8, upright="bottom", behind=True)
    mean = float(np.mean(values[-1]))
    chart.line([(across[0], mean), (across[1], mean)], INK, 1, DOTTED)
    return chart.element(f"Bars: {description}. {_numbers(view.places, view.groups, values)}")


def _numbers(places: Sequence[int], groups: Sequence[Group], values: Sequence[Any]) -> str:
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
    judged, rate = int(growth.episodes[-1]), view.rate
    top = max(float(growth.total), rate.high * judged if rate else 0.0)
    across, up = (0.0, max(judged, 1.0)), (0.0, max(top, 1.0) * 1.14)
    x, y = (ticks(span, 5, wording.number, whole=True) for span in (across, up))
    chart = Chart(WIDE, 2.85, across, up, x=x, y=y,
                  labels=("executed episodes", "starts with an unfair execution"))  # fmt: skip
    for _, first, last, random in growth.phases:
        if not random:
            chart.box((first, last), up, ACCENT, 0.09)
    description = f"Starts with a failure, found over {judged:,} executed episodes: {growth.total:,}."
    if rate is not None:
        low, expected, high = rate.low * judged, rate.estimate * judged, rate.high * judged
        chart.area([(0, 0), (judged, low), (judged, high)], QUIET, 0.35)
        chart.line([(0, 0), (judged, expected)], QUIET, 1.3)
        description += f" Random's expectation {expected:,.0f}, {low:,.0f} to {high:,.0f}."
        if abs(growth.total - expected) > 0.12 * top:
            # In the free corner below the line, or above a line that leaves no room there.
            at = (judged, 0.03 * top if expected > 0.25 * top else expected)
            _at_end(chart, at, f"Random: {expected:,.0f} expected")
    chart.line(zip(growth.episodes.tolist(), growth.starts.tolist(), strict=True), ACCENT, 1.8)
    _at_end(chart, (judged, growth.total), f"found: {growth.total:,}")
    return chart.element(description)


def _at_end(chart: Chart, at: Span, words: str) -> None:
    chart.text(at, words, beside=(-3, -4), align="right", upright="bottom")


def round_figure(one: Round, rounds: Sequence[Round]) -> str:
    """All rounds on the same axes."""
    shown = np.concatenate([part for r in rounds for part in (r.candidates, r.population, r.front) if len(part)])
    shown = shown[np.isfinite(shown).all(axis=1)]
    across, up = (_padded(shown[:, place]) for place in (0, 1))
    chart = Chart(NARROW + 0.45, 2.5, across, up, x=ticks(across, 4, _plain), y=ticks(up, 6, _plain),
                  labels=("f2: predicted fairness", "f3: certainty"), grid="both",
                  title=f"round {one.number}")  # fmt: skip
    chart.dots(one.candidates.tolist(), 2, QUIET, fill=0.4)
    chart.dots(one.population.tolist(), 2.2, ACCENT, fill=0.55)
    description = (
        f"Scatter of round {one.number}: {one.counts[0]:,} candidates by f2 and f3, {one.counts[1]:,} taken. The Pareto"
        f" front has {len(one.front)} points"
    )
    if len(one.front):
        front: list[list[float]] = one.front.tolist()
        corners = [(x, y) for (x, _), (_, y) in zip(front[1:], front, strict=False)]
        path = [point for pair in zip(front, [*corners, front[-1]], strict=True) for point in pair]
        chart.line(path, INK, 1)
        chart.dots(front, 3.9, PAPER, edge=INK, width=1)
        description += f", from ({front[0][0]:.3f}, {front[0][1]:.3f}) to ({front[-1][0]:.3f}, {front[-1][1]:.3f})"
    return chart.element(f"{description}.")


def _padded(values: Any) -> Span:
    low, high = float(np.min(values)), float(np.max(values))
    pad = max(0.05 * (high - low), 1e-9)
    return low - pad, high + pad


def coverage_figure(coverage: Coverage, place: int) -> str:
    bins, values = coverage.bins, coverage.maps[place]
    across = "column →", "← row"
    chart = Chart(NARROW - 0.3, 2.35, (0, bins), (0, bins), labels=across if coverage.grid else ("x →", "y →"),
                  title=f"{agent(place)}, %", box=True)  # fmt: skip
    for first in range(bins):
        for second in range(bins):
            # On a grid the first coordinate is the row, counted from the top; in the plane x grows to the right.
            x, y = (second, bins - 1 - first) if coverage.grid else (first, second)
            share = float(values[first, second])
            chart.box((x, x + 1), (y, y + 1), ACCENT, 0.03 + 0.62 * share)
            if bins <= 6:
                chart.text((x + 0.5, y + 0.5), f"{100 * share:.0f}")
    return chart.element(f"Coverage map. {coverage_label(coverage, place)}")


def roc_figure(view: View) -> str:
    predictor, across, up = view.record.summary["predictor"], (-0.01, 1.0), (0.0, 1.01)
    chart = Chart(PANEL, 2.95, across, up, x=ticks(across, 5, _share), y=ticks(up, 5, _share), grid="both",
                  labels=("false alarms", "unfair episodes recognised"))  # fmt: skip
    chart.line([(0, 0), (1, 1)], QUIET, 1, DOTTED)
    curves: list[str] = []
    for name, key, ink, width in (
        ("with fairness features", "full", QUIET, 1.5),
        ("without seeing rewards", "abstract", ACCENT, 1.8),
    ):
        curve, auc = view.record.evidence.get(f"roc_{key}"), predictor.get(f"auc_{key}")
        if curve is not None:
            label = name if auc is None else f"{name}: {auc:.3f}"
            chart.line(curve.tolist(), ink, width)
            height = 0.05 + 0.085 * len(curves)
            chart.line([(0.24, height), (0.31, height)], ink, width)
            chart.text((0.33, height), label, align="left", behind=True)
            curves.append(f"{label} ({len(curve)} points)")
    if curves:
        chart.text((0.33, 0.05 + 0.085 * len(curves)), "area under the curve", align="left", behind=True)
    return chart.element(f"ROC curves, area under the curve {'; '.join(reversed(curves))}.")


def lineage_figure(view: View, chains: Sequence[Sequence[Link]]) -> str:
    values = [link.index for chain in chains for link in chain]
    longest = max(len(chain) for chain in chains)
    across, up = (-0.3, longest - 0.5), _padded([value for value in [*values, view.theta] if np.isfinite(value)])
    chart = Chart(WIDE, 2.75, across, up, x=ticks(across, 9, wording.number, whole=True), y=ticks(up, 6, _plain),
                  labels=("changes since the random start", "fairness index"))  # fmt: skip
    chart.line([(end, view.theta) for end in across], INK, 1, DOTTED)
    for number, chain in sorted(enumerate(chains), reverse=True):  # the first one on top
        ink, width = (QUIET, 1.1) if number else (ACCENT, 1.8)
        points = [(at, link.index) for at, link in enumerate(chain)]
        chart.line(points, ink, width)
        for point, link in zip(points, chain, strict=True):
            chart.dots([point], 4.7, PAPER, edge=ink, width=1.2, shape=operator_named(link.operator).marker)
    for number, end, y in _apart(chains, 0.06 * float(np.nanmax(values) - np.nanmin(values))):
        chart.text((end, y), str(number + 1), beside=(7, 0), align="left")
    changes = " ".join(
        f"Failure {chain[-1].id}: from {chain[0].index:.3f} to {chain[-1].index:.3f} in {len(chain) - 1} changes."
        for chain in chains
    )
    return chart.element(f"Lines: fairness index along the descent of the worst failures. {changes}")


def _apart(chains: Sequence[Sequence[Link]], gap: float) -> list[tuple[int, int, float]]:
    """Number, end and height of the chains' labels; those of one end at least `gap` above each other."""
    placed: list[tuple[int, int, float]] = []
    for number in sorted(range(len(chains)), key=lambda n: (len(chains[n]), chains[n][-1].index)):
        at, y = len(chains[number]) - 1, chains[number][-1].index
        if placed and placed[-1][1] == at:
            y = max(y, placed[-1][2] + gap)
        placed.append((number, at, y))
    return placed


# --- numbers beside an axis ---------------------------------------------------------------------------


def _plain(value: float) -> str:
    return f"{value:.6g}"


def _share(value: float) -> str:
    return f"{100 * value:.6g}%"
