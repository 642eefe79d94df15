"""The trainer of `fairtest repair`: a host's own learner, buffer and controller, on episodes that our engines play."""

from __future__ import annotations

import importlib.util
import shlex
from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from epymarl_fairtest.core import rng
from epymarl_fairtest.core.checkout import known_checkout
from epymarl_fairtest.core.episodes import Episodes
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.host.at_once import forward_at_once
from epymarl_fairtest.host.batches import batch_of
from epymarl_fairtest.host.build import Training, build_training, configuration, load_host
from epymarl_fairtest.host.console import warning_nobody
from epymarl_fairtest.host.hosts import Host, PymarlZoo
from epymarl_fairtest.host.learner_state import Pace, finite, restore, settings_of_learner, state_of
from epymarl_fairtest.host.random_states import given_back, seed_everything
from epymarl_fairtest.host.widening import widened
from epymarl_fairtest.repair.collector import Collector, some_tests
from epymarl_fairtest.repair.contract import Diverged, Lesson, Trained
from epymarl_fairtest.strategies import configure
from epymarl_fairtest.team.checkpoint import (
    LEARNER,
    PolicyRecord,
    load_learner,
    load_record,
    load_weights,
    reading_of,
    rebuild,
    save_learner,
    save_policy,
)
from epymarl_fairtest.team.policy import NetworkPolicy
from epymarl_fairtest.team.saved import saved_team

BATCH = 32  # episodes per collection
UPDATES = 4  # of the learner, per collection: what more would cost buys more as fresh episodes
RELEARNED = 40  # collections in which what was not kept of a learner is learned again; the agents do not change
# The share of the steps, the last ones, in which the learning rate falls to 0: what is left is no accident of the last
# updates.
SLOWING = 0.5
WIDEST = 4096  # hidden units that a network may be given
INSTALL = (
    "Training needs a host. Name an EPyMARL checkout with `fairtest install CHECKOUT` or EPYMARL_HOME, or install"
    " PyMARLzoo+: pip install --no-deps pymarlzooplus==1.1.0"
)


class Learning:
    """A host's training whose episodes come from our engines: take them in, learn, look at the team."""

    def __init__(self, training: Training, record: PolicyRecord, available: Any) -> None:
        self.training, self.record, self._available = training, record, available
        self.steps = self.episodes = 0
        copies = [
            getattr(training.learner, name) for name in ("target_mac", "old_mac") if hasattr(training.learner, name)
        ]
        if training.args.agent == "rnn" and training.args.mac == "basic_mac" and copies:
            for mac in (training.mac, *copies):
                forward_at_once(mac)

    def policy(self) -> NetworkPolicy:
        return rebuild(self.training.mac.agent.state_dict(), self.record)

    def take(self, episodes: Episodes, rewards: Any) -> None:
        """Into the buffer, paid with `rewards` (B, T, N)."""
        training = self.training
        batch = batch_of(training.runner.new_batch, training.args, self._available, episodes, rewards)
        training.buffer.insert_episode_batch(batch)
        self.steps += int(episodes.length.sum())
        self.episodes += len(episodes)

    def update(self, count: int) -> None:
        training, size = self.training, self.training.args.batch_size
        if training.buffer.can_sample(size):
            for _ in range(count):
                sample = training.buffer.sample(size)
                training.learner.train(sample[:, : sample.max_t_filled()], self.steps, self.episodes)


@dataclass(frozen=True)
class HostTrainer:
    """Fulfils `Trainer` of repair/contract.py."""

    host: str | None = None  # epymarl or pymarlzoo; None: the first that is there
    learner: Mapping[str, Any] = field(default_factory=dict)  # settings that replace those of the team's own learner

    def check(self, policy: Path) -> dict[str, Any]:
        """Refuse early what could only fail after minutes."""
        record = load_record(policy)
        with given_back(), warning_nobody():
            host = self._load()
            if self.learner:
                self._build(record, 0)  # there are values that only the host can refuse
            else:
                self._args(host, record, 0)
        learner = "as it was saved" if (policy / LEARNER).is_file() else "not kept"
        return {"host": host.name, "algorithm": record.algorithm, "learner": learner}

    def train(self, lesson: Lesson, out: Path) -> Trained:
        with given_back(), warning_nobody():  # a host's own warnings, of each new process once more
            seed_everything(lesson.seed)
            return self._train(lesson, out)

    def _train(self, lesson: Lesson, out: Path) -> Trained:
        record, weights = load_record(lesson.policy), load_weights(lesson.policy / "agent.th")
        team = saved_team(lesson.policy, "env")
        training = self._build(record, lesson.seed)
        seed_everything(lesson.seed)  # again: importing a host draws random numbers, and it is imported only once
        notes: list[str] = []
        held, copies = load_learner(lesson.policy), training.args.hidden_dim // record.hidden_dim
        if copies > 1:
            held, weights = {}, widened(training.mac.agent, weights, record.hidden_dim, copies)
            record = replace(record, hidden_dim=training.args.hidden_dim)
        put_back(training, weights)
        learning = Learning(training, record, team.available)
        collector = Collector(team, configure({"method": "random"}), notes.append)
        generator = rng.named(lesson.seed, "lesson")
        epsilon = float(training.args.epsilon_finish)

        def turn() -> None:
            tests = some_tests(BATCH, team, lesson.starts, lesson.share, generator)
            episodes = collector.play(learning.policy(), tests, epsilon)
            learning.take(episodes, episodes.rewards if lesson.shaping is None else lesson.shaping(episodes.rewards))

        if held:
            restore(training.learner, held, str(lesson.policy / LEARNER))
        else:
            # with this arm's own reward: what comes later is learned from these episodes, too
            for _ in range(RELEARNED):
                turn()
                for _ in range(UPDATES):
                    learning.update(1)
                    put_back(training, weights)
            why = "The networks are wider" if copies > 1 else f"{LEARNER} is not in the policy folder"
            notes.append(
                f"{why}: {' and '.join(lost(training))} were learned again first, in"
                f" {RELEARNED * BATCH:,} episodes, while the agents did not change."
            )
        if self.learner:
            told = ", ".join(f"{name}={value}" for name, value in self.learner.items())
            notes.append(f"Every arm learned with {told}, which was given.")
        if not record.learner:
            notes.append("policy.yaml does not say how the team was trained: the host's own settings were used.")
        before, pace = learning.steps, Pace(training.learner)
        while learning.steps - before < lesson.steps:
            pace.set(min(1.0, (1 - (learning.steps - before) / lesson.steps) / SLOWING))
            turn()
            learning.update(UPDATES)
            if not finite(training.mac.parameters()):
                raise Diverged(
                    f"training diverged after {learning.steps - before:,} of {lesson.steps:,} steps: the weights hold"
                    " NaN or infinite numbers. A smaller --weight may help"
                )
        self._save(lesson, out, record, training, learning.steps - before)
        return Trained(learning.steps - before, tuple(notes))

    def _build(self, record: PolicyRecord, seed: int) -> Training:
        host = self._load()
        args = self._args(host, record, seed)
        try:
            return build_training(host, args)
        except (LookupError, AttributeError, TypeError, ValueError, AssertionError) as error:
            given = "policy.yaml (learner) and --learner" if self.learner else "policy.yaml (learner)"
            raise FairTestError(
                f"{host.name} cannot train this team with the settings in {given}:"
                f" {type(error).__name__}: {error}. Correct them, or delete them to use the host's own."
            ) from error

    def _save(self, lesson: Lesson, out: Path, record: PolicyRecord, training: Training, steps: int) -> None:
        how = {"seed": lesson.seed, "share": lesson.share, **(lesson.shaping.as_dict() if lesson.shaping else {})}
        after = replace(
            record,
            host=f"{training.host.name} (learner and buffer; episodes collected by FairTest)",
            training_steps=record.training_steps + steps,
            test_return=None,
            command=f"fairtest repair: {steps} steps, " + shlex.join(f"{name}={value}" for name, value in how.items()),
            learner=settings_of_learner(training.args),
            format=2,
        )
        save_policy(out, after, weights_of(training))
        save_learner(out, state_of(training.learner))

    def _load(self) -> Host:
        found = self.host == "epymarl" or known_checkout() is not None or importlib.util.find_spec("pymarlzooplus")
        if not found:
            raise FairTestError(f"No training framework is installed here. {INSTALL}")
        try:
            host = load_host(self.host)
            _ = host.runners
        except ImportError as error:
            raise FairTestError(f"The host cannot be imported ({error}). {INSTALL}") from error
        return host

    def _args(self, host: Host, record: PolicyRecord, seed: int) -> Any:
        """The host's arguments for this team: its own settings where they are known, else the host's."""
        if reading_of(record) != "q":
            raise FairTestError(
                f"The team was trained with {record.algorithm!r}; repair trains Q-learners on, whose episodes may come"
                " from anywhere: iql, vdn, qmix and their _ns variants."
            )
        if isinstance(host, PymarlZoo) and record.learner.get("common_reward") is False:
            raise FairTestError(
                f"The team's learner ({record.algorithm}, common_reward=False) needs the rewards of the single agents,"
                " and PyMARLzoo+ trains on the team's reward alone. Name an EPyMARL checkout: fairtest install CHECKOUT"
            )
        network = {name: getattr(record, name) for name in ("hidden_dim", "use_rnn", "obs_last_action", "obs_agent_id")}
        environment = {
            "key": record.key,
            "time_limit": record.time_limit,
            "pretrained_wrapper": None,
            **record.env_args,
        }
        plain = {"env": "gymma", "runner": "episode", "batch_size_run": 1, "name": record.algorithm, "seed": seed}
        known = {name: value for name, value in record.learner.items() if name not in ("n_agents", "n_actions")}
        fixed = {**network, **plain, "env_args": environment}
        try:
            if not record.algorithm.isidentifier():  # it names a file
                raise FileNotFoundError
            args = configuration(host, record.algorithm, "gymma", {**known, **fixed})
        except FileNotFoundError as error:
            raise FairTestError(
                f"{host.name} knows no algorithm {record.algorithm!r}, which trained the team."
            ) from error
        for name, value in self.learner.items():
            setattr(args, name, changed(args, name, value, fixed.keys() - {"hidden_dim"}))
        widths = range(record.hidden_dim, max(record.hidden_dim, WIDEST) + 1, record.hidden_dim)
        if not isinstance(args.hidden_dim, int) or args.hidden_dim not in widths:
            raise FairTestError(
                f"--learner hidden_dim={args.hidden_dim} is not allowed; the team's networks have {record.hidden_dim}"
                f" hidden units and can be given a multiple of that, up to {WIDEST}."
            )
        return args


def changed(args: Any, name: str, value: Any, fixed: Set[str]) -> Any:
    """The value to give a setting of the learner instead of its own; refused where it does not fit."""
    settings = settings_of_learner(args)
    if name not in settings or name in fixed:
        others = ", ".join(known for known in settings if known not in fixed)
        raise FairTestError(f"--learner {name}: no setting of how this team learns. There are: {others}.")
    kind = next(kind for kind in (bool, (int, float), object) if isinstance(settings[name], kind))
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise FairTestError(
            f"--learner {name}={value} is not allowed; it is {settings[name]!r} now, and must stay of that kind."
        )
    return value


def weights_of(training: Training) -> dict[str, Tensor]:
    return {name: value.detach().cpu() for name, value in training.mac.agent.state_dict().items()}


def put_back(training: Training, weights: dict[str, Tensor]) -> None:
    """The agents as they were. What the learner learned besides (mixer, optimiser, statistics) stays."""
    training.mac.agent.load_state_dict(weights)
    training.learner.target_mac.agent.load_state_dict(weights)


def lost(training: Training) -> list[str]:
    """What a learner holds besides copies of the agents."""
    names = {name.partition(".")[0] for name in state_of(training.learner)}
    return sorted(name for name in names if not name.startswith("target_"))
