"""Can the count of different failures be raised by near-copies of one? Two cheats, counted as a search is.

    python -m benchmarks.cheats [--policy policies/mpe-iql] [--executions 6000]

A cheat executes one failing start again and again, each time with a little noise, as a start of its own. Exit code 1 if
noise of 1e-6 gives more than 30 distinct failures.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

from epymarl_fairtest.campaign.tally import Tally
from epymarl_fairtest.core.episodes import Tests, operator_code, random_tests
from epymarl_fairtest.core.indices import INDICES
from epymarl_fairtest.core.judged import Judge
from epymarl_fairtest.engine.contract import Engine
from epymarl_fairtest.engine.selection import make_engine
from epymarl_fairtest.strategies import configure
from epymarl_fairtest.team.contract import Team
from epymarl_fairtest.team.saved import saved_team

ROOT = Path(__file__).resolve().parents[1]
NOISES = (1e-6, 0.15)  # of a start's vector, in [-1, 1]
MOST = 30
SHOWN = ("failures", "roots", "distinct_failures", "distinct_failures_wide", "distinct_starts", "coverage")


def cheat(team: Team, engine: Engine, noise: float, executions: int, seed: int = 0) -> dict[str, Any]:
    """What is counted of so many executions of noisy copies of the most unfair of 500 random starts."""
    judge, generator = Judge(INDICES["jfi"], team.task.theta), np.random.default_rng(seed)
    begun = judge(engine.execute(random_tests(500, team.task.state_size, generator)))
    start = begun.episodes.states[[int(np.nanargmin(begun.index))], 0]
    tally = Tally(team.task, judge, bins=4, distinct_distance=team.task.distinct_distance)
    left = executions
    while left > 0:
        tests = copies(team, start, noise, min(left, 1000), generator)
        tally.add(judge(engine.execute(tests)), "execution")
        left -= len(tests)
    return tally.summary()


def copies(team: Team, start: Any, noise: float, count: int, generator: np.random.Generator) -> Tests:
    """Tests from the start with noise, those that keep the rules; each has a seed of its own, as proposed starts do."""
    vector = team.task.start_vectors(start)
    states, fine = team.task.starts_from(vector + generator.uniform(-noise, noise, (count, vector.shape[1])))
    tests = random_tests(count, team.task.state_size, generator)
    tests.start_state, tests.operator = states, np.full(count, operator_code("state"), np.int8)
    return tests.take(fine)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", type=Path, default=ROOT / "policies" / "mpe-iql")
    parser.add_argument("--executions", type=int, default=6000)
    given = parser.parse_args()
    team = saved_team(given.policy, "env")
    engine = make_engine(team, configure({}), print)
    found = {noise: cheat(team, engine, noise, given.executions) for noise in NOISES}
    for noise, counted in found.items():
        print(f"noise {noise:g}: " + ", ".join(f"{name} {counted[name]:.4g}" for name in SHOWN))
    return int(found[NOISES[0]]["distinct_failures"] > MOST)


if __name__ == "__main__":
    sys.exit(main())
