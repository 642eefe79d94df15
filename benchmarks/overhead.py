"""What watching costs: CPU time of training with FairTest on board and without, in turns, in one process.

    python -m benchmarks.overhead [--episodes 400] [--json]

Both trainings run the host's own loop (episode, buffer, learner update); only the runner differs. The
pool is at its default size and still filling, so every episode is recorded: the most the hook can cost.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
import warnings

import torch

from benchmarks.engine import TASKS
from epymarl_fairtest.host.build import build_training, configuration, load_host
from epymarl_fairtest.host.runner import fairtest_runner

BLOCK = 10  # episodes per turn


def measure(task: str, episodes: int) -> dict[str, object]:
    host = load_host()
    trainings = {}
    for name in ("off", "on"):
        torch.manual_seed(0)
        changes = {"fairtest": name == "on", "fairtest_args": {"out": tempfile.mkdtemp() + "/run"}, "name": "qmix"}
        args = configuration(host, "qmix", TASKS[task], changes)
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
    return {"task": task, "host": host.name, **seconds, "overhead": overhead}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=400)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for task in options.tasks:
        row = measure(task, options.episodes)
        if options.json:
            print(json.dumps(row), flush=True)
        else:
            print(
                f"{task:<10} training {row['off_seconds']:.1f} s without, {row['on_seconds']:.1f} s with FairTest;"
                f" median overhead {row['overhead']:+.1%} of CPU time   ({row['host']})",
                flush=True,
            )


if __name__ == "__main__":
    main()
