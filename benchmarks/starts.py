"""How much does the start of an episode decide whether it is unfair? Executes the same starts again and again.

python -m benchmarks.starts [--policies DIR ...] [--starts 500] [--times 100] [--corpus 10] [--seed 0] [--json]

Every start (a seed of the environment) is executed with new exploration each time; its rate is the share of these
executions that is unfair. A method that executes a corpus of starts again and again finds, per execution, the mean
rate if it chooses evenly, and the largest rate of its corpus if it chooses perfectly. `mean of the best` is that
largest rate's expectation over all corpora of that size; `deviation` is the standard deviation of a single start's
rate, without what executing it a finite number of times adds.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.campaign.calibration import given_theta
from epymarl_fairtest.core.episodes import tests_from_seeds
from epymarl_fairtest.core.indices import INDICES
from epymarl_fairtest.core.judged import totals
from epymarl_fairtest.core.shipped import shipped
from epymarl_fairtest.engine.selection import make_engine
from epymarl_fairtest.strategies import configure
from epymarl_fairtest.team.checkpoint import load_record
from epymarl_fairtest.team.saved import saved_team

Rates = NDArray[np.float64]


def rates(folder: Path, starts: int, times: int, seed: int) -> Rates:
    """The share of unfair executions of each start."""
    subject = saved_team(folder, load_record(folder).allocation)
    chosen = configure({"preset": "paper"})
    engine = make_engine(subject, chosen, lambda message: print(message, file=sys.stderr))
    generator = np.random.default_rng(seed)
    unfair = np.zeros(starts)
    seeds = generator.integers(0, 2**31, starts)
    for _ in range(times):
        streams = generator.integers(0, 2**64, starts, dtype=np.uint64)
        episodes = engine.execute(tests_from_seeds(seeds, streams, subject.task.state_size))
        unfair += INDICES[chosen.index](totals(episodes.rewards)) <= given_theta(chosen, subject.task)
    return unfair / times


def told(found: Rates, times: int, corpus: int) -> dict[str, float]:
    ranked = np.sort(found)
    below = np.arange(1, len(ranked) + 1) / len(ranked)
    best = np.diff(np.concatenate([[0.0], below**corpus]))  # the chance that the largest of a corpus has this rank
    noise = float((found * (1 - found)).mean()) / (times - 1)
    return {
        "natural rate": float(found.mean()),
        "deviation": float(np.sqrt(max(found.var(ddof=1) - noise, 0.0))),
        "above one half": float((found > 0.5).mean()),
        "never": float((found == 0).mean()),
        "mean of the best": float(ranked @ best),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--policies", type=Path, nargs="+", metavar="DIR")
    parser.add_argument("--starts", type=int, default=500)
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--corpus", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    folders = args.policies or sorted(path for path in shipped("policies").iterdir() if path.is_dir())
    found = {}
    for folder in folders:
        found[folder.name] = told(rates(folder, args.starts, args.times, args.seed), args.times, args.corpus)
        if not args.json:
            if len(found) == 1:
                print("team".ljust(10), *(name.rjust(16) for name in found[folder.name]))
            print(folder.name.ljust(10), *(f"{value:16.4f}" for value in found[folder.name].values()), flush=True)
    if args.json:
        print(json.dumps({"starts": args.starts, "times": args.times, "corpus": args.corpus, "teams": found}))


if __name__ == "__main__":
    main()
