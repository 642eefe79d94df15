"""What counting different failures costs: CPU seconds for 15,000 failures of a shipped team.

    python -m benchmarks.counting [--policy policies/lbf-qmix] [--failures 15000]

Random executions are all taken for failures: their paths differ more than those of a search, so that more are kept and
compared. The three packings together should take at most 3 CPU seconds.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from epymarl_fairtest.campaign.packing import Packing
from epymarl_fairtest.campaign.tally import WIDE
from epymarl_fairtest.core.episodes import random_tests
from epymarl_fairtest.engine.selection import make_engine
from epymarl_fairtest.strategies import configure
from epymarl_fairtest.team.saved import saved_team

ROOT = Path(__file__).resolve().parents[1]
BATCH = 1500  # failures that come at once


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", type=Path, default=ROOT / "policies" / "lbf-qmix")
    parser.add_argument("--failures", type=int, default=15_000)
    given = parser.parse_args()
    team = saved_team(given.policy, "env")
    engine, task = make_engine(team, configure({}), print), team.task
    paths, lengths = [], []
    generator = np.random.default_rng(0)
    for first in range(0, given.failures, BATCH):
        tests = random_tests(min(BATCH, given.failures - first), task.state_size, generator)
        episodes = engine.execute(tests)
        paths.append(task.positions(episodes.states).astype(np.float32))
        lengths.append(episodes.length + 1)
    Packing(1.0).add(paths[0][:2], lengths[0][:2])  # compiled before it is measured
    total = 0.0
    for name, times, starts in (("distinct", 1, False), ("wide", WIDE, False), ("starts", 1, True)):
        packing, begun = Packing(times * task.distinct_distance), time.process_time()
        for path, length in zip(paths, lengths, strict=True):
            packing.add(path[:, :1] if starts else path, np.ones_like(length) if starts else length)
        spent = time.process_time() - begun
        total += spent
        print(f"{name:<10}{len(packing):>8,} of {given.failures:,} in {spent:.2f} CPU s")
    print(f"{'together':<10}{total:>29.2f} CPU s")


if __name__ == "__main__":
    main()
