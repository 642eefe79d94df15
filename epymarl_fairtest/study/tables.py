"""From finished jobs to a tidy table, and from that to the paper's tables, in Markdown and in LaTeX.

Knows rows and how the paper arranges them; no folder, no run.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from epymarl_fairtest.core.statistics import Comparison, Mean, compare, mean_of

Row = dict[str, Any]

COLUMNS = {
    "study": "rq1, rq2, rq3a, rq3b or rq3c",
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
    "distinct_failures_wide": "Wide distinct failures", "roots": "Roots", "coverage": "Coverage",
}  # fmt: skip
"""What methods are compared by, as far as the runs tell it; more is better."""
COSTS = {"executed_episodes": "Executed episodes", "cpu_seconds": "CPU seconds"}


def tidy_row(summary: Mapping[str, Any], **known: Any) -> Row:
    """One run as a row: `known` is what the study knows of it, the rest is in its summary."""
    predictor = summary.get("predictor") or {}
    folds: dict[str, float | None] = {}
    for name in ("abstract", "full"):
        auc = mean_of(predictor.get(f"cv_{name}", ()))
        folds |= {f"cv_auc_{name}": auc.mean, f"cv_std_{name}": auc.std}
    values = {**summary, **predictor, **folds, **known}
    return {column: values.get(column) for column in COLUMNS}


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

    def label(self, variant: str) -> str:
        return self.labels.get(variant, variant)

    def values(self, team: str, variant: str, metric: str) -> list[float]:
        chosen = (row for row in self.rows if (row["policy"], row["variant"]) == (team, variant))
        return [row[metric] for row in chosen if row.get(metric) is not None]

    @property
    def metrics(self) -> dict[str, str]:
        """METRICS without those that earlier runs lack."""
        lacking = {name for name in METRICS if self.rows and all(row.get(name) is None for row in self.rows)}
        return {name: METRICS[name] for name in METRICS if name not in lacking}

    def mean(self, team: str, variant: str, metric: str) -> Mean:
        return mean_of(self.values(team, variant, metric))

    def compare(self, team: str, variant: str, metric: str) -> Comparison | None:
        """The reference against another variant."""
        return compare(self.values(team, self.reference, metric), self.values(team, variant, metric))

    @property
    def others(self) -> list[str]:
        return [variant for variant in self.variants if variant != self.reference]


STATISTICS = (
    "policy", "metric", "variant", "runs", "mean", "std", "reference", "reference_runs", "reference_mean",
    "reference_std", "ratio", "p", "a12", "effect",
)  # fmt: skip


def statistics_rows(results: Results) -> list[Row]:
    """The reference against each other variant, per team and metric."""
    rows: list[Row] = []
    if results.reference not in results.variants:
        return rows
    for team in results.teams:
        for metric in results.metrics:
            mine = results.mean(team, results.reference, metric)
            for variant in results.others:
                theirs, test = results.mean(team, variant, metric), results.compare(team, variant, metric)
                values = (
                    team, metric, variant, theirs.runs, theirs.mean, theirs.std, results.reference, mine.runs,
                    mine.mean, mine.std, ratio(mine, theirs),
                    *((test.p, test.a12, test.letter) if test else (None, None, None)),
                )  # fmt: skip
                rows.append(dict(zip(STATISTICS, values, strict=True)))
    return rows


def ratio(mine: Mean, theirs: Mean) -> float | None:
    """None where there is nothing to divide by."""
    return mine.mean / theirs.mean if mine.mean is not None and theirs.mean else None


# --- tables -------------------------------------------------------------------------------------------


class Text(NamedTuple):
    """A cell of a table."""

    markdown: str
    latex: str


NONE, P, A12 = Text("–", "--"), Text("p", "$p$"), Text("A12", "$A_{12}$")


@dataclass(frozen=True)
class Table:
    label: str
    title: str
    header: Sequence[Text]
    body: Sequence[Sequence[Text]]
    groups: Mapping[int, Text] | None = None  # row -> the heading above it; Markdown shows it as a first column


def plain(text: str) -> Text:
    markdown = text.replace("|", r"\|")
    return Text(markdown, re.sub(r"([&%$#_{}])", r"\\\1", text).replace("±", r"$\pm$").replace("–", "--"))


def bold(text: Text) -> Text:
    return Text(f"**{text.markdown}**", rf"\textbf{{{text.latex}}}")


def mean_text(value: Mean, digits: int, *, std: bool = True, best: bool = False, runs: int | None = None) -> Text:
    """mean ± std, bold if it is the best; with the number of runs where it is not `runs`."""
    if value.mean is None:
        return NONE
    mean = f"{value.mean:.{digits}f}"
    spread = f"{value.std:.{digits}f}" if std and value.std is not None else None
    markdown = f"{mean} ± {spread}" if spread else mean
    latex = rf"{mean}\pm{spread}" if spread else mean
    markdown, latex = (f"**{markdown}**", rf"$\mathbf{{{latex}}}$") if best else (markdown, f"${latex}$")
    short = f" (n={value.runs})" if runs is not None and value.runs != runs else ""
    return Text(markdown + short, latex + short)


def comparison_texts(test: Comparison | None) -> list[Text]:
    """p with its stars, A12 with its letter."""
    if test is None:
        return [NONE, NONE]
    p = f"{test.p:.4f}" if test.p >= 0.0001 else f"{test.p:.0e}"
    return [
        Text(p + test.stars.replace("*", r"\*"), f"${_scientific(p)}{f'^{{{test.stars}}}' if test.stars else ''}$"),
        Text(f"{test.a12:.3f} {test.letter}", f"${test.a12:.3f}^{{{test.letter}}}$"),
    ]  # fmt: skip


def _scientific(number: str) -> str:
    mantissa, e, exponent = number.partition("e")
    return rf"{mantissa}\cdot10^{{{int(exponent)}}}" if e else number


def digits_of(metric: str) -> int:
    return 3 if metric in ("coverage", "cv_auc_abstract", "cv_auc_full") else 1


def best_of(means: Sequence[Mean], digits: int) -> set[int]:
    """Which are the best as they are printed."""
    printed = [round(value.mean, digits) if value.mean is not None else -math.inf for value in means]
    best = max(printed, default=-math.inf)
    return {number for number, value in enumerate(printed) if value == best > 0}


def teams_by_variants(results: Results, metric: str, title: str, label: str, runs: int, *, best: bool = True) -> Table:
    """One row per team, as in the paper's tables of RQ1."""
    digits, body = digits_of(metric), []
    for team in results.teams:
        means = [results.mean(team, variant, metric) for variant in results.variants]
        top = best_of(means, digits) if best else set()
        texts = [mean_text(value, digits, best=number in top, runs=runs) for number, value in enumerate(means)]
        body.append([plain(team), *texts])
    heads = [plain(results.label(variant)) for variant in results.variants]
    heads = [bold(h) if v == results.reference else h for v, h in zip(results.variants, heads, strict=True)]
    return Table(label, title, [plain("Team"), *heads], body)


def variants_by_teams(results: Results, metrics: Sequence[str], title: str, label: str, runs: int) -> Table:
    """One row per variant, as in the paper's tables of RQ2 and RQ3-c."""
    columns = [(metric, team) for metric in metrics for team in results.teams]
    tops = {}
    for metric, team in columns:
        means = [results.mean(team, variant, metric) for variant in results.variants]
        tops[metric, team] = best_of(means, digits_of(metric))
    body = [
        [
            plain(results.label(variant)),
            *(
                mean_text(
                    results.mean(team, variant, metric), digits_of(metric), best=number in tops[metric, team], runs=runs
                )
                for metric, team in columns
            ),
        ]
        for number, variant in enumerate(results.variants)
    ]
    many = len(metrics) > 1
    heads = [plain(f"{team} {METRICS[metric].lower()}" if many else team) for metric, team in columns]
    return Table(label, title, [plain("Configuration"), *heads], body)


def comparisons(results: Results, title: str, label: str) -> Table:
    """The reference against every other variant, grouped by team, as in the paper's table of statistics."""
    body: list[list[Text]] = []
    groups = {}
    for team in results.teams:
        groups[len(body)] = plain(team)
        for variant in results.others:
            tests = [
                text for metric in results.metrics for text in comparison_texts(results.compare(team, variant, metric))
            ]
            body.append([plain(results.label(variant)), *tests])
    heads = [Text(f"{METRICS[m]} {t.markdown}", f"{METRICS[m]} {t.latex}") for m in results.metrics for t in (P, A12)]
    return Table(label, title, [plain(f"{results.label(results.reference)} vs."), *heads], body, groups)


def ratios(results: Results, title: str, label: str) -> Table:
    """How many times as much as Random and as the best other method."""
    body: list[list[Text]] = []
    groups = {}
    for team in results.teams:
        groups[len(body)] = plain(team)
        for metric, name in results.metrics.items():
            mine = results.mean(team, results.reference, metric)
            means = {variant: results.mean(team, variant, metric) for variant in results.others}
            known = {variant: value for variant, value in means.items() if value.mean is not None}
            best = max(known, key=lambda variant: known[variant].mean or 0.0, default=None)
            random = ratio(mine, known["random"]) if "random" in known else None
            over = ratio(mine, known[best]) if best else None
            body.append([plain(name), *map(_times, (random, over)), plain(results.label(best)) if best else NONE])
    reference = results.label(results.reference)
    heads = ["Metric", f"{reference} / Random", f"{reference} / best other", "Best other"]
    return Table(label, title, [plain(head) for head in heads], body, groups)


def _times(value: float | None) -> Text:
    return NONE if value is None else Text(f"{value:.2f}", f"${value:.2f}$")


AUCS = {"cv_auc_abstract": "abstract states alone", "cv_auc_full": "with fairness features"}


def auc_table(results: Results, title: str, label: str) -> Table:
    """RQ3-a: a run's AUC is the mean of its five folds."""
    body = []
    for team in results.teams:
        abstract, full = (results.mean(team, results.reference, name) for name in AUCS)
        gain = None if abstract.mean is None or full.mean is None else full.mean - abstract.mean
        difference = NONE if gain is None else plain(f"{gain:+.3f}")
        body.append([plain(team), mean_text(abstract, 3), mean_text(full, 3), difference])
    heads = ("Team", "Abstract states", "With fairness features", "Difference")
    return Table(label, title, [plain(head) for head in heads], body)


# --- which tables a study has ---------------------------------------------------------------------------


def study_tables(kind: str, results: Results, runs: int) -> list[Table]:
    """The tables of RQ1, RQ2, RQ3-a, RQ3-b or RQ3-c."""
    over = f"mean ± std over {runs} runs" if runs > 1 else "one run"
    if kind == "rq3a":
        return [auc_table(results, f"AUC-ROC of the fairness predictor, five-fold cross-validation ({over})", "rq3a")]
    reference = results.label(results.reference)
    statistics = comparisons(results, f"{reference} against each other configuration", f"{kind}_stats")
    if kind == "rq1":
        compared = [
            teams_by_variants(results, metric, f"{name} ({over})", f"rq1_{metric}", runs)
            for metric, name in results.metrics.items()
        ]
        costs = [
            teams_by_variants(results, metric, f"{name} ({over})", f"rq1_{metric}", runs, best=False)
            for metric, name in COSTS.items()
        ]
        versus = ratios(results, f"{reference} as a multiple of Random and of the best other method", "rq1_ratios")
        there = results.reference in results.variants and results.others
        return [*compared, *([statistics, versus] if there else []), *costs]
    together = [[metric] for metric in results.metrics]
    if kind == "rq3c":
        together = [["failures", "coverage"], ["distinct_failures", "roots"]]
    compared = [
        variants_by_teams(
            results, metrics, f"{' and '.join([METRICS[m] for m in metrics])} ({over})", f"{kind}_{metrics[0]}", runs
        )
        for metrics in together
    ]
    return [*compared, statistics]


# --- writing ------------------------------------------------------------------------------------------

NOTE = (
    "Two-sided Mann-Whitney U, not corrected for the number of comparisons: one star p < 0.05, two p < 0.01, three"
    " p < 0.001. Vargha-Delaney A12: N negligible, S small (from 0.56), M medium (0.64), L large (0.71), in either"
    " direction. Standard deviations with n - 1. Bold: the largest."
)


NOTES = {"rq3a": "Standard deviations with n - 1. No test: the episodes of the runs' training pools are the same."}


def markdown(table: Table) -> str:
    """The table as Markdown, aligned so that it can be read as text."""
    header, body = [text.markdown for text in table.header], [[text.markdown for text in row] for row in table.body]
    if table.groups is not None:
        current, header = "", ["Team", *header]
        for number, row in enumerate(body):
            current = table.groups[number].markdown if number in table.groups else current
            row.insert(0, current)
    widths = [max(3, *(len(row[column]) for row in [header, *body])) for column in range(len(header))]
    lines = [[text.ljust(width) for text, width in zip(row, widths, strict=True)] for row in [header, *body]]
    lines.insert(1, ["-" * width for width in widths])
    text = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return f"### {table.title}\n\n{text}\n"


def latex(table: Table, command: str, accounting: str) -> str:
    """The table as LaTeX (booktabs), in the paper's form, under the command that made it.

    Its label names the accounting: a paper may show both.
    """
    lines = []
    for number, row in enumerate(table.body):
        if table.groups is not None and number in table.groups:
            lines += [r"    \midrule"] if number else []
            lines.append(rf"    \multicolumn{{{len(row)}}}{{l}}{{\textbf{{{table.groups[number].latex}}}}}\\")
        lines.append("    " + " & ".join(text.latex for text in row) + r"\\")
    return "\n".join(
        [
            f"% {command}",
            r"\begin{table}[htbp]",
            r"  \centering",
            rf"  \caption{{{plain(table.title).latex}.}}",
            rf"  \label{{tab:{table.label}_{accounting}}}",
            r"  \footnotesize",
            r"  \setlength{\tabcolsep}{4pt}",
            rf"  \begin{{tabular}}{{l{'c' * (len(table.header) - 1)}}}",
            r"    \toprule",
            "    " + " & ".join(text.latex for text in table.header) + r"\\",
            r"    \midrule",
            *lines,
            r"    \bottomrule",
            r"  \end{tabular}",
            r"\end{table}",
            "",
        ]
    )
