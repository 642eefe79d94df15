"""The pictures of docs/search.md: where scout looks, how far apart it keeps starts, and where they come from.

python tools/search_pictures.py --draw [--policy policies/pp-qmix] [--seed 0] [--budget 1000] [--out DIR]

Runs random, scout, and scout without its distances, and draws what they found to docs/images/search-*.png. Runs that
are already in DIR are not run again.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from epymarl_fairtest.commands import main as fairtest
from epymarl_fairtest.engine.selection import make_engine
from epymarl_fairtest.report.drawing import AGENTS
from epymarl_fairtest.report.study_figures import INK, STYLE, plain_axes
from epymarl_fairtest.store.finished import FinishedRun, read_run
from epymarl_fairtest.strategies import configure
from epymarl_fairtest.strategies.scout.options import ScoutOptions
from epymarl_fairtest.tasks.contract import Task
from epymarl_fairtest.team.checkpoint import load_record
from epymarl_fairtest.team.saved import saved_team

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
RUNS: dict[str, list[str]] = {
    "Random": ["method=random"],
    "Scout without distances": ["method=scout", "options.near=0", "options.far=0"],
    "Scout": ["method=scout"],
}
FAINT = "#C9CFD5"
SCOUT, OTHER, UNGUIDED = "#0072B2", "#D55E00", "#8A939B"
BINS = 10  # of the executed episodes
Array = NDArray[np.float64]


class Seen(NamedTuple):
    """What is drawn of one run."""

    run: FinishedRun
    starts: Array  # initial states of failures, in the order in which they were found
    places: Array  # (failures, bodies, 2)
    worst: NDArray[np.int64]  # the agent that received least


def executed(name: str, policy: Path, seed: int, budget: int, out: Path, task: Task) -> Seen:
    folder = out / f"{policy.name}-{name.replace(' ', '-').lower()}-{budget}-{seed}"
    if not (folder / "summary.json").is_file():
        settings = [*RUNS[name], f"budget={budget}", "accounting=strict", "report=False"]
        words = ["run", f"--policy={policy}", f"--seed={seed}", f"--out={folder}"]
        if code := fairtest([*words, *(f"--set={setting}" for setting in settings)]):
            raise SystemExit(code)
    run = read_run(folder, "executions.npz", "failures.npz")
    starts = run.failures["initial_state"]
    return Seen(run, starts, task.start_places(starts), run.failures["received"].argmin(axis=1))


def starts_picture(seen: dict[str, Seen], task: Task, anywhere: Array) -> Figure:
    """Where the worst-off agent stands when a failing episode begins, one panel per run; in grey `anywhere` (n, 2)."""
    figure = Figure(figsize=(9.6, 4.2), layout="constrained")
    panels: Any = figure.subplots(1, len(seen), sharex=True, sharey=True)
    for axes, (name, found) in zip(panels, seen.items(), strict=True):
        axes.scatter(*anywhere.T, s=3, color=FAINT, linewidths=0)
        mine = task.positions(found.starts)[np.arange(len(found.worst)), found.worst]
        for agent in range(task.n_agents):
            rows = found.worst == agent
            axes.scatter(*mine[rows].T, s=11, color=AGENTS[agent % len(AGENTS)], linewidths=0, alpha=0.8,
                         label=f"agent {agent + 1}")  # fmt: skip
        told = found.run.summary
        wide, starts = told["distinct_failures_wide"], told["distinct_starts"]
        counts = f"{told['distinct_failures']} distinct, {wide} wide, {starts} distinct starts"
        axes.set_title(
            f"{name}: {told['failures']} failures,\n{counts},\ncoverage {told['coverage']:.2f}",
            fontsize=8.5, color=INK, loc="left",
        )  # fmt: skip
        axes.set_aspect("equal")
        plain_axes(axes, "both")
    handles, labels = panels[-1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, fontsize=8.5)
    return figure


def distances_picture(seen: dict[str, Seen], distance: float) -> Figure:
    """Left: two failing starts and their distance. Right: how far each was from the nearest one before it."""
    figure = Figure(figsize=(9.6, 3.7), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[1, 1.9])
    places, options = seen["Scout"].places, ScoutOptions()
    apart = _apart(places)
    one, other = _example(places, apart, options.near * distance, options.far * distance)
    for body, (a, b) in enumerate(zip(places[one], places[other], strict=True)):
        left.plot(*np.array([a, b]).T, color=INK, linewidth=0.8, zorder=1)
        left.scatter(*a, s=60, color=AGENTS[body % len(AGENTS)], zorder=2)
        left.scatter(*b, s=60, facecolors="white", edgecolors=AGENTS[body % len(AGENTS)], linewidths=1.6, zorder=2)
    left.set_title(
        f"two failing starts, {apart[one, other] / distance:.1f} distances apart", fontsize=9, color=INK, loc="left"
    )
    left.set_aspect("equal", adjustable="datalim")
    plain_axes(left, "both")
    bins = np.linspace(0, 2 * options.far, 46)
    for name, colour in (("Scout without distances", OTHER), ("Scout", SCOUT)):
        before = np.tril(np.ones((len(seen[name].places),) * 2, bool), -1)
        nearest = np.where(before, _apart(seen[name].places), np.inf)[1:].min(axis=1) / distance
        right.hist(np.minimum(nearest, bins[-1]), bins, color=colour, alpha=0.65, label=name)
    for name, at in (("near", options.near), ("far", options.far)):
        right.axvline(at, color=INK, linewidth=0.9, linestyle="--")
        right.annotate(f" {name}", (at, 0.96), xycoords=("data", "axes fraction"), fontsize=8.5, color=INK)
    right.set_xlabel("distance from the nearest failing start before it, in units of distinct_distance", **STYLE)
    right.set_ylabel("failures", **STYLE)
    right.legend(frameon=False, fontsize=8.5)
    plain_axes(right, "y")
    return figure


def _example(places: Array, apart: Array, least: float, most: float) -> tuple[int, int]:
    """Of the failing starts and the nearest one before each, so far apart: two in which most bodies are elsewhere."""
    pairs = [(row, int(apart[row, :row].argmin())) for row in range(1, len(places))]
    moved = [float(np.median(np.linalg.norm(places[a] - places[b], axis=-1))) for a, b in pairs]
    fit = [amount if least <= apart[pair] <= most else -1.0 for pair, amount in zip(pairs, moved, strict=True)]
    return pairs[int(np.argmax(fit))]


def _apart(places: Array) -> Array:
    """The distance of each two starts: the mean distance of their bodies."""
    return np.array([np.linalg.norm(places - one, axis=-1).mean(axis=-1) for one in places])


def proposals_picture(scout: Seen) -> Figure:
    """Left: who chose the executed starts, over the budget. Right: how many of them were unfair."""
    rows, unfair = scout.run.executions, scout.run.unfair()
    figure = Figure(figsize=(9.6, 3.3), layout="constrained")
    left, right = figure.subplots(1, 2, sharex=True)
    edges = np.linspace(0, len(unfair), BINS + 1).astype(int)
    middle, width, bottom = (edges[1:] + edges[:-1]) / 2, np.diff(edges) * 0.85, np.zeros(BINS)
    bred = rows["operator"] == "state"
    origins = {
        "bred": (bred, SCOUT),
        "fresh seed, chosen": (~bred & ~rows["random"], OTHER),
        "nobody chose it": (rows["random"], UNGUIDED),
    }
    for name, (of, colour) in origins.items():
        count = np.array([of[a:b].sum() for a, b in pairwise(edges)])
        hits = np.array([(of & unfair)[a:b].sum() for a, b in pairwise(edges)])
        left.bar(middle, count, width, bottom=bottom, color=colour, label=name)
        bottom += count
        some = count > 0
        right.plot(middle[some], hits[some] / count[some], color=colour, marker="o", markersize=4, label=name)
    for axes, unit in ((left, "executed starts"), (right, "share of them that was unfair")):
        axes.set_xlabel("executed episodes", **STYLE)
        axes.set_ylabel(unit, **STYLE)
        axes.set_ylim(bottom=0)
        plain_axes(axes, "y")
    figure.legend(*left.get_legend_handles_labels(), loc="outside upper center", ncols=3, frameon=False, fontsize=8.5)
    return figure


def save(figure: Figure, name: str) -> Path:
    path = IMAGES / f"search-{name}.png"
    figure.savefig(path, dpi=110, metadata={"Software": None})
    with Image.open(path) as picture:
        small = picture.convert("RGB").quantize(96)
    small.save(path, optimize=True)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draw", action="store_true", required=True, help="run what is missing, and draw")
    parser.add_argument("--policy", type=Path, default=ROOT / "policies" / "pp-qmix")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--budget", type=int, default=1000)
    parser.add_argument("--out", type=Path, help="keep the runs here")
    args = parser.parse_args()
    out = args.out or Path(tempfile.mkdtemp(prefix="fairtest-pictures-"))
    team = saved_team(args.policy, load_record(args.policy).allocation)
    task, engine = team.task, make_engine(team, configure({}), lambda message: print(message, file=sys.stderr))
    seen = {name: executed(name, args.policy, args.seed, args.budget, out, task) for name in RUNS}
    pictures = {
        "starts": starts_picture(seen, task, task.positions(engine.initial_states(np.arange(500))).reshape(-1, 2)),
        "distances": distances_picture(seen, task.distinct_distance),
        "proposals": proposals_picture(seen["Scout"]),
    }
    for name, figure in pictures.items():
        path = save(figure, name)
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size // 1000} KB")


if __name__ == "__main__":
    main()
