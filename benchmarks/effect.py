"""Does a search find more than Random, and what does each part of it contribute? One table, several seeds.

    python -m benchmarks.effect --policy policies/pp-iql [--method fairtest | scout] [--seeds 5] [--budget N]
                                [--jobs 2] [--variants NAME ...] [--out DIR] [--json]

fairtest: the paper's search at a tenth of the paper's scale (1,800 charged episodes, a pool of 750, a population of
150, 3 rounds of 3 generations, the paper's accounting; the fitness ablations run without prioritisation, as in the
paper), then the default run of 1,000 episodes, all charged, with and without what it adds to the paper's search.
scout: 3,000 episodes, all charged, each row without one part.

Every run is a process of its own. Runs that are already in DIR are not run again.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Values = Mapping[str, Any]
PAPER_SEARCH: dict[str, Values] = {
    "random": {"method": "random"},
    "fairtest": {"method": "fairtest"},
    "fairtest, uniform parents": {"parents": "uniform"},
    "no prioritisation": {"prioritise": False},
    "f0": {"prioritise": False, "fitness": "f0"},
    "f1 only": {"prioritise": False, "fitness": ["f1"]},
    "f2 only": {"prioritise": False, "fitness": ["f2"]},
    "f3 only": {"prioritise": False, "fitness": ["f3"]},
}
DEFAULT_RUN: dict[str, Values] = {
    "random, all charged": {"method": "random"},
    "random candidates, no screen": {"candidates": "random", "screen": 1},
    "random candidates, screen 6": {"candidates": "random", "screen": 6},
    "scouted candidates, no screen": {"candidates": "scout", "screen": 1},
    "scouted, screen 6 (default)": {"candidates": "scout", "screen": 6},
    "... genetic_share .25": {"candidates": "scout", "screen": 6, "genetic_share": 0.25},
    "scout, all charged": {"method": "scout"},
}
SCOUT: dict[str, Values] = {
    "random": {"method": "random"},
    "start_surrogate": {"method": "start_surrogate"},
    "scout": {},
    "no surrogate: any order": {"without": "surrogate"},
    "surrogate of the index": {"without": "per_agent", "options.least_quota": 0.0},
    "no quotas per agent": {"without": "quotas", "options.least_quota": 0.0},
    "no bred starts": {"options.fresh": 1.0},
    "no fresh starts": {"options.fresh": 0.01},
    "no distances": {"options.near": 0.0, "options.far": 0.0},
    "small distance only": {"options.near": 2.0, "options.far": 2.0},
    "large distance only": {"options.near": 4.5, "options.far": 4.5},
    "no frontier": {"options.frontier": 0.0},
    "no classes of parents": {"options.radius": 0.0},
    "any start may be chosen": {"options.best": 1.0},
}  # `without` is no setting: benchmarks.ablations takes that part away


@dataclass(frozen=True)
class Table:
    """Rows that are compared with one another, and the settings they share."""

    title: str
    common: Values
    rows: Mapping[str, Values]


SCALE = {"accounting": "paper", "budget": 1800, "pool": 750, "offspring": 150, "predictor_episodes": 250}
STRICT = {"accounting": "strict", "report": False}
TABLES = {
    "fairtest": [
        Table("charged as the paper counts", {"method": "fairtest", **SCALE}, PAPER_SEARCH),
        Table("all charged", {"method": "fairtest", "budget": 1000, **STRICT}, DEFAULT_RUN),
    ],
    "scout": [Table("all charged", {"method": "scout", "budget": 3000, **STRICT}, SCOUT)],
}


def run(policy: Path, table: Table, variant: str, seed: int, out: Path) -> dict[str, Any]:
    """One run in a process of its own, without explanations; its summary."""
    values = {"explain": 0, **table.common, **table.rows[variant]}
    name = re.sub(r"[^\w.]+", "-", variant).strip("-.")
    folder = out / f"{name}-{values['budget']}-{seed}"
    if not (folder / "summary.json").is_file():
        without = values.pop("without", None)
        module = ["epymarl_fairtest"] if without is None else ["benchmarks.ablations", without]
        assignments = [f"--set={name}={json.dumps(value)}" for name, value in values.items()]
        command = ["run", f"--policy={policy}", f"--seed={seed}", f"--out={folder}", *assignments]
        subprocess.run([sys.executable, "-m", *module, *command], check=True, stdout=subprocess.DEVNULL)
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return summary


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", type=Path, required=True)
    parser.add_argument("--method", choices=TABLES, default="fairtest")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--budget", type=int, help="episodes per run, in all tables")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--variants", nargs="+", metavar="NAME", help="rows, by their names (all)")
    parser.add_argument("--out", type=Path, help="keep the runs here")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    tables = [_of(table, options) for table in TABLES[options.method]]
    known = [name for table in TABLES[options.method] for name in table.rows]
    if unknown := [name for name in options.variants or () if name not in known]:
        parser.error(f"--variants {unknown[0]!r} is not a row of {options.method}; known are: {', '.join(known)}")
    out = options.out or Path(tempfile.mkdtemp(prefix="fairtest-effect-"))
    cells = [(table, row, seed) for table in tables for seed in range(options.seeds) for row in table.rows]
    with ThreadPoolExecutor(options.jobs) as pool:
        summaries = list(pool.map(lambda cell: run(options.policy, cell[0], cell[1], cell[2], out), cells))
    told = []
    for table in tables:
        found: dict[str, list[dict[str, Any]]] = {variant: [] for variant in table.rows}
        for (of, variant, _), summary in zip(cells, summaries, strict=True):
            if of is table:
                found[variant].append(summary)
        random = next((runs for runs in found.values() if runs[0]["method"] == "random"), None)
        told.append((table, [_row(variant, runs, random) for variant, runs in found.items()]))
    if options.json:
        print(json.dumps([row for _, rows in told for row in rows]))
        return
    for table, rows in told:
        if rows:
            _print(f"{options.policy}, {options.seeds} seeds, {table.common['budget']} episodes {table.title}", rows)


def _of(table: Table, options: argparse.Namespace) -> Table:
    """The table with the rows and the budget that were asked for."""
    rows = {name: row for name, row in table.rows.items() if options.variants is None or name in options.variants}
    budget = {} if options.budget is None else {"budget": options.budget}
    return Table(table.title, {**table.common, **budget}, rows)


def _print(title: str, rows: list[dict[str, Any]]) -> None:
    print(title)
    heads = ("failures", "x Random", "distinct", "wide", "roots", "coverage", "executed", "CPU s")
    widths = (16, 10, 10, 8, 8, 10, 10, 8)
    print(" " * 30 + "".join(f"{head:>{width}}" for head, width in zip(heads, widths, strict=True)))
    for row in rows:
        count = f"{row['failures']:.1f} ± {row['std']:.1f}"
        ratio = f"{row['ratio']:.2f}" if row["ratio"] is not None else "-"
        print(
            f"{row['variant']:<30}{count:>16}{ratio:>10}{row['distinct']:>10.1f}{row['wide']:>8.1f}{row['roots']:>8.1f}"
            f"{row['coverage']:>10.3f}{row['executed']:>10.0f}{row['cpu']:>8.1f}"
        )


def _row(variant: str, runs: list[dict[str, Any]], random: list[dict[str, Any]] | None) -> dict[str, Any]:
    def mean(name: str, of: list[dict[str, Any]] = runs) -> float:
        return statistics.fmean(summary[name] for summary in of)

    base = mean("failures", random) if random else 0.0
    return {
        "variant": variant,
        "failures": mean("failures"),
        "std": statistics.pstdev(summary["failures"] for summary in runs),
        "ratio": mean("failures") / base if base else None,
        "distinct": mean("distinct_failures"),
        "wide": mean("distinct_failures_wide"),
        "roots": mean("roots"),
        "coverage": mean("coverage"),
        "executed": mean("executed_episodes"),
        "cpu": mean("cpu_seconds"),
    }


if __name__ == "__main__":
    main()
