"""The page of a repair, and its figure: natural rate against team return, every team that was trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from epymarl_fairtest.core.numbers import amount, as_given, estimate, percent
from epymarl_fairtest.report.one_file import one_file
from epymarl_fairtest.report.study_figures import HIGHLIGHT, STYLE, plain_axes
from epymarl_fairtest.report.study_figures import INK as DARK
from epymarl_fairtest.report.svg import ACCENT, GRID, INK, QUIET, element_of

Data = Mapping[str, Any]
CONTROL = "#E69F00"
MARKERS = {
    "control": ("s", CONTROL, CONTROL, 5),
    "repaired or levelled down": ("o", HIGHLIGHT, HIGHLIGHT, 5),
    "not repaired": ("o", HIGHLIGHT, "none", 5),
    "before": ("D", DARK, DARK, 7),
}
"""Of teams side by side, the last on top: marker, its colour, what it is filled with, and its size."""


def trade_off_figure(document: Data) -> Figure:
    """For a file: on white."""
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.add_subplot()
    draw(axes, document, (HIGHLIGHT, CONTROL, DARK))
    plain_axes(axes, "both")
    axes.set_title(document["verdict"], fontsize=10, color=DARK, loc="left", fontweight="bold")
    return figure


def draw(axes: Axes, document: Data, colours: tuple[str, str, str]) -> None:
    """A point per trained team with the interval of its rate; the chosen ones are filled."""
    ours, control, ink = colours
    for point in document["points"]:
        if point["rate"] is None:
            continue
        ordinary = point["weight"] is None
        colour = control if ordinary else ours
        reach = [[point["rate"] - point["low"]], [point["high"] - point["rate"]]]
        filled = colour if ordinary or point["chosen"] else "none"
        axes.errorbar(point["return"], point["rate"], yerr=reach, fmt="s" if ordinary else "o", color=colour,
                      markerfacecolor=filled, markersize=7, elinewidth=1.2)  # fmt: skip
        if not ordinary:
            axes.annotate(f"{point['weight']:g}", (point["return"], point["rate"]), (6, 4),
                          textcoords="offset points", fontsize=8, color=ink)  # fmt: skip
    others = [("before", document["before"], "D")]
    if document["checkpoint"]:
        others.append(("fairest checkpoint", document["checkpoint"], "^"))
    for name, entry, marker in others:
        if entry["rate"] is not None:
            axes.plot(entry["return"], entry["rate"], marker, color=ink, markersize=8)
            axes.annotate(name, (entry["return"], entry["rate"]), (8, -10), textcoords="offset points", fontsize=8.5,
                          color=ink)  # fmt: skip
    least = document["before"]["return"] - document["max_loss"] * abs(document["before"]["return"])
    axes.axvline(least, color=ink, linewidth=0.9, linestyle=":")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("return of the team", **STYLE)
    axes.set_ylabel("natural rate", **STYLE)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda rate, _: as_given(rate)))


def teams_figure(teams: Mapping[str, Sequence[Data]], loss: float) -> Figure:
    """Repairs of several teams, a panel each: rows with `arm` (before, control, repaired), `rate`, `return` and, of
    those repaired, `verdict`; the recipes of a team share its panel. A line shows where so much return is lost."""
    figure = Figure(figsize=(9.6, 5.6), layout="constrained")
    panels = figure.subplots(2, -(-len(teams) // 2), squeeze=False).T.flat
    for axes, (team, rows) in zip(panels, teams.items(), strict=False):
        for kind, (marker, colour, filled, size) in MARKERS.items():
            some = [row for row in rows if _kind(row) == kind]
            axes.plot([row["return"] for row in some], [row["rate"] for row in some], marker, color=colour,
                      markerfacecolor=filled, markersize=size, label=kind)  # fmt: skip
        before = next(row["return"] for row in rows if row["arm"] == "before")
        axes.axvline(before - loss * abs(before), color=DARK, linewidth=0.9, linestyle=":")
        axes.margins(0.08)
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda rate, _: as_given(rate)))
        axes.xaxis.set_major_locator(MaxNLocator(4))
        axes.set_title(team, fontsize=10, color=DARK, loc="left", fontweight="bold")
        plain_axes(axes, "both")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(MARKERS), frameon=False, fontsize=9)
    figure.supxlabel(f"return of the team (dotted: {as_given(loss)} less than before)", **STYLE)
    figure.supylabel("natural rate", **STYLE)
    return figure


def _kind(row: Data) -> str:
    if row["arm"] != "repaired":
        return str(row["arm"])
    return "not repaired" if row["verdict"] == "not repaired" else "repaired or levelled down"


def page_of(document: Data, rows: list[tuple[str, ...]]) -> str:
    """One file that needs nothing else, like the page of a run."""
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.add_subplot()
    draw(axes, document, (ACCENT, QUIET, INK))
    axes.grid(color=GRID, linewidth=0.6)
    aloud = "Natural rate against return: " + "; ".join(
        f"{point['arm']} of seed {point['seed']}: return {point['return']:.3f}, rate {percent(point['rate'] or 0)}"
        for point in document["points"]
    )
    return one_file(
        "repair.html",
        f"FairTest: repair of {document['algorithm']}, {document['task']}",
        document=document,
        cards=cards(document),
        loss=as_given(document["max_loss"]),
        figure=element_of(figure, "trade-off", aloud),
        head=rows[0],
        rows=rows[1:],
    )


def cards(document: Data) -> list[dict[str, str]]:
    """The teams at a glance; several seeds by their means."""
    arms = {"Before": [document["before"]], "With as much ordinary training": document["control"]}
    arms["Trained for fairness"] = document["repaired"]
    return [_card(name, teams) for name, teams in arms.items() if teams]


def _card(name: str, teams: Sequence[Data]) -> dict[str, str]:
    rates = [team["rate"] for team in teams if team["rate"] is not None]
    received, worst = (fmean(team[part] for team in teams) for part in ("return", "worst_off"))
    note = f"return {amount(received)}, worst-off agent {amount(worst)}"
    if not rates:
        return {"name": name, "value": "undefined", "note": note}
    value, low, high = estimate(fmean(rates), min(rates), max(rates)) if rates[1:] else 3 * (percent(rates[0]),)
    seeds = f"mean of {len(rates)} seeds, {low} to {high}; " if rates[1:] else ""
    return {"name": name, "value": f"{value} unfair", "note": seeds + note}


def written(folder: Path, document: Data, rows: list[tuple[str, ...]]) -> list[Path]:
    """index.html and the figure as files."""
    from epymarl_fairtest.core.files import write_bytes
    from epymarl_fairtest.report.compare_figure import drawn

    figure = trade_off_figure(document)
    content = {f"trade-off.{ending}": drawn(figure, ending) for ending in ("svg", "png")}
    content["index.html"] = page_of(document, rows).encode()
    for name, text in content.items():
        write_bytes(folder / name, text)
    return [folder / name for name in content]
