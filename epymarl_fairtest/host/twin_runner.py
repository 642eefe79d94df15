"""`runner=fairtest_twin`: the host's parallel runner, whose episodes the environment's twin plays, a batch at once.

Controller, buffer, learner, loop and log are the host's. Knows nothing of how fairness is judged.
"""

from __future__ import annotations

from functools import wraps
from typing import Any

from epymarl_fairtest.core import rng
from epymarl_fairtest.core.episodes import Episodes, random_tests
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.host.aside import aside
from epymarl_fairtest.host.batches import batch_of, paid
from epymarl_fairtest.host.checks import check_algorithm, check_environment
from epymarl_fairtest.host.hosts import Host
from epymarl_fairtest.repair.collector import Collector
from epymarl_fairtest.strategies import configure
from epymarl_fairtest.tasks import TASKS
from epymarl_fairtest.team.checkpoint import PolicyRecord, mismatches, rebuild, record_of_training
from epymarl_fairtest.team.contract import Team
from epymarl_fairtest.team.saved import live_team

NAME = "fairtest_twin"
INSTEAD = "Choose runner=parallel or runner=episode."
SELECTORS = {"epsilon_greedy": "epsilon_greedy", "soft_policies": "policy"}  # the hosts' word for it, and ours


def team_in_memory(mac: Any, args: Any, *, limit: int, obs_size: int, **more: Any) -> tuple[PolicyRecord, Team]:
    """The team that `mac` controls, as it is, in the environment of `args`; what describes it."""
    sizes = {"n_agents": args.n_agents, "n_actions": args.n_actions, "obs_size": obs_size}
    record = record_of_training(args, time_limit=limit, **sizes, **more)
    weights = mac.agent.state_dict()
    wrong = mismatches(weights, record)
    if wrong:
        raise FairTestError(f"runner={NAME} knows the hosts' own agents alone ({'; '.join(wrong)}). {INSTEAD}")
    return record, live_team(rebuild(weights, record), record.key, limit, record.env_args)


def _refuse(args: Any) -> None:
    """What would have to be played in another way than the twin plays."""
    check_environment(args)
    check_algorithm(args)
    extra = [name for name in ("extra_in_buffer", "explorer") if getattr(args, name, None)]
    if args.action_selector not in SELECTORS:
        extra.append(f"action_selector={args.action_selector}")
    if extra:
        raise FairTestError(f"runner={NAME} cannot play for {args.name!r} ({', '.join(extra)}). {INSTEAD}")


class Played:
    """What a runner does whose episodes the twin plays; the rest is the host's parallel runner."""

    host: Host
    new_batch: Any  # this, the controller and the log are the host's
    mac: Any
    _log: Any
    episodes: Episodes | None = None  # that were played last

    def __init__(self, args: Any, logger: Any) -> None:  # not the parent's, which starts processes
        self.args, self.logger, self.batch_size = args, logger, args.batch_size_run
        with aside():
            _refuse(args)
            self._environment = self.host.environments[args.env](**self.host.environment_arguments(args))
        self.env_info = self._environment.get_env_info()
        self.episode_limit = self.env_info["episode_limit"]
        self.t = self.t_env = 0
        self.train_returns: list[Any] = []
        self.test_returns: list[Any] = []
        self.train_stats: dict[str, float] = {}
        self.test_stats: dict[str, float] = {}
        self.log_train_stats_t = -100_000
        self._streams = {test: rng.named(int(args.seed), NAME, int(test)) for test in (False, True)}

    def meet(self) -> None:
        """The controller is there: make its team, and prove the twin."""
        with aside():
            size = int(self.env_info["obs_shape"])
            self._record, team = team_in_memory(self.mac, self.args, limit=self.episode_limit, obs_size=size)
            self._collector = Collector(team, configure({"method": "random"}), self.logger.console_logger.warning)
            if self._collector.engine != "twin":
                known = ", ".join(task.twins for task in TASKS.values() if task.twins)
                raise FairTestError(
                    f"runner={NAME}: there is no twin of {self._record.key!r} to play with. {INSTEAD} Twins exist"
                    f" for {known}."
                )
            self._team = team

    def run(self, test_mode: bool = False) -> Any:
        """Play a batch; what it leaves in runner, batch and log is what the parallel runner leaves."""
        tests = random_tests(self.batch_size, self._team.task.state_size, self._streams[bool(test_mode)])
        policy = rebuild(self.mac.agent.state_dict(), self._record)
        with aside():
            self.episodes = self._collector.play(policy, tests, self._epsilon(test_mode), self._execution())
        rewards = paid(self.args, self.episodes.rewards)
        self.batch = batch_of(self.new_batch, self.args, self._team.available, self.episodes, self.episodes.rewards)
        returns = [one if len(one) > 1 else float(one[0]) for one in rewards.sum(axis=1)]
        if not test_mode:
            self.t_env += int(self.episodes.length.sum())
        self._count(returns, bool(test_mode))
        return self.host.played(self.batch, returns)

    def _execution(self) -> str:
        return SELECTORS[self.args.action_selector]

    def _epsilon(self, test_mode: bool) -> float:
        """The controller's own, which the log shows."""
        selector = self.mac.action_selector
        if not hasattr(selector, "epsilon"):
            return 0.0
        selector.epsilon = self.args.evaluation_epsilon if test_mode else selector.schedule.eval(self.t_env)
        return float(selector.epsilon)

    def _count(self, returns: list[Any], test: bool) -> None:
        """As the parallel runner counts and logs."""
        assert self.episodes is not None
        stats, kept = (self.test_stats, self.test_returns) if test else (self.train_stats, self.train_returns)
        stats["n_episodes"] = stats.get("n_episodes", 0) + self.batch_size
        stats["ep_length"] = stats.get("ep_length", 0) + int(self.episodes.length.sum())
        kept.extend(returns)
        wanted = max(1, self.args.test_nepisode // self.batch_size) * self.batch_size
        if test and len(self.test_returns) >= wanted:
            self._log(kept, stats, "test_")
        elif self.t_env - self.log_train_stats_t >= self.args.runner_log_interval:
            self._log(kept, stats, "test_" if test else "")
            if hasattr(self.mac.action_selector, "epsilon"):
                self.logger.log_stat("epsilon", self.mac.action_selector.epsilon, self.t_env)
            self.log_train_stats_t = self.t_env

    def reset(self) -> None:
        """Every batch begins anew."""

    def save_replay(self) -> None:
        self._environment.save_replay()

    def close_env(self) -> None:
        self._environment.close()


def twin_runner(base: type, host: Host) -> type:
    """A runner class for `host`; `base` is its parallel runner, whose logging and batches are kept."""

    class TwinRunner(Played, base):
        @wraps(getattr(base, "setup", object))  # whose parameters a host may look at
        def setup(self, *given: Any, **named: Any) -> None:
            super().setup(*given, **named)
            self.meet()

    TwinRunner.host = host
    return TwinRunner
