"""Episodes per CPU second: the host's EpisodeRunner and FairTest's engine on the same team.

python -m benchmarks.engine [--json] [--tasks spread tag foraging] [--agents mlp64 gru128]
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from typing import Any

import numpy as np
import torch

from epymarl_fairtest.baselines.random import random_tests
from epymarl_fairtest.engine.contract import Execution
from epymarl_fairtest.engine.lockstep import Lockstep
from epymarl_fairtest.host.build import Training, build_training, configuration, load_host
from epymarl_fairtest.host.policy import ControllerPolicy
from epymarl_fairtest.host.tap import HostWorld
from epymarl_fairtest.tasks import task_for

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


def lockstep_of(training: Training, epsilon: float = 0.05) -> Lockstep:
    """FairTest's engine on the host's own wrappers and live controller."""
    host, args = training.host, training.args
    make = lambda: host.environments[args.env](**host.environment_arguments(args))  # noqa: E731
    wrapper = make()
    task = task_for(wrapper._env)
    policy = ControllerPolicy(training.mac, training.runner.new_batch, args, wrapper.get_obs_size())
    how = Execution("epsilon_greedy", epsilon, 1.0, np.array(wrapper.get_avail_actions(), bool))
    limit = wrapper.episode_limit
    return Lockstep(lambda: HostWorld(make(), task, host, "env"), policy, how, limit=limit, state_size=task.state_size)


def measure(task: str, agent: str) -> dict[str, Any]:
    host = load_host()
    torch.manual_seed(0)
    # An untrained team: what it does is irrelevant, what it costs is not.
    args = configuration(host, "iql", TASKS[task], {**AGENTS[agent], "epsilon_start": 0.05, "epsilon_finish": 0.05})
    training = build_training(host, args)
    runner = training.runner
    runner.run(test_mode=False)
    engine = lockstep_of(training)
    generator = np.random.default_rng(0)
    size = engine._state_size
    engine.execute(random_tests(256, size, generator))  # makes the worlds
    episodes = {"runner": 20, "lockstep": 256}
    results = {
        "runner": per_cpu_second(lambda: [runner.run(test_mode=False) for _ in range(20)], episodes["runner"]),
        "lockstep": per_cpu_second(lambda: engine.execute(random_tests(256, size, generator)), episodes["lockstep"]),
    }
    return {
        "task": task,
        "agent": agent,
        "host": host.name,
        **results,
        "lockstep_ratio": results["lockstep"] / results["runner"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON row per case")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--agents", nargs="+", choices=AGENTS, default=list(AGENTS))
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if not args.json:
        print(f"{'task':<10}{'agent':<8}{'EpisodeRunner':>15}{'lockstep':>12}{'ratio':>8}   (episodes per CPU second)")
    for task in args.tasks:
        for agent in args.agents:
            row = measure(task, agent)
            if args.json:
                print(json.dumps(row), flush=True)
            else:
                print(
                    f"{task:<10}{agent:<8}{row['runner']:>15.1f}{row['lockstep']:>12.1f}{row['lockstep_ratio']:>7.1f}x"
                    f"   {row['host']}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
