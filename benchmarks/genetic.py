"""What the default run finds, against scout and the forest on starts, and what its genetic part alone contributes.

    python -m benchmarks.genetic [--policies policies/pp-iql ...] [--seeds 10] [--budget 1000]
                                 [--against scout start_surrogate] [--out DIR] [--json]

Per team, means over the seeds: distinct failures of the default run, of scout and of start_surrogate (`--against`
without a name leaves them out), the default run as a multiple of either, and the failures that only its genetic part
found. Those were made by mutation or crossover, are unfair in what was executed after the parent's prefix, and are
further than distinct_distance from every failure of another origin: `alone` counts those that keep this distance from
one another, too (a packing in the order in which they were found), `strict` only those that are further from every
other failure whatsoever.

Every run is a process of its own. Runs that are already in DIR are not run again.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from epymarl_fairtest.campaign.packing import Packing, distances
from epymarl_fairtest.core.episodes import operator_code
from epymarl_fairtest.core.indices import INDICES
from epymarl_fairtest.core.judged import Judge
from epymarl_fairtest.core.shipped import shipped
from epymarl_fairtest.store.failures import load_failures
from epymarl_fairtest.store.finished import read_run
from epymarl_fairtest.tasks.contract import Task
from epymarl_fairtest.team.checkpoint import load_record
from epymarl_fairtest.team.saved import saved_team

OTHERS = ("scout", "start_surrogate")
GENETIC = [operator_code(name) for name in ("mutation", "crossover")]


def run(policy: Path, method: str, seed: int, budget: int, out: Path) -> Path:
    """One run in a process of its own, with the defaults for the search and no explanations; its folder."""
    folder = out / policy.name / method / f"{budget}-{seed}"
    if not (folder / "summary.json").is_file():
        folder.parent.mkdir(parents=True, exist_ok=True)
        values = {"method": method, "budget": budget, "report": False, "explain": 0}
        words = [f"--set={name}={value}" for name, value in values.items()]
        command = ["run", f"--policy={policy}", f"--seed={seed}", f"--out={folder}", *words]
        subprocess.run([sys.executable, "-m", "epymarl_fairtest", *command], check=True, stdout=subprocess.DEVNULL)
    return folder


def only_genetic(folder: Path, task: Task) -> tuple[int, int]:
    """How many failures only the genetic part found: far from one another, and far from all others."""
    finished = read_run(folder)
    failures = load_failures(folder / "failures.npz")
    failures = failures.take(np.flatnonzero(~np.isin(failures.id, finished.unstable)))
    if not len(failures):
        return 0, 0
    judge = Judge(INDICES[finished.settings["index"]], finished.theta, finished.agents)
    own = finished.settings.get("distinct_distance")
    distance = task.distinct_distance if own is None else own
    paths, lengths = task.positions(failures.states).astype(np.float32), failures.length + 1
    bred = np.isin(failures.operator, GENETIC)
    apart = distances(paths, lengths)
    np.fill_diagonal(apart, np.inf)
    after_prefix = judge.unfair_after_prefix(failures, np.arange(len(failures)))
    far = bred & after_prefix & (apart[:, ~bred] > distance).all(axis=1)
    kept = Packing(distance).add(paths[far], lengths[far])
    return int(kept.sum()), int((far & (apart > distance).all(axis=1)).sum())


def measured(policy: Path, against: Sequence[str], seeds: int, budget: int, out: Path) -> dict[str, Any]:
    """The numbers of one team."""
    task = saved_team(policy, load_record(policy).allocation).task
    distinct: dict[str, list[int]] = {method: [] for method in ("fairtest", *against)}
    alone = []
    for seed in range(seeds):
        for method in distinct:
            folder = run(policy, method, seed, budget, out)
            distinct[method].append(json.loads((folder / "summary.json").read_text())["distinct_failures"])
            if method == "fairtest":
                alone.append(only_genetic(folder, task))
    means = {method: statistics.fmean(counts) for method, counts in distinct.items()}
    ratios = {f"over {name}": means["fairtest"] / means[name] if means[name] else None for name in against}
    packed, strict = (statistics.fmean(counts) for counts in zip(*alone, strict=True))
    return {"team": policy.name, **means, **ratios, "alone": packed, "strict": strict}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policies", type=Path, nargs="+", metavar="DIR", help="(the shipped ones)")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--budget", type=int, default=1000)
    parser.add_argument("--against", nargs="*", choices=OTHERS, default=OTHERS, metavar="METHOD")
    parser.add_argument("--out", type=Path, help="keep the runs here")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    policies = options.policies or sorted(path.parent for path in shipped("policies").glob("*/policy.yaml"))
    out = options.out or Path(tempfile.mkdtemp(prefix="fairtest-genetic-"))
    rows = [measured(policy, options.against, options.seeds, options.budget, out) for policy in policies]
    if options.json:
        print(json.dumps(rows))
        return
    print(f"{options.seeds} seeds, {options.budget} episodes, all charged; means")
    heads = ["default", *options.against, *(f"/ {name}" for name in options.against), "alone", "strict"]
    print(f"{'team':<12}" + "".join(f"{head:>{len(head) + 3}}" for head in heads))
    for row in rows:
        counts = [f"{row[method]:.1f}" for method in ("fairtest", *options.against)]
        ratios = [_ratio(row[f"over {name}"]) for name in options.against]
        numbers = [*counts, *ratios, f"{row['alone']:.1f}", f"{row['strict']:.1f}"]
        cells = (f"{text:>{len(head) + 3}}" for text, head in zip(numbers, heads, strict=True))
        print(f"{row['team']:<12}" + "".join(cells))


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


if __name__ == "__main__":
    main()
