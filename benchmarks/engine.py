"""Episodes per CPU second: the host's EpisodeRunner and FairTest's engines on the same team.

python -m benchmarks.engine [--json] [--tasks spread tag foraging] [--agents mlp64 gru128]
python -m benchmarks.engine --engine lockstep --workers 1,2 [--keys rware:rware-tiny-2ag-v2]

`runner` is the host's EpisodeRunner on the environments as upstream publishes them, which is what it costs without
FairTest; `runner_lean` the same on FairTest's own environments, which play by the same rules in half the time. Without
--json the environment steps per second of benchmarks.simulators follow. With --engine lockstep only that engine is
measured, in several processes: in episodes per second of the clock, and in CPU seconds. The clock tells of the cores
that happened to be idle; what the busiest process and this one together take in CPU seconds is what idle cores would
leave.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import simulators
from benchmarks.stock import KEYS
from epymarl_fairtest.core.episodes import Tests, random_tests
from epymarl_fairtest.engine.contract import ActionRule
from epymarl_fairtest.engine.lockstep import Lockstep
from epymarl_fairtest.engine.selection import real_engine
from epymarl_fairtest.engine.twin import Twin
from epymarl_fairtest.host.build import Training, build_training, configuration, load_host
from epymarl_fairtest.host.controller import ControllerPolicy
from epymarl_fairtest.host.tap import host_world
from epymarl_fairtest.strategies import configure
from epymarl_fairtest.tasks import task_for
from epymarl_fairtest.team.checkpoint import rebuild, record_of_training
from epymarl_fairtest.testing import random_team

TASKS = {"spread": "fairtest_mpe", "tag": "fairtest_pp", "foraging": "fairtest_lbf"}
AGENTS = {"mlp64": {"hidden_dim": 64, "use_rnn": False}, "gru128": {"hidden_dim": 128, "use_rnn": True}}


def per_cpu_second(work: Any, episodes: int, repeats: int = 3) -> float:
    """The best of a few: other tenants of the machine only ever slow it down."""
    best = 0.0
    for _ in range(repeats):
        start = time.process_time()
        work()
        best = max(best, episodes / (time.process_time() - start))
    return best


def engines_of(training: Training, epsilon: float = 0.05) -> tuple[Lockstep, Twin]:
    """FairTest's engines on the host's own wrappers and controller, and on the twin with the same weights."""
    host, args = training.host, training.args

    def make() -> Any:
        return host.environments[args.env](**host.environment_arguments(args))

    wrapper = make()
    task, obs_size = task_for(wrapper._env), int(wrapper.get_obs_size())
    how = ActionRule("epsilon_greedy", epsilon, 1.0, np.array(wrapper.get_avail_actions(), bool))
    size = {"limit": int(wrapper.episode_limit), "state_size": task.state_size}
    live = ControllerPolicy(training.mac, training.runner.new_batch, args, obs_size)
    lockstep = Lockstep(lambda: host_world(make(), task, host, "env"), live, how, **size)
    sizes = {"n_agents": args.n_agents, "n_actions": args.n_actions, "obs_size": obs_size}
    rebuilt = rebuild(training.mac.agent.state_dict(), record_of_training(args, time_limit=size["limit"], **sizes))
    kernel = task.twin(wrapper._env, "env")
    assert kernel is not None
    return lockstep, Twin(kernel, rebuilt, how, **size)


def measure(task: str, agent: str) -> dict[str, Any]:
    host = load_host()
    torch.manual_seed(0)
    # An untrained team: what it does is irrelevant, what it costs is not.
    changes = {**AGENTS[agent], "epsilon_start": 0.05, "epsilon_finish": 0.05}
    training = build_training(host, configuration(host, "iql", TASKS[task], changes))
    lockstep, twin = engines_of(training)
    stock = build_training(host, configuration(host, "iql", TASKS[task], {**changes, "env_args": {"key": KEYS[task]}}))
    generator = np.random.default_rng(0)

    def tests(count: int) -> Tests:
        return random_tests(count, lockstep.state_size, generator)

    for warm in (training, stock):
        warm.runner.run(test_mode=False)
    lockstep.execute(tests(256))  # makes the worlds
    twin.execute(tests(256))  # compiles, or reads what was compiled before
    results = {
        "runner": per_cpu_second(lambda: [stock.runner.run(test_mode=False) for _ in range(20)], 20),
        "runner_lean": per_cpu_second(lambda: [training.runner.run(test_mode=False) for _ in range(20)], 20),
        "lockstep": per_cpu_second(lambda: lockstep.execute(tests(256)), 256),
        "twin": per_cpu_second(lambda: twin.execute(tests(4096)), 4096),
    }
    ratios = {f"{name}_ratio": results[name] / results["runner"] for name in ("lockstep", "twin")}
    ratios["twin_ratio_lean"] = results["twin"] / results["runner_lean"]
    return {"task": task, "agent": agent, "host": host.name, **results, **ratios}


def scaling(keys: Sequence[str], workers: Sequence[int], episodes: int) -> None:
    """By number of processes: episodes per second of the clock and CPU seconds; an untrained team, 50 steps each."""
    for key in keys:
        team, clock, longest = random_team(key, time_limit=50), [], []
        tests = random_tests(episodes, team.task.state_size, np.random.default_rng(0))
        for number in workers:
            engine = real_engine(team, configure({"workers": number, "engine": "lockstep"}))
            engine.execute(tests)  # makes the worlds
            began, own, theirs = time.perf_counter(), time.process_time(), of_children()
            engine.execute(tests)
            clock.append(episodes / (time.perf_counter() - began))
            spent = [after - theirs.get(process, 0.0) for process, after in of_children().items()]
            longest.append(time.process_time() - own + max(spent, default=0.0))
            del engine
        print(
            f"{key:<45} {episodes} episodes"
            + "".join(
                f"; workers {n}: {c:.1f}/s, {s:.2f} CPU s" for n, c, s in zip(workers, clock, longest, strict=True)
            )
            + f"; {clock[-1] / clock[0]:.2f}x by the clock, {longest[0] / longest[-1]:.2f}x if the cores were idle",
            flush=True,
        )


def of_children() -> dict[int, float]:
    """CPU seconds so far of each process that this one has started and that still runs."""
    seconds = {}
    for child in multiprocessing.active_children():
        fields = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
        seconds[int(child.pid or 0)] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON row per case")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--agents", nargs="+", choices=AGENTS, default=list(AGENTS))
    parser.add_argument("--engine", choices=["all", "lockstep"], default="all")
    parser.add_argument("--workers", default="1,2", help="numbers of processes of the lock-step engine")
    parser.add_argument("--keys", nargs="+", default=list(KEYS.values()), help="gymnasium ids for --engine lockstep")
    parser.add_argument("--episodes", type=int, default=512, help="for --engine lockstep")
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if args.engine == "lockstep":
        return scaling(args.keys, [int(number) for number in args.workers.split(",")], args.episodes)
    if not args.json:
        print("episodes per CPU second, how often EpisodeRunner's, and (in brackets) EpisodeRunner on FairTest's own")
        print("environments and how often that")
        print(f"{'task':<10}{'agent':<8}{'EpisodeRunner':>22}{'lockstep':>11}{'':>8}{'twin':>10}")
    for task in args.tasks:
        for agent in args.agents:
            row = measure(task, agent)
            if args.json:
                print(json.dumps(row), flush=True)
            else:
                print(
                    f"{task:<10}{agent:<8}{row['runner']:>14.1f} ({row['runner_lean']:5.1f}){row['lockstep']:>11.1f}"
                    f"{row['lockstep_ratio']:>7.1f}x{row['twin']:>10.0f}{row['twin_ratio']:>7.0f}x"
                    f" ({row['twin_ratio_lean']:.0f}x)   {row['host']}",
                    flush=True,
                )

    if not args.json:
        print()
        simulators.table()


if __name__ == "__main__":
    main()
