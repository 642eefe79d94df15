"""Does a whole team play the same episodes on the twin as in the host's EpisodeRunner?

python -m benchmarks.exact [--episodes 1000] [--tasks spread tag foraging] [--agents mlp64 gru128] [--host pymarlzoo]

Greedy play from the same seeds. Observations, actions, team rewards and lengths are compared bit for bit; a team
whose Q-values tie up to the last bits could part ways, and would be counted.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from typing import Any

import numpy as np
import torch

from benchmarks.engine import AGENTS, TASKS, engines_of
from epymarl_fairtest.core.episodes import Episodes, tests_from_seeds
from epymarl_fairtest.host.build import Training, build_training, configuration, load_host
from epymarl_fairtest.host.hosts import Host


class Seeded:
    """Stands in for the wrapper's environment and resets it to the seed that is next."""

    seed = 0

    def __init__(self, env: Any) -> None:
        self.env = env

    def __getattr__(self, name: str) -> Any:
        return getattr(self.env, name)

    def reset(self, **ignored: Any) -> Any:
        return self.env.reset(seed=self.seed)


def differing(training: Training, episodes: Episodes) -> int:
    """How many of the twin's episodes the host's runner does not play the same."""
    runner = training.runner
    runner.env._env = seeded = Seeded(runner.env._env)
    different = 0
    for row, seed in enumerate(episodes.root_seed):  # one by one: that is what the runner does
        seeded.seed = int(seed)
        runner.run(test_mode=True)
        played, length = runner.batch, runner.t
        same = length == episodes.length[row] and all(
            np.array_equal(theirs, ours[row, :length])
            for theirs, ours in (
                (played["obs"][0, :length].numpy(), episodes.obs),
                (played["actions"][0, :length, :, 0].numpy(), episodes.actions),
                (played["reward"][0, :length, 0].numpy(), team_reward(episodes)),
            )
        )
        different += not same
    return different


def team_reward(episodes: Episodes) -> Any:
    """Added agent by agent, as hosts do, and kept in single precision."""
    return np.cumsum(episodes.rewards, axis=-1)[..., -1].astype(np.float32)


def measure(host: Host, task: str, agent: str, episodes: int) -> int:
    torch.manual_seed(0)
    changes = {**AGENTS[agent], "test_nepisode": 10**9}
    training = build_training(host, configuration(host, "iql", TASKS[task], changes))
    _, twin = engines_of(training, epsilon=0.0)
    seeds = np.random.default_rng(1).integers(0, 2**31, episodes, dtype=np.int64)
    return differing(training, twin.execute(tests_from_seeds(seeds, np.zeros(episodes, np.uint64), twin.state_size)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=1000)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--agents", nargs="+", choices=AGENTS, default=list(AGENTS))
    parser.add_argument("--host", choices=["epymarl", "pymarlzoo"], help="default: EPyMARL where a checkout is known")
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    host, found = load_host(args.host), 0
    for task in args.tasks:
        for agent in args.agents:
            different = measure(host, task, agent, args.episodes)
            print(f"{task:<10}{agent:<8}{different} of {args.episodes} episodes differ", flush=True)
            found += different
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main())
