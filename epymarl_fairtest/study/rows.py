"""What a study knows of its runs: a tidy row for each, how their counts grew, and statistics of each two variants.

Knows rows; no folder, no run, no layout.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from epymarl_fairtest.core.statistics import Comparison, Mean, compare, mean_of
from epymarl_fairtest.study.kinds import KINDS

Row = dict[str, Any]
Curve = tuple[list[int], list[int]]
"""executed episodes, and what was found by then"""

COLUMNS = {
    "study": f"its kind: {', '.join(KINDS)}",
    "policy": "name of the team in the study: the folder under runs/",
    "task": "the environment family, as FairTest names it",
    "algorithm": "what the team was trained with",
    "method": "strategy that chose the tests; predictor in rq3a",
    "variant": "what the study varies: the method (rq1), the select ratio (rq2), the fitness functions (rq3b), the"
    " prioritisation (rq3c)",
    "seed": "root seed of the run",
    "accounting": "what counts against the budget: strict or paper",
    "preset": "named set of values that the settings began with",
    "budget": "episodes the method may spend, in the unit of the accounting",
    "index": "fairness index",
    "theta": "failure threshold; calibrated per run with theta=auto",
    "failures": "unfair episodes",
    "unique_failures": "those that differ in a state or an action",
    "distinct_failures": "those whose paths are further than a stated distance from every one counted before,"
    " wherever they began",
    "distinct_failures_wide": "the same at three times the distance",
    "distinct_starts": "initial states of failures that are further apart than that distance",
    "roots": "initial seeds that failures descend from",
    "coverage": "share of the cells of the position grid that failures touch, 0 to 1",
    "coverage_of": "which agents share a grid: all agents or, where that has too many cells, pairs of agents",
    "suffix_failures": "failures that are unfair in what was executed alone",
    "distinct_area": "distinct failures known on average during the search: the area under their curve over executed"
    " episodes, divided by these",
    "tenth_distinct_failure": "executed episodes until the tenth distinct failure; empty if there were fewer",
    "lowest_index": "the lowest fairness index of all judged episodes",
    "natural_rate": "share of unfair episodes among random executions",
    "natural_low": "lower end of its exact 95% interval",
    "natural_high": "upper end of it",
    "undefined": "episodes in which nobody received anything",
    "confirmed_failures": "failures that were replayed in the real environment and came out the same",
    "unstable_failures": "replayed ones that did not, and are not counted as failures",
    "evaluated": "episodes that were judged",
    "executed_episodes": "episodes that were executed, whatever for",
    "executed_steps": "environment steps that were executed",
    "charged_strict": "episodes charged if everything counts",
    "charged_paper": "episodes charged as the paper counts",
    "cpu_seconds": "CPU seconds of the run",
    "wall_seconds": "seconds the run took",
    "auc_abstract": "out-of-bag AUC of the predictor with abstract states alone",
    "auc_full": "the same with fairness features",
    "cv_auc_abstract": "rq3a: mean AUC over the folds of the cross-validation, abstract states alone",
    "cv_auc_full": "rq3a: the same with fairness features",
    "cv_std_abstract": "rq3a: standard deviation of the AUC over the folds, abstract states alone",
    "cv_std_full": "rq3a: the same with fairness features",
    "d": "abstraction level",
    "joint_states": "joint abstract states of the labelled episodes",
    "engine": "what executed the episodes: twin or lockstep",
    "run": "folder of the run, from the study's folder",
}
"""Columns of results.csv: name and meaning. A value that a run does not have is empty."""

METRICS = {
    "failures": "Failures", "distinct_failures": "Distinct failures",
    "distinct_failures_wide": "Wide distinct failures", "distinct_starts": "Distinct starts", "roots": "Roots",
    "coverage": "Coverage", "distinct_area": "Distinct failures known on average",
}  # fmt: skip
"""What methods are compared by, as far as the runs tell it; more is better."""
ALSO = {
    "tenth_distinct_failure": "Executed episodes until the tenth distinct failure, where there was one",
    "lowest_index": "Lowest index", "natural_rate": "Natural rate",
}  # fmt: skip
"""Reported as well, where the runs have it; the natural rate is the team's, whatever the method."""
COSTS = {"executed_episodes": "Executed episodes", "cpu_seconds": "CPU seconds"}


def tidy_row(summary: Mapping[str, Any], **known: Any) -> Row:
    """One run as a row: `known` is what the study knows of it, the rest is in its summary."""
    predictor = summary.get("predictor") or {}
    folds: dict[str, float | None] = {}
    for name in ("abstract", "full"):
        auc = mean_of(predictor.get(f"cv_{name}", ()))
        folds |= {f"cv_auc_{name}": auc.mean, f"cv_std_{name}": auc.std}
    natural = summary.get("natural_rate") or {}
    counted = {f"natural_{name}": natural.get(name) for name in ("rate", "low", "high")}
    counted["lowest_index"] = (summary.get("index_quantiles") or {}).get("0")
    values = {**summary, **predictor, **folds, **counted, **known}
    return {column: values.get(column) for column in COLUMNS}


GROWTH = ("policy", "variant", "seed", "episodes", "failures", "distinct_failures")


def growth_rows(summary: Mapping[str, Any], **known: Any) -> list[Row]:
    """How the counts of one run grew with its executed episodes: rows of growth.csv, none for earlier runs."""
    growth = summary.get("growth") or {}
    counts = GROWTH[3:]
    points = zip(*(growth.get(name, ()) for name in counts), strict=True)
    return [{name: known[name] for name in GROWTH[:3]} | dict(zip(counts, point, strict=True)) for point in points]


def to_csv(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: "" if row[name] is None else row[name] for name in columns} for row in rows)
    return out.getvalue()


# --- the runs of a team and a variant -----------------------------------------------------------------


@dataclass(frozen=True)
class Results:
    """All rows of a study, and how its tables are arranged."""

    rows: Sequence[Row]
    teams: Sequence[str]
    variants: Sequence[str]
    labels: Mapping[str, str]
    reference: str  # the variant that the others are compared with
    growth: Sequence[Row] = ()  # rows of growth.csv

    def label(self, variant: str) -> str:
        return self.labels.get(variant, variant)

    def values(self, team: str, variant: str, metric: str) -> list[float]:
        chosen = (row for row in self.rows if (row["policy"], row["variant"]) == (team, variant))
        return [row[metric] for row in chosen if row.get(metric) is not None]

    def known(self, names: Mapping[str, str]) -> dict[str, str]:
        """These without those that earlier runs lack."""
        lacking = {name for name in names if self.rows and all(row.get(name) is None for row in self.rows)}
        return {name: names[name] for name in names if name not in lacking}

    @property
    def metrics(self) -> dict[str, str]:
        return self.known(METRICS)

    def mean(self, team: str, variant: str, metric: str) -> Mean:
        return mean_of(self.values(team, variant, metric))

    def compare(self, team: str, variant: str, metric: str, reference: str | None = None) -> Comparison | None:
        """The reference, or the one given, against another variant."""
        return compare(self.values(team, reference or self.reference, metric), self.values(team, variant, metric))

    @property
    def others(self) -> list[str]:
        return [variant for variant in self.variants if variant != self.reference]

    # --- what the figures about time are drawn from

    def curves(self) -> dict[str, dict[str, list[Curve]]]:
        """Distinct failures over executed episodes: team -> variant -> one curve per run."""
        points: dict[tuple[str, str, Any], Curve] = {}
        for row in self.growth:
            episodes, distinct = points.setdefault((row["policy"], row["variant"], row["seed"]), ([], []))
            episodes.append(int(row["episodes"]))
            distinct.append(int(row["distinct_failures"]))
        curves: dict[str, dict[str, list[Curve]]] = {t: {v: [] for v in self.variants} for t in self.teams}
        for (team, variant, _), curve in points.items():
            if variant in curves.get(team, ()):
                curves[team][variant].append(curve)
        return curves

    def areas(self) -> dict[str, dict[str, float]]:
        """Distinct failures known on average, where runs tell it: team -> variant -> mean of the runs."""
        means = {t: {v: self.mean(t, v, "distinct_area").mean for v in self.variants} for t in self.teams}
        return {team: {v: mean for v, mean in of.items() if mean is not None} for team, of in means.items()}

    def tenths(self) -> dict[str, dict[str, list[float | None]]]:
        """Episodes until the tenth distinct failure: team -> variant -> one per run; none of runs that do not tell."""
        firsts: dict[str, dict[str, list[float | None]]] = {t: {v: [] for v in self.variants} for t in self.teams}
        for row in self.rows:
            if row.get("distinct_area") is not None and row["variant"] in firsts.get(row["policy"], ()):
                firsts[row["policy"]][row["variant"]].append(row["tenth_distinct_failure"])
        return firsts


STATISTICS = (
    "policy", "metric", "variant", "runs", "mean", "std", "reference", "reference_runs", "reference_mean",
    "reference_std", "ratio", "p", "a12", "effect",
)  # fmt: skip


def statistics_rows(results: Results) -> list[Row]:
    """Each two variants once, per team and metric. The study's reference is the reference of all its pairs; of two
    others, the one that stands later in the tables."""
    rows = []
    for team in results.teams:
        for metric in results.metrics:
            means = {variant: results.mean(team, variant, metric) for variant in results.variants}
            for reference, variant in _pairs(results):
                mine, theirs = means[reference], means[variant]
                test = results.compare(team, variant, metric, reference)
                values = (
                    team, metric, variant, theirs.runs, theirs.mean, theirs.std, reference, mine.runs, mine.mean,
                    mine.std, ratio(mine, theirs), *((test.p, test.a12, test.letter) if test else (None, None, None)),
                )  # fmt: skip
                rows.append(dict(zip(STATISTICS, values, strict=True)))
    return rows


def _pairs(results: Results) -> Iterator[tuple[str, str]]:
    """The reference with each other variant, in their order; then the pairs of the others."""
    if results.reference in results.variants:
        yield from ((results.reference, variant) for variant in results.others)
    yield from ((later, earlier) for earlier, later in combinations(results.others, 2))


def ratio(mine: Mean, theirs: Mean) -> float | None:
    """None where there is nothing to divide by."""
    return mine.mean / theirs.mean if mine.mean is not None and theirs.mean else None
