"""Train a team with a host's controller, learner and replay buffer on episodes that the twin engine collects.

A host's own loop plays one episode at a time; here the twin plays `--batch` at once, by the same rules, and the
learner is asked `--updates` times per batch. What comes out is a policy folder like that of `fairtest=True`:
weights, policy.yaml, learning curve and training sample; `fairtest curve OUT/checkpoints` draws its fairness.

python tools/train_with_twin.py --algorithm qmix --env fairtest_lbf --steps 5000000 --out policies/lbf-qmix use_rnn=True
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from epymarl_fairtest.core.episodes import Episodes, random_tests
from epymarl_fairtest.core.shipped import environments
from epymarl_fairtest.engine.contract import ActionRule
from epymarl_fairtest.engine.twin import Twin
from epymarl_fairtest.host.build import Training, build_training, configuration, load_host
from epymarl_fairtest.tasks import task_for
from epymarl_fairtest.team.checkpoint import PolicyRecord, rebuild, record_of_training, save_policy
from epymarl_fairtest.team.sample import FILE, TrainingSample


class Collector:
    """Episodes of the team as it is now, played by the twin."""

    def __init__(self, training: Training, seed: int) -> None:
        host, args = training.host, training.args
        self._training = training
        wrapper = host.environments[args.env](**host.environment_arguments(args))
        self.task, self.obs_size = task_for(wrapper._env), int(wrapper.get_obs_size())
        self.limit, self.available = int(wrapper.episode_limit), np.array(wrapper.get_avail_actions(), bool)
        try:
            kernel = self.task.twin(wrapper._env, "env")
        except (ValueError, AttributeError):  # a variant that the twin does not know
            kernel = None
        if kernel is None:
            raise SystemExit(f"there is no twin of {args.env_args['key']}")
        self._kernel, self._generator = kernel, np.random.default_rng(seed)

    def record(self, **more: Any) -> PolicyRecord:
        args = self._training.args
        sizes = {"n_agents": args.n_agents, "n_actions": args.n_actions, "obs_size": self.obs_size}
        return record_of_training(args, time_limit=self.limit, **sizes, **more)

    def episodes(self, count: int, epsilon: float) -> Episodes:
        policy = rebuild(self._training.mac.agent.state_dict(), self.record())
        how = ActionRule("epsilon_greedy", epsilon, 1.0, self.available)
        twin = Twin(self._kernel, policy, how, limit=self.limit, state_size=self.task.state_size)
        return twin.execute(random_tests(count, self.task.state_size, self._generator))


def as_batch(training: Training, episodes: Episodes) -> Any:
    """The episodes as the host's runner would have filled its batch. All end: nothing is looked up after the last."""
    runner, count = training.runner, len(episodes)
    new = runner.new_batch
    batch = new.func(new.args[0], new.args[1], count, episodes.limit + 1, **new.keywords)
    data = batch.data.transition_data
    filled = np.arange(episodes.limit + 1)[None, :] <= episodes.length[:, None]
    data["filled"][:, :, 0] = torch.from_numpy(filled.astype(np.int64))
    data["obs"][:, :-1] = torch.from_numpy(episodes.obs)
    data["state"][:, :-1] = torch.from_numpy(episodes.obs.reshape(count, episodes.limit, -1))
    data["avail_actions"][:] = 1
    actions = torch.from_numpy(np.maximum(episodes.actions, 0).astype(np.int64)).unsqueeze(-1)
    batch.update({"actions": actions}, ts=slice(0, episodes.limit), mark_filled=False)
    common = training.args.common_reward
    rewards = episodes.rewards.sum(axis=-1, keepdims=True) if common else episodes.rewards
    data["reward"][:, :-1] = torch.from_numpy(rewards).float()
    last = np.arange(episodes.limit)[None, :] == episodes.length[:, None] - 1
    data["terminated"][:, :-1, 0] = torch.from_numpy(last.astype(np.uint8))
    return batch


def forward_at_once(mac: Any) -> None:
    """The controller's answers for all steps of a batch, computed when the learner asks for the first one.

    The host asks step by step, 2 x 51 small products per update. The numbers are the same up to rounding.
    """
    agent = mac.agent

    def all_steps(batch: Any) -> Any:
        obs = batch["obs"]
        ids = torch.eye(mac.n_agents).expand(*obs.shape[:2], -1, -1)
        x = torch.relu(agent.fc1(torch.cat([obs, ids], dim=-1)))  # (episodes, steps, agents, hidden)
        if not mac.args.use_rnn:
            return agent.fc2(torch.relu(agent.rnn(x)))
        cell, (episodes, steps, agents, hidden) = agent.rnn, x.shape
        weights = [cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh]
        x = x.transpose(0, 1).reshape(steps, episodes * agents, hidden)
        h, _ = torch.gru(x, x.new_zeros(1, episodes * agents, hidden), weights, True, 1, 0.0, True, False, False)
        return agent.fc2(h.view(steps, episodes, agents, hidden).transpose(0, 1))

    def forward(batch: Any, t: int, test_mode: bool = False) -> Any:
        if t == 0:
            mac.answers = all_steps(batch)
        return mac.answers[:, t]

    mac.forward = forward


def sample_into(kept: TrainingSample, episodes: Episodes) -> None:
    first = kept.offered + 1
    for position in kept.offer(len(episodes)):
        row = position - first
        steps = slice(0, episodes.length[row])
        kept.add(position, episodes.q[row, steps], episodes.rewards[row, steps])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algorithm", required=True)
    parser.add_argument("--env", required=True, help=", ".join(environments()))
    parser.add_argument("--steps", type=int, required=True, help="environment steps")
    parser.add_argument("--batch", type=int, default=32, help="episodes per collection")
    parser.add_argument("--updates", type=int, default=8, help="learner updates per collection")
    parser.add_argument("--pool", type=int, default=1000, help="training episodes kept")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--test-interval", type=int, default=50_000, help="environment steps")
    parser.add_argument(
        "--checkpoints", action="store_true", help="keep the team of every test in OUT/checkpoints/STEPS"
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("changes", nargs="*", metavar="NAME=VALUE", help="of the host's configuration")
    given = parser.parse_args()
    if given.out.exists():
        raise SystemExit(f"{given.out} exists already")
    torch.set_num_threads(1)
    random.seed(given.seed)
    np.random.seed(given.seed)  # noqa: NPY002  (the host's buffer samples with it)
    torch.manual_seed(given.seed)
    host = load_host()
    changes = {name: yaml.safe_load(value) for name, value in (text.split("=", 1) for text in given.changes)}
    training = build_training(host, configuration(host, given.algorithm, given.env, {"seed": given.seed, **changes}))
    args = training.args
    if args.obs_agent_id and not args.obs_last_action:
        forward_at_once(training.mac)
        forward_at_once(training.learner.target_mac)
    collector, kept = Collector(training, given.seed), TrainingSample(given.pool, given.seed)
    curve: list[tuple[int, float, float]] = []
    steps = episodes_played = 0
    began = time.process_time()
    while True:
        if steps >= len(curve) * given.test_interval or steps >= given.steps:
            returns = collector.episodes(256, 0.0).rewards.sum(axis=(1, 2))
            curve.append((steps, float(returns.mean()), float(returns.std())))
            line = {"steps": steps, "test_return": curve[-1][1], "cpu_seconds": round(time.process_time() - began)}
            print(json.dumps(line), flush=True)
            save(given, training, collector, kept, curve)  # a stop loses at most one interval
        if steps >= given.steps:
            break
        share = min(1.0, steps / args.epsilon_anneal_time)
        epsilon = args.epsilon_start + share * (args.epsilon_finish - args.epsilon_start)
        episodes = collector.episodes(given.batch, epsilon)
        sample_into(kept, episodes)
        training.buffer.insert_episode_batch(as_batch(training, episodes))
        steps += int(episodes.length.sum())
        episodes_played += given.batch
        if training.buffer.can_sample(args.batch_size):
            for _ in range(given.updates):
                sample = training.buffer.sample(args.batch_size)
                training.learner.train(sample[:, : sample.max_t_filled()], steps, episodes_played)


def save(
    given: argparse.Namespace, training: Training, collector: Collector, kept: TrainingSample,
    curve: list[tuple[int, float, float]],
) -> None:  # fmt: skip
    record = collector.record(
        host=f"{training.host.name} (learner and buffer; episodes collected with FairTest's twin engine)",
        training_steps=curve[-1][0],
        test_return=curve[-1][1],
        command=shlex.join(["tools/train_with_twin.py", *sys.argv[1:]]),
    )
    save_policy(given.out, record, training.mac.agent.state_dict())
    if given.checkpoints:
        save_policy(given.out / "checkpoints" / str(curve[-1][0]), record, training.mac.agent.state_dict())
    kept.save(given.out / FILE)
    with open(given.out / "learning_curve.csv", "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("training_steps", "test_return_mean", "test_return_std"))
        writer.writerows((at, f"{mean:.4f}", f"{std:.4f}") for at, mean, std in curve)


if __name__ == "__main__":
    main()
