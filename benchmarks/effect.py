"""Does the search find more than Random, and what does each part contribute? One table, several seeds.

    python -m benchmarks.effect --policy policies/pp-iql [--seeds 5] [--jobs 2] [--out DIR] [--json]

At a tenth of the paper's scale: 1,800 charged episodes, a pool of 750, a population of 150, 3 rounds of 3
generations, the paper's accounting. The fitness ablations run without prioritisation, as in the paper.
Runs that are already in DIR are not run again.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

SCALE = {"accounting": "paper", "budget": 1800, "pool": 750, "offspring": 150, "predictor_episodes": 250}
VARIANTS: dict[str, dict[str, Any]] = {
    "random": {"method": "random"},
    "fairtest": {"method": "fairtest"},
    "fairtest, uniform parents": {"method": "fairtest", "parents": "uniform"},
    "no prioritisation": {"method": "fairtest", "prioritise": False},
    "f0": {"method": "fairtest", "prioritise": False, "fitness": "f0"},
    "f1 only": {"method": "fairtest", "prioritise": False, "fitness": ["f1"]},
    "f2 only": {"method": "fairtest", "prioritise": False, "fitness": ["f2"]},
    "f3 only": {"method": "fairtest", "prioritise": False, "fitness": ["f3"]},
}


def run(policy: Path, variant: str, seed: int, out: Path) -> dict[str, Any]:
    """One run in a process of its own; its summary."""
    folder = out / f"{variant.replace(', ', '-').replace(' ', '-')}-{seed}"
    if not (folder / "summary.json").is_file():
        values = {**SCALE, **VARIANTS[variant]}
        assignments = [f"--set={name}={json.dumps(value)}" for name, value in values.items()]
        command = ["run", f"--policy={policy}", f"--seed={seed}", f"--out={folder}", *assignments]
        subprocess.run([sys.executable, "-m", "epymarl_fairtest", *command], check=True, stdout=subprocess.DEVNULL)
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return summary


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--out", type=Path, help="keep the runs here")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    out = options.out or Path(tempfile.mkdtemp(prefix="fairtest-effect-"))
    cells = [(variant, seed) for seed in range(options.seeds) for variant in options.variants]
    with ThreadPoolExecutor(options.jobs) as pool:
        summaries = list(pool.map(lambda cell: run(options.policy, cell[0], cell[1], out), cells))
    found: dict[str, list[dict[str, Any]]] = {variant: [] for variant in options.variants}
    for (variant, _), summary in zip(cells, summaries, strict=True):
        found[variant].append(summary)
    rows = [_row(variant, found[variant], found.get("random")) for variant in options.variants]
    if options.json:
        print(json.dumps(rows))
        return
    print(f"{options.policy}, {options.seeds} seeds, {SCALE['budget']} episodes charged as the paper counts")
    print(f"{'':<27}{'failures':>16}{'x Random':>10}{'distinct':>10}{'roots':>8}{'coverage':>10}{'executed':>10}")
    for row in rows:
        count = f"{row['failures']:.1f} ± {row['std']:.1f}"
        ratio = f"{row['ratio']:.2f}" if row["ratio"] is not None else "-"
        print(
            f"{row['variant']:<27}{count:>16}{ratio:>10}{row['distinct']:>10.1f}{row['roots']:>8.1f}"
            f"{row['coverage']:>10.3f}{row['executed']:>10.0f}"
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
        "roots": mean("roots"),
        "coverage": mean("coverage"),
        "executed": mean("executed_episodes"),
    }


if __name__ == "__main__":
    main()
