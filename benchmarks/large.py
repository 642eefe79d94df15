"""What many agents cost: memory at the paper's scale, or a table over teams of 3 to 50 agents.

    python -m benchmarks.large [--agents 20] [--recurrent]
    python -m benchmarks.large --table [--agents 3 5 10 20 50] [--tasks spread foraging] [--budget 1000]

Teams with random weights, each run a process of its own. Without --table it is `fairtest run --preset paper` in spread:
at most 4 GiB with 20 agents (exit code 1 otherwise), some CPU minutes. With it the default preset is run with a
threshold that is as strict for so many agents as the task's own is for three, and what the exponent of each column is
(2: twice the agents take four times as much).
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.paper import measured_run, paper_run
from epymarl_fairtest.core.chance import as_strict
from epymarl_fairtest.core.indices import INDICES
from epymarl_fairtest.tasks import TASKS
from epymarl_fairtest.testing.teams import save_random_team

MOST = 4096  # MiB
COLUMNS = ("CPU s", "MiB", "page KiB")


def environment(task: str, agents: int) -> tuple[str, dict[str, Any]]:
    """An environment for so many agents; in foraging each has as much room as three have on 8x8, and a food."""
    if task == "spread":
        return "epymarl_fairtest:mpe-spread-v0", {"N": agents}
    side = math.ceil(8 * math.sqrt(agents / 3))
    levels = {"min_player_level": 1, "max_player_level": 2}
    room = {"field_size": [side, side], "sight": side, "max_num_food": agents}
    return "epymarl_fairtest:lbforaging-v0", {"players": agents, **levels, **room}


def row(task: str, agents: int, budget: int, folder: Path) -> dict[str, Any]:
    key, env_args = environment(task, agents)
    team = save_random_team(folder / f"{task}-{agents}", key, time_limit=25, env_args=env_args)
    theta = as_strict(INDICES["jfi"], TASKS[task].theta, agents)
    done = measured_run(team, "--budget", str(budget), "--set", f"theta={theta:.4f}")
    return {
        "task": task,
        "agents": agents,
        "theta": theta,
        "unfair": done["failures"],
        "distinct": done["distinct_failures"],
        "coverage": done["coverage"],
        "CPU s": done["process_cpu_seconds"],
        "MiB": done["memory_mib"],
        "page KiB": done["page_kib"],
    }


def table(tasks: list[str], agents: list[int], budget: int) -> None:
    print("| task | agents | theta | unfair | distinct | coverage | CPU s | MiB | page KiB |\n|" + "---|" * 9)
    with tempfile.TemporaryDirectory() as folder:
        for task in tasks:
            rows = []
            for number in agents:
                rows.append(row(task, number, budget, Path(folder)))
                print("| " + " | ".join(_shown(value) for value in rows[-1].values()) + " |", flush=True)
            if len(rows) > 1:
                print(f"{task}: {', '.join(f'{name} grows as agents^{exponent(rows, name):.2f}' for name in COLUMNS)}")


def exponent(rows: list[dict[str, Any]], column: str) -> float:
    """Of the power of the number of agents that fits best."""
    agents, values = np.log([[one["agents"], one[column]] for one in rows]).T
    return float(np.polyfit(agents, values, 1)[0])


def _shown(value: Any) -> str:
    return (
        f"{value:.3g}"
        if isinstance(value, float) and value < 1
        else f"{value:.0f}"
        if isinstance(value, float)
        else str(value)
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, nargs="+")
    parser.add_argument("--recurrent", action="store_true", help="agents with a memory")
    parser.add_argument("--table", action="store_true", help="many sizes at the default preset instead of the paper's")
    parser.add_argument("--tasks", nargs="+", choices=["spread", "foraging"], default=["spread", "foraging"])
    parser.add_argument("--budget", type=int, default=1000)
    given = parser.parse_args()
    if given.table:
        table(given.tasks, given.agents or [3, 5, 10, 20, 50], given.budget)
        return 0
    worst = 0.0
    for agents in given.agents or [20]:
        with tempfile.TemporaryDirectory() as folder:
            sizes = {"time_limit": 25, "recurrent": given.recurrent, "env_args": {"N": agents}}
            team = save_random_team(Path(folder) / "team", "epymarl_fairtest:mpe-spread-v0", **sizes)
            done = paper_run(team)
        print(
            f"{agents} agents: {done['executed_episodes']:,} episodes, {done['failures']:,} failures,"
            f" {done['memory_mib'] / 1024:.1f} GiB, {done['process_cpu_seconds']:.0f} CPU s"
        )
        worst = max(worst, done["memory_mib"])
    return int(worst > MOST)


if __name__ == "__main__":
    sys.exit(main())
