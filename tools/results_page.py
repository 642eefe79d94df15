"""Tables for docs/results.md: what our studies found beside what the paper prints, from the studies' results.csv.

python tools/results_page.py rq1-paper rq1-strict rq2-paper rq3a rq3b-paper rq3c-paper

Prints Markdown. The page itself (what agrees, what does not, and why) is written by hand around it.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from epymarl_fairtest.experiment.statistics import compare, mean_of

TEAMS = ("mpe-iql", "mpe-qmix", "lbf-iql", "lbf-qmix", "pp-iql", "pp-qmix")
METHODS = ("random", "gmt", "mastest", "starla", "fairtest")
RATIOS = ("0.05", "0.1", "0.15", "0.2")
PAPER: dict[str, dict[str, dict[str, float]]] = {  # metric or study -> team -> variant -> the paper's mean
    "failures": {
        "mpe-iql": {"random": 84.3, "gmt": 546.4, "mastest": 1.0, "starla": 38.5, "fairtest": 1126.5},
        "mpe-qmix": {"random": 96.2, "gmt": 736.0, "mastest": 34.8, "starla": 44.3, "fairtest": 1055.1},
        "lbf-iql": {"random": 4701.6, "gmt": 6575.6, "mastest": 4322.6, "starla": 2304.0, "fairtest": 20592.0},
        "lbf-qmix": {"random": 4707.2, "gmt": 6369.3, "mastest": 4040.2, "starla": 1555.3, "fairtest": 19402.6},
        "pp-iql": {"random": 883.4, "gmt": 498.6, "mastest": 49.5, "starla": 202.4, "fairtest": 4523.4},
        "pp-qmix": {"random": 433.4, "gmt": 272.9, "mastest": 47.0, "starla": 238.3, "fairtest": 1930.5},
    },
    "coverage": {
        "mpe-iql": {"random": 0.113, "gmt": 0.386, "mastest": 0.002, "starla": 0.055, "fairtest": 0.391},
        "mpe-qmix": {"random": 0.131, "gmt": 0.531, "mastest": 0.009, "starla": 0.067, "fairtest": 0.441},
        "lbf-iql": {"random": 0.888, "gmt": 0.991, "mastest": 0.064, "starla": 0.779, "fairtest": 0.985},
        "lbf-qmix": {"random": 0.861, "gmt": 0.986, "mastest": 0.065, "starla": 0.651, "fairtest": 0.967},
        "pp-iql": {"random": 0.570, "gmt": 0.416, "mastest": 0.006, "starla": 0.193, "fairtest": 0.889},
        "pp-qmix": {"random": 0.454, "gmt": 0.338, "mastest": 0.007, "starla": 0.307, "fairtest": 0.821},
    },
    "rq2": {
        "mpe-iql": dict(zip(RATIOS, (1615.9, 1352.5, 1252.6, 1126.5), strict=True)),
        "mpe-qmix": dict(zip(RATIOS, (1429.5, 1252.8, 1158.7, 1055.1), strict=True)),
        "lbf-iql": dict(zip(RATIOS, (19443.3, 19820.9, 20285.5, 20592.0), strict=True)),
        "lbf-qmix": dict(zip(RATIOS, (18373.1, 18675.0, 19087.2, 19402.6), strict=True)),
        "pp-iql": dict(zip(RATIOS, (4477.9, 4426.1, 4487.1, 4523.4), strict=True)),
        "pp-qmix": dict(zip(RATIOS, (1798.7, 1827.4, 1882.6, 1930.5), strict=True)),
    },
    "rq3a": {"pp-iql": {"abstract": 0.882, "full": 0.997}, "pp-qmix": {"abstract": 0.852, "full": 0.955}},
    "rq3b": {
        "pp-iql": {"f0": 907.9, "f1": 942.3, "f2": 1018.2, "f3": 951.4, "f1f2f3": 1046.1},
        "pp-qmix": {"f0": 441.1, "f1": 459.2, "f2": 446.3, "f3": 454.5, "f1f2f3": 469.1},
    },
    "rq3c": {
        "pp-iql": {"without": 1046.1, "with": 4523.4},
        "pp-qmix": {"without": 469.1, "with": 1930.5},
    },
}
METRICS = ("failures", "distinct_failures", "roots", "coverage")
Rows = list[dict[str, str]]


class Found:
    """The rows of one study."""

    def __init__(self, folder: Path) -> None:
        with open(folder / "results.csv", newline="") as file:
            self.rows: Rows = list(csv.DictReader(file))
        self.about: dict[str, Any] = json.loads((folder / "study.json").read_text())
        first = self.rows[0]
        self.kind, self.accounting, self.budget = first["study"], first["accounting"], first["budget"]
        there = {row["policy"] for row in self.rows}
        self.teams = [team for team in TEAMS if team in there]
        self.variants = list(dict.fromkeys(row["variant"] for row in self.rows))

    def values(self, team: str, variant: str, metric: str) -> list[float]:
        chosen = (row for row in self.rows if (row["policy"], row["variant"]) == (team, variant))
        return [float(row[metric]) for row in chosen if row[metric]]

    def cell(self, team: str, variant: str, metric: str, paper: float | None) -> str:
        value = mean_of(self.values(team, variant, metric))
        if value.mean is None:
            return "–"
        digits = 3 if metric in ("coverage", "cv_auc_abstract", "cv_auc_full") else 0
        told = f"{value.mean:,.{digits}f}" + (f" ± {value.std:,.{digits}f}" if value.std is not None else "")
        return told if paper is None else f"{told} *({paper:,.{3 if paper < 1 else 0}f})*"


def table(header: Iterable[str], body: Iterable[Iterable[str]]) -> str:
    rows = [list(header), *(list(row) for row in body)]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def rq1(found: Found) -> str:
    parts = []
    for metric in METRICS:
        paper = PAPER.get(metric, {})
        body = (
            [team, *(found.cell(team, v, metric, paper.get(team, {}).get(v)) for v in found.variants)]
            for team in found.teams
        )
        parts.append(f"**{metric}**\n\n" + table(["team", *found.variants], body))
    return "\n\n".join([*parts, "**FairTest against each**\n\n" + ratios(found)])


def ratios(found: Found) -> str:
    """FairTest's failures as a multiple, with p and A12, and the paper's multiple."""
    body = []
    for team in found.teams:
        mine = found.values(team, "fairtest", "failures")
        for variant in (name for name in found.variants if name != "fairtest"):
            theirs, paper = found.values(team, variant, "failures"), PAPER["failures"][team]
            test = compare(mine, theirs)
            ours, other = mean_of(mine).mean, mean_of(theirs).mean
            told = paper["fairtest"] / paper[variant] if variant in paper else None
            body.append(
                [
                    team,
                    variant,
                    f"{ours / other:.2f}" if ours is not None and other else "–",
                    "–" if told is None else f"{told:.2f}",
                    "–" if test is None else f"{test.p:.1g}",
                    "–" if test is None else f"{test.a12:.3f} {test.letter}",
                ]
            )
    return table(["team", "against", "ratio", "the paper's", "p", "A12"], body)


def others(found: Found) -> str:
    """rq2, rq3b, rq3c: failures and coverage per variant, one column per team."""
    paper = PAPER[found.kind]
    parts = []
    for metric in ("failures", "distinct_failures", "coverage"):
        body = [
            [
                v,
                *(
                    found.cell(t, v, metric, paper.get(t, {}).get(v) if metric == "failures" else None)
                    for t in found.teams
                ),
            ]
            for v in found.variants
        ]
        parts.append(f"**{metric}**\n\n" + table(["", *found.teams], body))
    return "\n\n".join(parts)


def rq3a(found: Found) -> str:
    body = []
    for team in found.teams:
        paper = PAPER["rq3a"].get(team, {})
        cells = [
            found.cell(team, variant, f"cv_auc_{name}", paper.get(name))
            for variant in found.variants
            for name in ("abstract", "full")
        ]
        body.append([team, *cells])
    return table(["team", "abstract states", "with fairness features"], body)


def main() -> None:
    for folder in map(Path, sys.argv[1:]):
        found = Found(folder)
        made = {"rq1": rq1, "rq3a": rq3a}.get(found.kind, others)
        print(f"## {found.kind}, {found.accounting} accounting\n\n{made(found)}\n")


if __name__ == "__main__":
    main()
