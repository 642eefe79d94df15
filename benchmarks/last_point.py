"""Does the last point of a training's fairness curve agree with the natural rate of the run that follows it?

    python -m benchmarks.last_point [--seeds 10] [--steps 1000]

Short trainings of small teams in spread, IQL and QMIX in turns, in the host's own loop. The two rates come from other
executions of the same team: their exact 95% intervals must overlap. Exit code 1 if any two do not.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import random
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

from epymarl_fairtest.host.build import build_training, configuration, load_host
from epymarl_fairtest.host.runner import fairtest_runner

SMALL = {"use_rnn": False, "hidden_dim": 32, "batch_size": 4, "epsilon_anneal_time": 500}
SEARCH = {"method": "random", "budget": 500, "explain": 0, "replay": 0, "random_team": 0, "report": False}
TESTS = 2  # of the host, on the way


def trained(algorithm: str, seed: int, steps: int, out: Path) -> dict[str, Any]:
    """The summary of the run that a training ends with."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002  (what the hosts draw from)
    torch.manual_seed(seed)
    host = load_host()
    given = {"name": algorithm, "seed": seed, "t_max": steps, "test_interval": steps // TESTS, "fairtest": True}
    args = configuration(
        host, algorithm, "fairtest_mpe", {**SMALL, **given, "fairtest_args": {**SEARCH, "out": str(out)}}
    )
    training = build_training(host, args, fairtest_runner(host.runners["episode"], host))
    runner, tested, number = training.runner, -steps, 0
    while runner.t_env <= steps:
        training.episode(number)
        number += 1
        if runner.t_env - tested >= steps // TESTS:
            tested = runner.t_env
            runner.run(test_mode=True)
    with contextlib.redirect_stdout(io.StringIO()):  # the result, which would come after the host's last words
        runner.close_env()
    summary: dict[str, Any] = json.loads((out / "summary.json").read_text())
    return summary


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=1000)
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    agree = 0
    for seed in range(given.seeds):
        algorithm = ("iql", "qmix")[seed % 2]
        with tempfile.TemporaryDirectory() as folder:
            summary = trained(algorithm, seed, given.steps, Path(folder) / "run")
        last, run = summary["curve"]["points"][-1], summary["natural_rate"]
        overlap = last["low"] <= run["high"] and run["low"] <= last["high"]
        agree += overlap
        rates = " and ".join(f"{rate['rate']:.1%} ({rate['low']:.1%} to {rate['high']:.1%})" for rate in (last, run))
        print(f"{algorithm:<4} seed {seed}, step {last['step']:,}: {rates}{'' if overlap else ', apart'}", flush=True)
    print(f"The intervals overlap in {agree} of {given.seeds} trainings.")
    return int(agree < given.seeds)


if __name__ == "__main__":
    sys.exit(main())
