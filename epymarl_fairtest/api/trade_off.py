"""Fairness against return for any number of finished runs of one task: who is beaten in both, who is not.

Only random executions count: the natural rate and what the judged agents received in them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from epymarl_fairtest.api.comparing import check_judging, refuse_if_incomparable
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.numbers import percent
from epymarl_fairtest.report.libraries import needed_for
from epymarl_fairtest.store.finished import FinishedRun, read_run

HEAD = ("run", "natural rate", "return", "worst off", "best off", "beaten by")


@dataclass(frozen=True)
class Place:
    """One run: its natural rate, and what the team received, per random execution on average."""

    run: str
    rate: float
    low: float
    high: float
    executions: int
    team_return: float
    worst_off: float
    best_off: float

    def beats(self, other: Place) -> bool:
        """A rate and a return that are no worse, and one of them better."""
        mine, theirs = (-self.rate, self.team_return), (-other.rate, other.team_return)
        return mine != theirs and mine[0] >= theirs[0] and mine[1] >= theirs[1]


@dataclass(frozen=True)
class TradeOff:
    """The runs as they were named."""

    places: tuple[Place, ...]
    theta: float
    confidence: float
    warnings: tuple[str, ...] = ()

    @classmethod
    def of_runs(cls, paths: Sequence[Path], *, theta: float | None = None, confidence: float = 0.95) -> TradeOff:
        check_judging(theta, confidence)
        if len({path.resolve() for path in paths}) < len(paths):
            raise FairTestError("The same run is named twice.")
        runs = [read_run(path, "executions.npz") for path in paths]
        for run in runs[1:]:
            refuse_if_incomparable(runs[0], run, theta)
        limit = runs[0].theta if theta is None else theta
        digests = [run.manifest.get("policy_digest") for run in runs]
        twice = sorted(
            {str(run.path) for run, one in zip(runs, digests, strict=True) if one and digests.count(one) > 1}
        )
        said = (f"{' and '.join(twice)} tested the same weights: any difference is chance.",) if twice else ()
        return cls(tuple(_place(run, limit, confidence) for run in runs), limit, confidence, said)

    def beaten_by(self, place: Place) -> str | None:
        """The name of a run that is at least as good in both, the fairest of them."""
        better = [other for other in self.places if other.beats(place)]
        return min(better, key=lambda other: (other.rate, -other.team_return)).run if better else None

    @property
    def numbers(self) -> dict[str, Any]:
        runs = [asdict(place) | {"beaten_by": self.beaten_by(place)} for place in self.places]
        return {"runs": runs, "theta": self.theta, "confidence": self.confidence}

    def drawn(self, ending: str) -> bytes:
        """Rate against return as a file of this kind: png, svg or pdf."""
        with needed_for("--figure"):
            from epymarl_fairtest.report.compare_figure import drawn
            from epymarl_fairtest.report.trade_off_figure import Mark, trade_off_figure

        marks = [
            Mark(Path(one.run).name, one.team_return, one.rate, one.low, one.high, self.beaten_by(one) is None)
            for one in self.places
        ]
        return drawn(trade_off_figure(marks, self.confidence), ending)

    def __str__(self) -> str:
        rows = [HEAD, *(self._row(place) for place in self.places)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
        lines = ["  ".join(f"{cell:<{w}}" for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]
        said = f"threshold {self.theta:.4g}, intervals at {percent(self.confidence)} confidence"
        return "\n".join([*lines, "", f"{said}; beaten: another run's rate and return are no worse, one is better"])

    def _row(self, place: Place) -> tuple[str, ...]:
        return (
            place.run,
            f"{place.rate:.4f} [{place.low:.4f}, {place.high:.4f}]",
            f"{place.team_return:.4g}",
            f"{place.worst_off:.4g}",
            f"{place.best_off:.4g}",
            self.beaten_by(place) or "",
        )


def _place(run: FinishedRun, theta: float, confidence: float) -> Place:
    rate, received = run.needed_rate(theta, confidence), run.random_executions["received"]
    means = (received.sum(axis=1), received.min(axis=1), received.max(axis=1))
    return Place(
        str(run.path), rate.estimate, rate.low, rate.high, rate.executions, *(float(each.mean()) for each in means)
    )
