"""Figures of a run for notebooks: matplotlib's own, in colours of their own, to be changed and saved."""

from __future__ import annotations

import io
from typing import Any

from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from epymarl_fairtest.report.study_figures import HIGHLIGHT, INK, OTHERS
from epymarl_fairtest.report.svg import OURS
from epymarl_fairtest.report.view import View
from epymarl_fairtest.report.wording import threshold

QUIET = "#5F6870"
COLOURS = {
    **dict.fromkeys(("axes.labelcolor", "text.color", "xtick.labelcolor", "ytick.labelcolor"), INK),
    **dict.fromkeys(("axes.edgecolor", "xtick.color", "ytick.color"), QUIET),
    "grid.color": "#E3E7EA",
}


class Plot(Figure):
    """A figure that a notebook shows by itself, whether or not pyplot is in use."""

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        self.savefig(file, format="png", dpi=110)
        return file.getvalue()


def index_plot(view: View) -> Plot:
    """How the fairness index is distributed."""
    with style.context(["default", OURS | COLOURS]):
        figure = Plot(figsize=(6.4, 3.4), layout="constrained")
        index_axes(figure.add_subplot(), view)
        if view.histogram is not None and view.histogram.random is not None and view.searched:
            figure.legend(loc="outside upper left", ncols=2)
    return figure


def index_axes(axes: Axes, view: View) -> None:
    """The distribution of the index: random executions filled, everything that was judged as a line."""
    histogram = view.histogram
    if histogram is not None:
        both = histogram.random is not None and view.searched
        if histogram.random is not None and both:
            axes.stairs(
                histogram.random, histogram.edges, fill=True, color=OTHERS, alpha=0.35, label="random executions"
            )
        axes.stairs(histogram.everything, histogram.edges, color=HIGHLIGHT, linewidth=1.6, fill=not both,
                    alpha=None if both else 0.6, label="all that were judged")  # fmt: skip
        axes.set_xlim(histogram.edges[0], 1)
    axes.axvline(view.theta, color=INK, linewidth=1, linestyle=(0, (4, 3)))
    right = view.theta > (axes.get_xlim()[0] + 1) / 2
    beside: Any = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points", "va": "top", "fontsize": 8.5}
    axes.annotate(f"unfair up to θ = {threshold(view.theta)}", (view.theta, 1), (-5 if right else 5, -3),
                  ha="right" if right else "left", **beside)  # fmt: skip
    axes.set_xlabel(view.index_name)
    axes.set_ylabel("share of the episodes")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g}%"))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.grid(axis="y")
    axes.tick_params(length=3)
