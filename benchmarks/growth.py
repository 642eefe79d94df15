"""How time and memory grow with the budget and with the agents: a table each, and the exponents that fit.

    python -m benchmarks.growth [--tasks spread tag foraging] [--times 1 2 10] [--agents 3 5 10 20] [--repeat N]

Runs with everything they do, each a process of its own, on teams with random weights: the paper's preset with so many
times its budget and rounds, and default runs in spread with so many agents (`benchmarks.large --table`). An exponent of
1 is linear. The first is of all sizes, where what every run does holds it down (imports, predictor, page); the one in
brackets is of the two largest sizes alone. Nothing may grow faster than the budget, nor than the square of the agents,
and no run may need more than 2 GiB. Of N repetitions of each size the least of each column counts.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.engine import TASKS
from benchmarks.large import row as with_agents
from benchmarks.paper import paper_run, random_team
from benchmarks.run import positive

MOST = 2048  # MiB
NOISE = 0.05  # of an exponent


def exponents(sizes: list[int], values: list[float]) -> tuple[float, float]:
    """Of the power of the size that fits best: over all of them, and between the two largest."""
    x, y = np.log(sizes), np.log(values)
    return float(np.polyfit(x, y, 1)[0]), float((y[-1] - y[-2]) / (x[-1] - x[-2]))


def told(rows: list[dict[str, Any]], size: str, columns: list[str], most: float) -> bool:
    """Print how each column grows, which takes two sizes; whether none grows faster than it may."""
    holds = True
    for name in columns if len(rows) > 1 else []:
        whole, last = exponents([row[size] for row in rows], [max(row[name], 0.01) for row in rows])
        holds &= max(whole, last) <= most + NOISE
        print(f"{'':<10}{name}: {size}^{whole:.2f} ({last:.2f})", flush=True)
    return holds


def with_budget(task: str, times: list[int], repeat: int, folder: Path) -> bool:
    team = random_team(folder / task, task, "mlp64")
    rows = [least([measured(team, number) for _ in range(repeat)]) for number in times]
    for row in rows:
        print(
            f"{task:<10}{row['budget']:>3} x {row['episodes']:>8} episodes {row['failures']:>7} failures"
            f" {row['CPU s']:>7.1f} CPU s {row['MiB']:>6.0f} MiB, counting {row['counting']:.2f},"
            f" saving {row['saving']:.2f}",
            flush=True,
        )
    return told(rows, "budget", ["CPU s", "MiB", "counting", "saving"], 1) and max(row["MiB"] for row in rows) <= MOST


def measured(team: Path, number: int) -> dict[str, Any]:
    """A run at so many times the paper's scale."""
    done = paper_run(team, number)
    row = {"budget": number, "episodes": done["executed_episodes"], "failures": done["failures"]}
    row |= {"CPU s": done["process_cpu_seconds"], "MiB": done["memory_mib"]}
    return row | {name: done["phases"][name] for name in ("counting", "saving")}


def least(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Of each column, whose other values are from a moment at which the machine had more to do."""
    return {name: min(row[name] for row in rows) for name in rows[0]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="*", choices=TASKS, default=list(TASKS))
    parser.add_argument("--times", nargs="+", type=positive, default=[1, 2, 10])
    parser.add_argument("--agents", nargs="*", type=positive, default=[3, 5, 10, 20])
    parser.add_argument("--repeat", type=positive, default=1, help="runs of each size; the least counts")
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    holds = True
    with tempfile.TemporaryDirectory() as folder:
        for task in given.tasks:
            holds &= with_budget(task, given.times, given.repeat, Path(folder))
        rows = []
        for agents in given.agents:
            rows.append(least([with_agents("spread", agents, 1000, Path(folder)) for _ in range(given.repeat)]))
            print(
                f"spread    {agents:>3} agents {rows[-1]['CPU s']:>7.1f} CPU s {rows[-1]['MiB']:>6.0f} MiB", flush=True
            )
        holds &= told(rows, "agents", ["CPU s", "MiB", "page KiB"], 2)
    return int(not holds)


if __name__ == "__main__":
    sys.exit(main())
