"""How much memory a run at the paper's scale takes with many agents: at most 4 GiB with 20 of them.

    python -m benchmarks.large [--agents 20] [--recurrent]

A team with random weights in spread, as a process of its own (`fairtest run --preset paper`). It takes some CPU
minutes. Exit code 1 if it takes more memory.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from benchmarks.paper import paper_run
from epymarl_fairtest.testing.teams import save_random_team

MOST = 4096  # MiB


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=20)
    parser.add_argument("--recurrent", action="store_true", help="agents with a memory")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sizes = {"time_limit": 25, "recurrent": given.recurrent, "env_args": {"N": given.agents}}
        team = save_random_team(Path(folder) / "team", "epymarl_fairtest:mpe-spread-v0", **sizes)
        done = paper_run(team)
    print(
        f"{given.agents} agents: {done['executed_episodes']:,} episodes, {done['failures']:,} failures,"
        f" {done['memory_mib'] / 1024:.1f} GiB, {done['process_cpu_seconds']:.0f} CPU s"
    )
    return int(done["memory_mib"] > MOST)


if __name__ == "__main__":
    sys.exit(main())
