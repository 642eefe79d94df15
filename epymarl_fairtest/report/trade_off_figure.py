"""The figure of a trade-off: natural rate against return, a point per team.

Knows numbers and how to draw them, nothing of runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.ticker import FuncFormatter, MaxNLocator

from epymarl_fairtest.core.numbers import as_given
from epymarl_fairtest.report.plots import Plot
from epymarl_fairtest.report.study_figures import HIGHLIGHT, INK, STYLE, plain_axes


@dataclass(frozen=True)
class Mark:
    """One team."""

    name: str
    team_return: float
    rate: float
    low: float
    high: float
    unbeaten: bool  # by any other in both: filled


def trade_off_figure(marks: Sequence[Mark], confidence: float) -> Plot:
    """Better is to the right and below; filled points are beaten by no other in both."""
    figure = Plot(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.add_subplot()
    for mark in marks:
        reach = [[mark.rate - mark.low], [mark.high - mark.rate]]
        axes.errorbar(mark.team_return, mark.rate, yerr=reach, fmt="o", color=HIGHLIGHT, markersize=7, elinewidth=1.2,
                      markerfacecolor=HIGHLIGHT if mark.unbeaten else "white")  # fmt: skip
        axes.annotate(mark.name[-40:].replace("$", r"\$"), (mark.team_return, mark.rate), (6, 4),
                      textcoords="offset points", fontsize=8.5, color=INK)  # fmt: skip
    axes.set_ylim(bottom=0)
    axes.margins(x=0.15)
    axes.set_xlabel("return of the team", **STYLE)
    axes.set_ylabel(f"natural rate, interval at {as_given(confidence)}", **STYLE)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda rate, _: as_given(rate)))
    plain_axes(axes, "both")
    return figure
