"""What one fit of the fairness predictor costs: the level d chosen, four forests grown, everything included.

python -m benchmarks.predictor --policy policies/pp-iql [--episodes 10000]
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

from epymarl_fairtest.core.episodes import random_tests
from epymarl_fairtest.core.indices.jain import jfi
from epymarl_fairtest.core.judged import Judge
from epymarl_fairtest.engine.selection import make_engine
from epymarl_fairtest.predictor import fit_predictor, traces_of
from epymarl_fairtest.strategies import configure
from epymarl_fairtest.team.checkpoint import load_record
from epymarl_fairtest.team.saved import saved_team


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", type=Path, required=True)
    parser.add_argument("--episodes", type=int, default=10_000)
    options = parser.parse_args()
    team = saved_team(options.policy, load_record(options.policy).allocation)
    engine = make_engine(team, configure({}), lambda message: print(message, file=sys.stderr))
    tests = random_tests(options.episodes, team.task.state_size, np.random.default_rng(0))
    judged = Judge(jfi, team.task.theta)(engine.execute(tests))
    traces, fair = traces_of(judged), ~judged.unfair
    start = time.process_time()
    predictor = fit_predictor(traces, fair, buckets=10, seed=0)
    fitted = time.process_time()
    predictor.fair_probability(traces)
    scored = time.process_time()
    print(
        f"{options.policy}: {len(traces)} episodes, {int((~fair).sum())} unfair,"
        f" {len(predictor.abstraction)} joint states, AUC {predictor.auc_full}:"
        f" fit {fitted - start:.1f} CPU s, scoring them all {scored - fitted:.1f} CPU s"
    )


if __name__ == "__main__":
    main()
