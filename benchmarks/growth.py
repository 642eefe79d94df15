"""How time and memory grow with the budget and with the agents: a table each, and the exponents that fit.

    python -m benchmarks.growth [--tasks spread tag foraging] [--times 1 2 10] [--agents 3 5 10 20]

Runs with everything they do, each a process of its own, on teams with random weights: the paper's preset with so many
times its budget and rounds, and default runs in spread with so many agents (`benchmarks.large --table`). An exponent of
1 is linear. The first is of all sizes, where what every run does holds it down (imports, predictor, page); the one in
brackets is of the two largest sizes alone. Nothing may grow faster than the budget, nor than the square of the agents,
and no run may need more than 2 GiB.
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


def with_budget(task: str, times: list[int], folder: Path) -> bool:
    team = random_team(folder / task, task, "mlp64")
    rows = []
    for number in times:
        done = paper_run(team, number)
        row = {"budget": number, "CPU s": done["process_cpu_seconds"], "MiB": done["memory_mib"]}
        rows.append(row | {"counting": done["phases"]["counting"], "saving": done["phases"]["saving"]})
        print(
            f"{task:<10}{number:>3} x {done['executed_episodes']:>8} episodes {done['failures']:>7} failures"
            f" {row['CPU s']:>7.1f} CPU s {row['MiB']:>6.0f} MiB, counting {rows[-1]['counting']:.2f}",
            flush=True,
        )
    return told(rows, "budget", ["CPU s", "MiB", "counting", "saving"], 1) and max(row["MiB"] for row in rows) <= MOST


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="*", choices=TASKS, default=list(TASKS))
    parser.add_argument("--times", nargs="+", type=int, default=[1, 2, 10])
    parser.add_argument("--agents", nargs="*", type=int, default=[3, 5, 10, 20])
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    holds = True
    with tempfile.TemporaryDirectory() as folder:
        for task in given.tasks:
            holds &= with_budget(task, given.times, Path(folder))
        rows = []
        for agents in given.agents:
            rows.append(with_agents("spread", agents, 1000, Path(folder)))
            print(
                f"spread    {agents:>3} agents {rows[-1]['CPU s']:>7.1f} CPU s {rows[-1]['MiB']:>6.0f} MiB", flush=True
            )
        holds &= told(rows, "agents", ["CPU s", "MiB", "page KiB"], 2)
    return int(not holds)


if __name__ == "__main__":
    sys.exit(main())
