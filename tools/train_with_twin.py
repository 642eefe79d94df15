"""Train a team with a host's controller, learner and replay buffer on episodes that the twin engine collects.

A host's own loop plays one episode at a time; here the twin plays `--batch` at once, by the same rules, and the
learner is asked `--updates` times per batch. An actor-critic learner learns from what its team has just played: it gets
`batch_size` episodes at a time and is asked once. What comes out is a policy folder like that of `fairtest=True`:
weights, policy.yaml, learning curve and training sample; `fairtest curve OUT/checkpoints` draws its fairness.
Where there is no twin the environment itself plays, in lock-step: `--env gymma` and its arguments.

python tools/train_with_twin.py --algorithm qmix --env fairtest_lbf --steps 5000000 --out policies/lbf-qmix use_rnn=True
python tools/train_with_twin.py --algorithm mappo --env fairtest_lbf --steps 20000000 --out policies/lbf-mappo
python tools/train_with_twin.py --algorithm ippo --env gymma --steps 3000000 --out policies/rware \
    "env_args={key: 'rware:rware-tiny-2ag-v2', time_limit: 100, pretrained_wrapper: null}"
"""

from __future__ import annotations

import argparse
import csv
import json
import shlex
import sys
import time
from dataclasses import replace
from pathlib import Path

import torch
import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from epymarl_fairtest.core import rng
from epymarl_fairtest.core.episodes import Episodes
from epymarl_fairtest.core.shipped import environments
from epymarl_fairtest.host.build import Training, build_training, configuration, load_host
from epymarl_fairtest.host.learner_state import settings_of_learner, state_of
from epymarl_fairtest.host.random_states import seed_everything
from epymarl_fairtest.host.trainer import Learning, weights_of
from epymarl_fairtest.host.twin_runner import team_in_memory
from epymarl_fairtest.repair.collector import Collector, some_tests
from epymarl_fairtest.strategies import configure
from epymarl_fairtest.team.checkpoint import PolicyRecord, save_learner, save_policy
from epymarl_fairtest.team.sample import FILE, TrainingSample, keep_some


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
    seed_everything(given.seed)
    host = load_host()
    changes = {name: yaml.safe_load(value) for name, value in (text.split("=", 1) for text in given.changes)}
    training = build_training(host, configuration(host, given.algorithm, given.env, {"seed": given.seed, **changes}))
    args = training.args
    size, limit = args.unit_dim, training.runner.episode_limit
    learns = settings_of_learner(args)
    record, team = team_in_memory(training.mac, args, limit=limit, obs_size=size, learner=learns)
    learning = Learning(training, record, team.available)
    collector = Collector(team, configure({"method": "random"}), lambda message: print(message, file=sys.stderr))
    if collector.engine != "twin":
        print(f"there is no twin of {args.env_args['key']}: the environment itself plays", file=sys.stderr)
    collected = f"{host.name} (learner and buffer; episodes collected with FairTest's {collector.engine} engine)"
    generator, kept = rng.named(given.seed, "training"), TrainingSample(given.pool, given.seed)
    curve: list[tuple[int, float, float]] = []
    began = time.process_time()

    on_policy = args.agent_output_type == "pi_logits"

    def played(count: int, epsilon: float, execution: str = "epsilon_greedy") -> Episodes:
        return collector.play(learning.policy(), some_tests(count, team, None, 0.0, generator), epsilon, execution)

    def lesson() -> Episodes:
        """The next episodes to learn from."""
        if on_policy:
            return played(args.batch_size, 0.0, "policy")
        share = min(1.0, learning.steps / args.epsilon_anneal_time)
        return played(given.batch, args.epsilon_start + share * (args.epsilon_finish - args.epsilon_start))

    while True:
        steps = learning.steps
        if steps >= len(curve) * given.test_interval or steps >= given.steps:
            returns = played(256, 0.0).rewards.sum(axis=(1, 2))
            curve.append((steps, float(returns.mean()), float(returns.std())))
            line = {"steps": steps, "test_return": curve[-1][1], "cpu_seconds": round(time.process_time() - began)}
            print(json.dumps(line), flush=True)
            save(given, training, replace(record, host=collected), kept, curve)  # a stop loses at most one interval
        if steps >= given.steps:
            break
        episodes = lesson()
        keep_some(kept, episodes)
        learning.take(episodes, episodes.rewards)
        learning.update(1 if on_policy else given.updates)


def save(
    given: argparse.Namespace, training: Training, record: PolicyRecord, kept: TrainingSample,
    curve: list[tuple[int, float, float]],
) -> None:  # fmt: skip
    record = replace(
        record,
        training_steps=curve[-1][0],
        test_return=curve[-1][1],
        command=shlex.join(["tools/train_with_twin.py", *sys.argv[1:]]),
    )
    save_policy(given.out, record, weights_of(training))
    save_learner(given.out, state_of(training.learner))
    if given.checkpoints:
        save_policy(given.out / "checkpoints" / str(curve[-1][0]), record, weights_of(training))
    kept.save(given.out / FILE)
    with open(given.out / "learning_curve.csv", "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("training_steps", "test_return_mean", "test_return_std"))
        writer.writerows((at, f"{mean:.4f}", f"{std:.4f}") for at, mean, std in curve)


if __name__ == "__main__":
    main()
