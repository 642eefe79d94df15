"""The figure of `fairtest compare`: how the index of two teams is distributed, and their natural rates.

Knows numbers and how to draw them, nothing of runs.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray

from epymarl_fairtest.core.numbers import as_given, estimate
from epymarl_fairtest.report.plots import Plot
from epymarl_fairtest.report.study_figures import HIGHLIGHT, INK, NO_DATE, STYLE, plain_axes

COLOURS = ("#E69F00", HIGHLIGHT)  # orange and blue: told apart by everyone; the second is solid, the first dashed
DASHES = ("--", "-")


@dataclass(frozen=True)
class Side:
    """One of the two teams."""

    name: str
    index: NDArray[np.float64]  # of its random executions, where defined
    rate: float
    low: float
    high: float


def compare_figure(sides: Sequence[Side], theta: float, index_name: str, confidence: float, verdict: str) -> Plot:
    """Left: share of random executions up to each index; logarithmic, because the unfair ones are few. Right: rates."""
    figure = Plot(figsize=(8.6, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[3, 2])
    for side, colour, dash in zip(sides, COLOURS, DASHES, strict=True):
        order = np.sort(side.index)
        share = np.arange(1, len(order) + 1) / max(len(order), 1)
        name = side.name.replace("$", r"\$")  # no formula
        left.step(order, share, where="post", color=colour, linestyle=dash, linewidth=2, label=name)
    lowest = min((float(side.index.min()) for side in sides if len(side.index)), default=0.0)
    left.set_xlim(max(0.0, min(lowest, theta) - 0.02), 1.0)
    left.set_ylim(0.7 / max(len(side.index) + 1 for side in sides), 1.4)
    left.set_yscale("log")
    left.axvline(theta, color=INK, linewidth=1, linestyle=":")
    left.axvspan(0, theta, color="#F3E9E6", zorder=0)
    left.annotate(f"unfair: at most {theta:.3g}", (theta, 1.0), (-4, 0), textcoords="offset points", ha="right",
                  va="top", fontsize=8.5, color=INK)  # fmt: skip
    left.set_xlabel(f"{index_name} of an episode", **STYLE)
    left.set_ylabel("share of random executions", **STYLE)
    left.yaxis.set_major_formatter(FuncFormatter(lambda share, _: as_given(share)))
    for place, (side, colour) in enumerate(zip(sides, COLOURS, strict=True)):
        reach = [[side.rate - side.low], [side.high - side.rate]]
        right.errorbar(side.rate, place, xerr=reach, fmt="o", color=colour, markersize=8, elinewidth=2, capsize=4)
        rate = estimate(side.rate, side.low, side.high)[0]
        right.annotate(rate, (side.rate, place), (0, 9), textcoords="offset points", ha="center",
                       fontsize=8.5, color=INK)  # fmt: skip
    right.set_yticks(range(len(sides)), [side.name.partition(":")[0] for side in sides])
    right.set_ylim(len(sides) - 0.5, -0.6)
    right.set_xlim(0, max(max(side.high for side in sides) * 1.15, 1e-4))
    right.xaxis.set_major_locator(MaxNLocator(4))
    right.xaxis.set_major_formatter(FuncFormatter(lambda rate, _: as_given(rate)))
    right.set_xlabel(f"natural rate, interval at {as_given(confidence)}", **STYLE)
    plain_axes(left, "both")
    plain_axes(right, "x")
    figure.legend(loc="outside lower left", ncols=2, frameon=False, fontsize=9)
    figure.suptitle("\n".join(textwrap.wrap(verdict, 95)), fontsize=10, color=INK, x=0.01, ha="left", fontweight="bold")
    return figure


def drawn(figure: Figure, ending: str) -> bytes:
    """The file's content: the same numbers give the same bytes."""
    file = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "fairtest"}):
        figure.savefig(file, format=ending, dpi=200, metadata=NO_DATE[ending])
    return file.getvalue()
