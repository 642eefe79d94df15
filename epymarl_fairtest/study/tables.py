"""The paper's tables, in Markdown and in LaTeX, and who is best where.

Knows how rows are arranged; no folder, no run.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from epymarl_fairtest.core.statistics import Comparison, Mean
from epymarl_fairtest.study.rows import ALSO, COSTS, METRICS, Results, ratio

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
    return 3 if metric in ("coverage", "lowest_index", "natural_rate", "cv_auc_abstract", "cv_auc_full") else 1


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


def winners(results: Results, title: str, label: str) -> Table:
    """Who is best, who comes next, and how sure that is."""
    body: list[list[Text]] = []
    groups = {}
    for team in results.teams:
        groups[len(body)] = plain(team)
        for metric, name in results.metrics.items():
            means = {variant: results.mean(team, variant, metric) for variant in results.variants}
            known = [variant for variant in results.variants if means[variant].mean is not None]
            ranked = sorted(known, key=lambda variant: -(means[variant].mean or 0.0))[:2]
            shown = [(plain(results.label(v)), mean_text(means[v], digits_of(metric), std=False)) for v in ranked]
            (best, most), (second, less) = [*shown, (NONE, NONE), (NONE, NONE)][:2]
            over, tests = NONE, comparison_texts(None)
            if len(ranked) == 2:
                over = _times(ratio(means[ranked[0]], means[ranked[1]]))
                tests = comparison_texts(results.compare(team, ranked[1], metric, ranked[0]))
            body.append([plain(name), best, most, second, less, over, *tests])
    heads = [plain(head) for head in ("Metric", "Best", "Mean", "Runner-up", "Its mean", "Ratio")]
    return Table(label, title, [*heads, P, A12], body, groups)


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
            for metric, name in {**results.known(ALSO), **COSTS}.items()
        ]
        versus = ratios(results, f"{reference} as a multiple of Random and of the best other method", "rq1_ratios")
        best = winners(results, "The best method and the runner-up", "rq1_best")
        there = results.reference in results.variants and results.others
        several = len(results.variants) > 1
        return [*compared, *([best] if several else []), *([statistics, versus] if there else []), *costs]
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
