"""What watching costs: CPU time of training with FairTest on board and without, in turns, in one process.

    python -m benchmarks.overhead [--episodes 400] [--algorithm qmix] [--json]

Both trainings run the host's own loop (episode, buffer, learner update); only the runner differs. The
pool is at its default size and still filling, so every episode is recorded: the most the hook can cost.

The fairness curve is measured apart: CPU time of its points (the first with the twin's proof) as a share of what
training costs between two tests at the host's own interval, and over the host's whole training. The host's own tests,
which come at the same moments, are not counted as training.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
import warnings
from typing import Any

import torch

from benchmarks.engine import TASKS
from epymarl_fairtest.host.build import build_training, configuration, load_host
from epymarl_fairtest.host.runner import fairtest_runner

BLOCK = 10  # episodes per turn
POINTS = 5  # of the curve, after the first


def measure(task: str, episodes: int, algorithm: str = "qmix") -> dict[str, Any]:
    host = load_host()
    trainings = {}
    for name in ("off", "on"):
        torch.manual_seed(0)
        changes = {"fairtest": name == "on", "fairtest_args": {"out": tempfile.mkdtemp() + "/run"}}
        one = {"runner": "episode", "batch_size_run": 1}  # some algorithms train with several environments
        args = configuration(host, algorithm, TASKS[task], {**changes, **one})
        base = host.runners["episode"]
        runner = fairtest_runner(base, host) if name == "on" else base
        trainings[name] = build_training(host, args, runner)
        for number in range(40):  # until the learner has started and everything is warm
            trainings[name].episode(number)
    ratios, spent = [], {"off": 0.0, "on": 0.0}
    for block in range(episodes // BLOCK):
        cost = {}
        for name in ("off", "on") if block % 2 else ("on", "off"):
            start = time.process_time()
            for number in range(BLOCK):
                trainings[name].episode(40 + block * BLOCK + number)
            cost[name] = time.process_time() - start
            spent[name] += cost[name]
        ratios.append(cost["on"] / cost["off"])
    overhead = statistics.median(ratios) - 1
    seconds = {"off_seconds": spent["off"], "on_seconds": spent["on"]}
    runner = trainings["on"].runner
    per_step = spent["off"] / ((episodes // BLOCK) * BLOCK * runner.t_env / (40 + (episodes // BLOCK) * BLOCK))
    return {"task": task, "host": host.name, **seconds, "overhead": overhead, **curve(runner, args, per_step)}


def curve(runner: Any, args: Any, per_step: float) -> dict[str, float]:
    """CPU seconds of the curve's points as shares of those of training, which takes `per_step`."""
    spent = []
    for _ in range(1 + POINTS):
        start = time.process_time()
        runner._fairtest.curve.take(runner)
        spent.append(time.process_time() - start)
        runner.t_env += 1  # as if training had gone on: there is one point for each step
    first, each = spent[0], statistics.median(spent[1:])
    tests = args.t_max // args.test_interval + 2
    return {
        "curve_first_seconds": first,
        "curve_point_seconds": each,
        "curve_share": each / (per_step * args.test_interval),
        "curve_share_of_training": (first + each * (tests - 1)) / (per_step * args.t_max),
        "test_interval": args.test_interval,
        "t_max": args.t_max,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=400)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--algorithm", default="qmix", help="as the host names it")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for task in options.tasks:
        row = measure(task, options.episodes, options.algorithm)
        if options.json:
            print(json.dumps(row), flush=True)
        else:
            print(
                f"{task:<10} training {row['off_seconds']:.1f} s without, {row['on_seconds']:.1f} s with FairTest;"
                f" median overhead {row['overhead']:+.1%} of CPU time   ({row['host']})",
                flush=True,
            )
            print(
                f"{'':<10} a point of the curve takes {row['curve_point_seconds']:.2f} s of CPU time (the first"
                f" {row['curve_first_seconds']:.1f} s): {row['curve_share']:.2%} of training between two tests"
                f" ({row['test_interval']:,} steps), {row['curve_share_of_training']:.2%} over {row['t_max']:,} steps",
                flush=True,
            )


if __name__ == "__main__":
    main()
