"""Training by runner: environment steps per CPU second, and what the team has learned, with the host's own loop.

    python -m benchmarks.training [--task spread] [--algorithm qmix] [--steps 50000] [--seeds 3] [--json]

`episode` plays one episode per update of the learner, `parallel` and `fairtest_twin` play `--batch` of them: compare
those two. Processes of the parallel runner are counted, too. The host's tests, at the steps of the curve, are not.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import warnings
from collections.abc import Sequence
from typing import Any

import torch

from benchmarks.engine import TASKS
from epymarl_fairtest.host.build import Training, build_training, configuration, load_host
from epymarl_fairtest.host.hosts import Host
from epymarl_fairtest.host.random_states import seed_everything
from epymarl_fairtest.host.twin_runner import NAME, twin_runner

RUNNERS = ("episode", "parallel", NAME)
TESTS = 64  # episodes per point of the curve
POINTS = 5


def build(host: Host, runner: str, task: str, algorithm: str, batch: int, seed: int) -> Training:
    seed_everything(seed)
    count = 1 if runner == "episode" else batch
    changes = {"runner": runner, "batch_size_run": count, "test_nepisode": TESTS // count * count, "seed": seed}
    args = configuration(host, algorithm, TASKS[task], changes)
    made = twin_runner(host.runners["parallel"], host) if runner == NAME else host.runners[runner]
    return build_training(host, args, made)


def tested(training: Training) -> float:
    """The mean return of the host's own test."""
    runner = training.runner
    for _ in range(training.args.test_nepisode // runner.batch_size):
        runner.run(test_mode=True)
    return float(runner.logger.stats["test_return_mean"][-1][1])


def measure(host: Host, runner: str, given: argparse.Namespace, seed: int) -> dict[str, Any]:
    training = build(host, runner, given.task, given.algorithm, given.batch, seed)
    curve: list[tuple[int, float]] = []
    spent, episodes, began = 0.0, 0, cpu_seconds()
    while True:
        steps = training.runner.t_env
        if steps >= len(curve) * given.steps / POINTS:
            spent += cpu_seconds() - began
            curve.append((steps, round(tested(training), 3)))
            began = cpu_seconds()
        if steps >= given.steps:
            break
        training.episode(episodes)
        episodes += training.runner.batch_size
    training.runner.close_env()
    for process in getattr(training.runner, "ps", ()):
        process.join()
    return {"runner": runner, "seed": seed, "steps": steps, "cpu_seconds": round(spent, 2), "curve": curve}


def cpu_seconds() -> float:
    """Of this process and its children that live: those of the parallel runner, which end with it."""
    times = os.times()
    return times.user + times.system + sum(map(_of_process, _children()))


def _children() -> list[int]:
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        return [int(pid) for pid in file.read().split()]


def _of_process(pid: int) -> float:
    try:
        with open(f"/proc/{pid}/stat") as file:
            user, system = file.read().rpartition(")")[2].split()[11:13]
    except OSError:  # it has ended since
        return 0.0
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def table(rows: Sequence[dict[str, Any]]) -> str:
    lines = []
    for runner in RUNNERS:
        mine = [row for row in rows if row["runner"] == runner]
        if not mine:
            continue
        rates = [row["steps"] / row["cpu_seconds"] for row in mine]
        points = zip(*(row["curve"] for row in mine), strict=True)
        curve = "  ".join(f"{statistics.mean(value for _, value in point):8.3f}" for point in points)
        last = [row["curve"][-1][1] for row in mine]
        lines.append(
            f"{runner:14}{statistics.mean(rates):9.0f} steps per CPU s   test return {curve}"
            f"   last by seed {', '.join(map(str, last))}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=tuple(TASKS), default="spread")
    parser.add_argument("--algorithm", default="qmix")
    parser.add_argument("--steps", type=int, default=50_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=8, help="episodes per update of parallel and fairtest_twin")
    parser.add_argument("--runner", choices=RUNNERS, action="append", help="(all)")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    host = load_host()
    rows = [measure(host, runner, given, seed) for runner in given.runner or RUNNERS for seed in range(given.seeds)]
    print(json.dumps(rows) if given.json else table(rows))


if __name__ == "__main__":
    main()
