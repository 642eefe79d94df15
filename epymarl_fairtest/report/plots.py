"""Figures of a run for notebooks: matplotlib's own, in colours of their own, to be changed and saved."""

from __future__ import annotations

import io

from matplotlib import style
from matplotlib.figure import Figure

from epymarl_fairtest.report.figures import OURS, index_axes
from epymarl_fairtest.report.study_figures import HIGHLIGHT, INK, OTHERS
from epymarl_fairtest.report.view import View

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
        index_axes(figure.add_subplot(), view, ink=INK, quiet=OTHERS, accent=HIGHLIGHT)
        if view.histogram is not None and view.histogram.random is not None and view.searched:
            figure.legend(loc="outside upper left", ncols=2)
    return figure
