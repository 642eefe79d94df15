"""Is the second of two teams fairer? Statistics of two finished runs, and a verdict in words.

Only random executions tell how often a team is unfair by itself; what a search found is shown beside it. The verdict
rests on the natural rates alone: Newcombe's interval of their difference.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from epymarl_fairtest.api.shown import picture
from epymarl_fairtest.core import statistics
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.indices import INDICES
from epymarl_fairtest.core.numbers import amount, percent
from epymarl_fairtest.core.statistics import Rate, newcombe, rate_of
from epymarl_fairtest.core.worst_off import worst_off_in
from epymarl_fairtest.report.libraries import needed_for
from epymarl_fairtest.settings import flat_names
from epymarl_fairtest.store.finished import NATURAL, WHY_ABSENT, FinishedRun, read_run
from epymarl_fairtest.strategies import configure, strategy_of

if TYPE_CHECKING:
    from epymarl_fairtest.report.plots import Plot

DISTINCT = ("distinct_failures", "distinct_failures_wide", "distinct_starts")
EXECUTION = {
    "greedy": (),
    "policy": (),
    "epsilon_greedy": ("epsilon",),
    "softmax": ("temperature",),
}  # settings that it reads
HARMLESS = {
    "seed", "out", "workers", "engine", "progress", "report", "confirm", "replay", "training_pool", "quantile", "theta",
    "natural_episodes", "random_team", "explain", "calibration_episodes", "allocation", "agents", "index",
    "execution", "epsilon", "temperature",
}  # fmt: skip
"""Settings that change nothing that is compared, or are compared on their own."""


@dataclass(frozen=True, repr=False)
class Comparison:
    """Two tested teams, A and B, side by side. In a notebook it shows the verdict, the figure and the table."""

    a: FinishedRun
    b: FinishedRun
    numbers: dict[str, Any]  # everything that the table and the figure show

    @classmethod
    def of_runs(cls, a: Path, b: Path, *, theta: float | None = None, confidence: float = 0.95) -> Comparison:
        """Of two run folders, judged with one threshold."""
        check_judging(theta, confidence)
        if a.resolve() == b.resolve():
            raise FairTestError(f"{str(a)!r} and {str(b)!r} are the same run; name two.")
        first, second = (read_run(path, "executions.npz") for path in (a, b))
        return cls(first, second, compared(first, second, theta=theta, confidence=confidence))

    @property
    def verdict(self) -> str:
        """In a sentence."""
        return str(self.numbers["verdict"])

    @property
    def fairer(self) -> str | None:
        """'a', 'b', or None where no difference could be shown."""
        fairer: str | None = self.numbers["fairer"]
        return fairer

    @property
    def difference(self) -> dict[str, float]:
        """Natural rate of B minus that of A: `estimate`, `low` and `high`."""
        return dict(self.numbers["difference"])

    @property
    def warnings(self) -> list[str]:
        """What else could be behind a difference."""
        return list(self.numbers["warnings"])

    def plot(self) -> Plot:
        """How the index is distributed, and the natural rates."""
        with needed_for("plot()"):
            from epymarl_fairtest.report.compare_figure import Side, compare_figure

        result = self.numbers
        sides = [
            Side(
                f"{letter.upper()}: {run.path.resolve().name[-40:]}",
                random_index(run),
                *result[letter]["rate"].values(),
            )
            for letter, run in (("a", self.a), ("b", self.b))
        ]
        name = INDICES[result["index"]].label
        return compare_figure(sides, result["theta"], name, result["confidence"], result["verdict"])

    def drawn(self, ending: str) -> bytes:
        """The figure as a file of this kind: png, svg or pdf."""
        with needed_for("--figure"):
            from epymarl_fairtest.report.compare_figure import drawn

        return drawn(self.plot(), ending)

    def __str__(self) -> str:
        return table(self.numbers)

    def __repr__(self) -> str:
        return f"<Comparison of {str(self.a.path)!r} and {str(self.b.path)!r}: {self.verdict}>"

    def _repr_html_(self) -> str:
        words = "".join(f"<p>{escape(text)}</p>" for text in (self.verdict, *self.warnings))
        return f"<div>{words}{picture(self.drawn('png'), self.verdict, 'png')}<pre>{escape(str(self))}</pre></div>"


def check_judging(theta: float | None, confidence: float) -> None:
    if not isinstance(confidence, int | float) or not 0 < confidence < 1:
        raise FairTestError(f"--confidence {confidence!r} is not allowed; it must be a number in (0, 1).")
    if theta is not None and (not isinstance(theta, int | float) or not 0 < theta <= 1):
        raise FairTestError(f"--theta {theta!r} is not allowed; it must be a number in (0, 1].")


def compared(a: FinishedRun, b: FinishedRun, *, theta: float | None = None, confidence: float = 0.95) -> dict[str, Any]:
    """Everything that the table, the figure and --json show."""
    refuse_if_incomparable(a, b, theta)
    for run in (a, b):
        if run.needed_rate() and not len(run.random_executions["index"]):
            raise FairTestError(f"{str(run.path / NATURAL)!r} is missing: {WHY_ABSENT}. Run it again.")
    theta = a.theta if theta is None else theta
    rates = [run.needed_rate(theta, confidence) for run in (a, b)]
    low, high = newcombe(rates[1], rates[0], confidence)
    index = statistics.compare(*(random_index(run) for run in (b, a)))
    verdict = "b" if high < 0 else "a" if low > 0 else None
    return {
        "a": team(a, rates[0], theta),
        "b": team(b, rates[1], theta),
        "theta": theta,
        "index": a.settings["index"],
        "confidence": confidence,
        "difference": {"estimate": rates[1].estimate - rates[0].estimate, "low": low, "high": high},
        "index_of_b_over_a": index and {"p": index.p, "a12": index.a12, "letter": index.letter},
        "fairer": verdict,
        "verdict": sentence(verdict, low, high, confidence),
        "warnings": warnings(a, b, confidence),
    }


def refuse_if_incomparable(a: FinishedRun, b: FinishedRun, theta: float | None) -> None:
    """Refuse runs that differ in more than the team: their difference could come from something else."""
    pairs = {
        "task": (a.manifest["task"], b.manifest["task"]),
        "environment": (a.manifest.get("key"), b.manifest.get("key")),
        "judged agents": (a.agents, b.agents),
        "number of agents": (a.executions["received"].shape[1], b.executions["received"].shape[1]),
        "index": (a.settings["index"], b.settings["index"]),
        "allocation": (a.settings["allocation"], b.settings["allocation"]),
        "execution": (execution(a.settings), execution(b.settings)),
    }
    wrong = [f"{name} {x!r} and {y!r}" for name, (x, y) in pairs.items() if x != y]
    if wrong:
        raise FairTestError(
            f"{str(a.path)!r} and {str(b.path)!r} cannot be compared; they differ in more than the team: "
            + "; ".join(wrong)
            + ". Test both teams with the same settings."
        )
    if theta is None and a.theta != b.theta:
        raise FairTestError(
            f"The runs have different thresholds, {a.theta:g} in {str(a.path)!r} and {b.theta:g} in {str(b.path)!r};"
            f" judge both with one of them, e.g. --theta {a.theta:g}."
        )


def execution(settings: Mapping[str, Any]) -> str:
    kind = settings["execution"]
    return " ".join([kind, *(f"{name}={settings[name]:g}" for name in EXECUTION[kind])])


def random_index(run: FinishedRun) -> Any:
    """The index of the random executions, where it is defined."""
    index = run.random_executions["index"]
    return index[~np.isnan(index)]


def team(run: FinishedRun, rate: Rate, theta: float) -> dict[str, Any]:
    """One side. Distinct failures and coverage were counted at the run's own threshold and cannot be recounted."""
    index, unfair, own = random_index(run), run.unfair(theta), theta == run.theta
    received = run.random_executions["received"]
    agents = range(1, received.shape[1] + 1) if isinstance(run.agents, str) else run.agents
    worst_off = worst_off_in(run.judged, run.unfair_among(run.judged, theta))
    return {
        "run": str(run.path),
        "algorithm": run.manifest.get("algorithm"),
        "policy_digest": run.manifest.get("policy_digest"),
        "method": run.summary["method"],
        "seed": run.manifest.get("seed"),
        "budget": run.settings["budget"],
        "accounting": run.settings["accounting"],
        "evaluated": run.summary["evaluated"],
        "rate": {"estimate": rate.estimate, "low": rate.low, "high": rate.high},
        "random_executions": rate.executions,
        "random_failures": rate.count,
        "random_undefined": rate.executions - len(index),
        "index_median": float(np.median(index)) if len(index) else None,
        "index_lowest": float(index.min()) if len(index) else None,
        "failures": int(unfair.sum()),
        **{name: run.summary.get(name) if own else None for name in DISTINCT},
        "roots": run.summary["roots"] if own else len(np.unique(run.executions["root_seed"][unfair])),
        "coverage": run.summary["coverage"] if own else None,
        "received": received.mean(axis=0).tolist(),
        "worst_off": worst_off.as_dict(agents),
    }


def sentence(verdict: str | None, low: float, high: float, confidence: float) -> str:
    if verdict is None:
        interval = f"B's natural rate minus A's is between {low:+.4f} and {high:+.4f}"
        return f"No difference could be shown ({interval}, {percent(confidence)} confidence)."
    fewer, more = sorted((abs(low), abs(high)))
    return (
        f"{verdict.upper()} is fairer: its natural rate is lower by {fewer:.4f} to {more:.4f}"
        f" ({percent(confidence)} confidence)."
    )


def warnings(a: FinishedRun, b: FinishedRun, confidence: float) -> list[str]:
    messages = []
    digests = (a.manifest.get("policy_digest"), b.manifest.get("policy_digest"))
    if digests[0] == digests[1]:
        messages.append("both runs tested the same weights: any difference is chance.")
    ours, theirs = searched_with(a.settings), searched_with(b.settings)
    names = [name for name in ours if name in theirs and ours[name] != theirs[name]]
    if names:
        values = ", ".join(f"{name} {ours[name]!r} and {theirs[name]!r}" for name in names)
        messages.append(
            f"the searches differ ({values}): do not compare what they found. The natural rates are comparable."
        )
    empty = [empty_rate(run, confidence) for run in (a, b)]
    low, high = newcombe(empty[1], empty[0], confidence)
    if low > 0 or high < 0:
        messages.append(
            f"in {percent(empty[0].estimate)} of A's and {percent(empty[1].estimate)} of B's random executions nobody"
            " received anything. These do not count as unfair, so a team may look fairer because it achieves less."
        )
    return messages


def searched_with(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that say how a run searched, by the names that a user gives them.

    Read as a run's settings are: those of earlier runs stand elsewhere, and the method's defaults are not written out.
    """
    try:
        chosen = configure(settings)
        flat = flat_names(strategy_of(chosen).options)
    except FairTestError:  # a method that is not installed here
        return {name: value for name, value in settings.items() if name not in HARMLESS}
    values = chosen.as_dict()
    options = {name if name in flat else f"options.{name}": value for name, value in values.pop("options").items()}
    return {name: value for name, value in {**values, **options}.items() if name not in HARMLESS}


def empty_rate(run: FinishedRun, confidence: float) -> Rate:
    executions = len(run.random_executions["index"])
    return rate_of(executions - len(random_index(run)), executions, confidence)


def table(result: dict[str, Any]) -> str:
    sides = result["a"], result["b"]

    def number(value: float | None, form: str = ",") -> str:
        return "-" if value is None else format(value, form)

    def row(name: str, shown: Any) -> tuple[str, ...]:
        return (name, *(shown(side) for side in sides))

    def named(agent: int | None) -> str:
        return "no agent is shown to be" if agent is None else f"agent {agent}"

    rows = [
        ("", "A", "B"),
        row("natural rate", lambda s: "{estimate:.4f} [{low:.4f}, {high:.4f}]".format(**s["rate"])),
        row("run", lambda s: s["run"]),
        row("team", lambda s: f"{s['algorithm'] or '?'} {str(s['policy_digest'])[:8]}"),
        row("method, seed", lambda s: f"{s['method']}, {s['seed']}"),
        row("budget", lambda s: f"{s['budget']:,} {s['accounting']}, {s['evaluated']:,} judged"),
        row("random executions", lambda s: number(s["random_executions"])),
        row("  unfair", lambda s: number(s["random_failures"])),
        row("  nobody got anything", lambda s: number(s["random_undefined"])),
        row("  index, median", lambda s: number(s["index_median"], ".4f")),
        row("  index, lowest", lambda s: number(s["index_lowest"], ".4f")),
        row("  systematically worse off", lambda s: named(s["worst_off"]["agent"])),
        row("  received on average", lambda s: ", ".join(map(amount, s["received"]))),
        row("found by the search", lambda s: number(s["failures"])),
        row("  distinct", lambda s: number(s["distinct_failures"])),
        row("    at 3 x the distance", lambda s: number(s["distinct_failures_wide"])),
        row("  distinct starts", lambda s: number(s["distinct_starts"])),
        row("  roots", lambda s: number(s["roots"])),
        row("  coverage", lambda s: number(s["coverage"], ".3f")),
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = ["  ".join(f"{cell:<{w}}" for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]
    difference, index = result["difference"], result["index_of_b_over_a"]
    lines += ["", "rate of B - rate of A  {estimate:+.4f} [{low:+.4f}, {high:+.4f}] (Newcombe)".format(**difference)]
    if index:
        lines.append(
            f"index of B over A      A12 {index['a12']:.3f} ({index['letter']}), p = {index['p']:.2g} (Mann-Whitney U)"
        )
    lines.append(f"threshold {result['theta']:.4g}, intervals at {percent(result['confidence'])} confidence")
    return "\n".join([*lines, "", result["verdict"]])
