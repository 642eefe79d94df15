"""The plug-in itself: check before training, record during training, test after training.

It never disturbs training: global random states are given back, the controller is only listened to
while an episode runs, and the environments are tapped, not changed.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.campaign.observers import Observer, Progress, duration
from epymarl_fairtest.campaign.run import run, stopped
from epymarl_fairtest.campaign.summary import summary_table
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.files import copy_atomically, uninterrupted
from epymarl_fairtest.core.indices.jain import jfi
from epymarl_fairtest.core.judged import of_agents, totals
from epymarl_fairtest.core.rewards import first_odd, odd_reward
from epymarl_fairtest.core.shipped import environments
from epymarl_fairtest.core.stopping import stoppable
from epymarl_fairtest.curve.player import has_twin
from epymarl_fairtest.curve.point import curve_judge
from epymarl_fairtest.host.aside import aside
from epymarl_fairtest.host.checks import check_algorithm, check_environment, check_out, either, odd_spaces
from epymarl_fairtest.host.console import exit_as_stopped, on_terminal, quieten, say_last
from epymarl_fairtest.host.controller import ControllerPolicy, try_controller, untouched
from epymarl_fairtest.host.curve import Course, LearningCurve
from epymarl_fairtest.host.hosts import Host
from epymarl_fairtest.host.learner_state import remembered_learner, settings_of_learner, state_of
from epymarl_fairtest.host.recording import Recording
from epymarl_fairtest.host.repairing import options_of, repair_run
from epymarl_fairtest.host.sacred_log import SacredLog, storage_folder
from epymarl_fairtest.host.tap import TappedConnection, TappedFactory, host_world, in_words
from epymarl_fairtest.host.welfare import FairTraining
from epymarl_fairtest.report.observer import Page
from epymarl_fairtest.store.run import RunFolder
from epymarl_fairtest.strategies import configure, strategy_of
from epymarl_fairtest.tasks import task_for
from epymarl_fairtest.tasks.allocation import resolve_allocation
from epymarl_fairtest.tasks.world import World
from epymarl_fairtest.team.checkpoint import (
    PolicyRecord,
    digest,
    does_not_fit,
    load_weights,
    mismatches,
    origin_of,
    record_of_training,
    save_learner,
    save_policy,
)
from epymarl_fairtest.team.contract import Policy, Team
from epymarl_fairtest.team.sample import FILE as SAMPLE_FILE
from epymarl_fairtest.team.sample import TrainingEpisodes, TrainingSample, load_sample, refuse_other_teams

PROBE_EPISODES = 8
BESIDES = 10.0  # seconds for what does not grow with the budget: compiling, the predictor, the page
ALIKE = 0.99  # agents whose index never falls below this share alike whatever they do


def command_line() -> str:
    """The host's command as one would type it again: no absolute path, whatever the launcher made of it."""
    program = os.path.relpath(sys.argv[0]) if os.path.isabs(sys.argv[0]) else sys.argv[0]
    return shlex.join([program, *sys.argv[1:]])


def _safe(folder: RunFolder) -> str:
    saved = str(folder.path / "policy")
    again = f"fairtest run --policy {shlex.quote(saved)} --out NEW_FOLDER"
    return f"The trained team is safe in {saved!r}; test it again with: {again}"


class Plugin:
    def __init__(self, host: Host, args: Any, logger: Any, *, parallel: bool) -> None:
        self._host, self._args, self._logger, self._parallel = host, args, logger, parallel
        self._tested = False
        quieten()
        with aside():
            given = getattr(args, "fairtest_args", None)
            self.settings = configure({} if given is None else given)
            strategy_of(self.settings).check_settings(self.settings)
            options_of(self.settings.repair)
            check_environment(args)
            self._reading = check_algorithm(args)
            self.settings = self.settings.played_by(self._reading)
            self._out = Path(self.settings.out) if self.settings.out else host.results_folder(args)
            check_out(self._out)
            self._probe()
            strategy_of(self.settings).check_settings(self.settings, self.task)
            self._record(0)  # whatever the team's record lacks is better known now
            self._check_checkpoint()
            self._learner = remembered_learner(host, args)
        self._seed = self.settings.root_seed(int(args.seed))
        sample = TrainingSample(self.settings.training_pool, self._seed)
        self.recording = Recording(sample, self._warn, self._available, self._reading)
        self.curve = LearningCurve(self._course())
        self._fair = self._fair_training()

    def _fair_training(self) -> FairTraining | None:
        if self.settings.welfare is None:
            return None
        with aside():
            self.recording.always = True
            return FairTraining(self.settings, curve_judge(self.settings, self.task).theta, self._args)

    def pay(self, played: Any) -> None:
        """Training episodes are over: pay for fairness where that was asked for, else leave them as they are."""
        if self._fair is not None:
            with aside():
                self._fair.pay(played[0] if isinstance(played, tuple) else played, self.recording.played)

    def _course(self) -> Course:
        seconds = self._limit * self._step_seconds
        return Course(
            self._args, self._logger, self.settings, self._seed, self._out, self.task, self._team, self._record,
            self._obs_size, self._has_twin, seconds,
        )  # fmt: skip

    # --- before training ---

    def _make_wrapper(self) -> Any:
        entry = self._host.environments[self._args.env]
        return entry(**self._host.environment_arguments(self._args))

    def _probe(self) -> None:
        """Make one environment and let random agents play: is there anything to be unfair about?"""
        try:
            wrapper = self._make_wrapper()
        except FairTestError:
            raise
        except Exception as error:
            reason = odd_spaces(self._args.env_args.get("key"))
            if reason is None:
                raise
            raise reason from error
        self._obs_size = int(wrapper.get_obs_size())
        self._limit = int(wrapper.episode_limit)
        self._available = np.array(wrapper.get_avail_actions(), bool)
        if wrapper.n_agents < 2:
            raise FairTestError(
                f"The environment {self._args.env_args.get('key')!r} has a single agent: there is nobody to share"
                " with. FairTest needs at least two agents."
            )
        self.task = task_for(wrapper._env)
        resolve_allocation(self.task, self.settings.allocation)
        world = host_world(wrapper, self.task, self._host, self.settings.allocation)
        received = self._random_rewards(world)
        self._caution = self.task.admit(self._world, self._available)
        if self._caution:
            self._say(f"FairTest: {self._caution}", warning=True)
        self._has_twin = has_twin(self.task, wrapper._env, self.settings)
        wrapper.close()
        index = jfi(totals(of_agents(received, self.settings.agents)))
        defined = index[~np.isnan(index)]
        if len(defined) and defined.min() > ALIKE:
            self._warn_alike(float(defined.min()))

    def _random_rewards(self, world: World) -> NDArray[np.float64]:
        """What random agents receive in a few episodes (episodes, steps, agents); times the environment as well."""
        generator = np.random.default_rng(0)
        received = np.zeros((PROBE_EPISODES, self._limit, self.task.n_agents))
        began, steps = time.perf_counter(), 0
        for episode in received:
            seed = int(generator.integers(2**31))
            world.reset(seed)
            for step in range(self._limit):
                world.step(np.array([generator.choice(np.flatnonzero(row)) for row in self._available], np.int16))
                episode[step] = world.reward
                steps += 1
                if world.done:
                    break
            odd = first_odd(episode)
            if odd is not None:
                raise odd_reward(float(episode[odd]), f"seed {seed}, step {odd[0]}, agent {odd[1]}")
        self._step_seconds = (time.perf_counter() - began) / steps
        return received

    def _check_checkpoint(self) -> None:
        """The host only logs a line when the folder is missing, and fails obscurely when the team does not fit."""
        given = getattr(self._args, "checkpoint_path", "")
        if not given:
            return
        if not Path(given).is_dir():
            raise FairTestError(f"checkpoint_path={given!r} does not exist. Give the models folder of a training run.")
        steps = [int(path.name) for path in Path(given).iterdir() if path.is_dir() and path.name.isdigit()]
        if not steps:
            raise FairTestError(
                f"checkpoint_path={given!r} holds no folder named by its training steps, as the host's save_model=True"
                " makes them. Give the folder above those."
            )
        wish = getattr(self._args, "load_step", 0)
        chosen = min(steps, key=lambda step: abs(step - wish)) if wish else max(steps)
        folder = Path(given) / str(chosen)
        weights = load_weights(folder / "agent.th")
        known = getattr(self._args, "agent", None) in ("rnn", "rnn_ns")
        wrong = mismatches(weights, self._record(chosen)) if known else []
        if wrong:
            raise does_not_fit(folder, wrong)

    def _warn_alike(self, lowest: float) -> None:
        name = self.task.suggested_allocation
        advice = (
            f"choose fairtest_args.allocation={name}, or train on the environment that pays it"
            f" (--env-config={either(*environments())})"
            if name != self.settings.allocation
            else "choose another environment or an allocation of your own (fairtest_args.allocation=package.module:f)"
        )
        message = (
            f"FairTest: the agents of {self._args.env_args.get('key')!r} all receive the same under"
            f" allocation={self.settings.allocation!r} (fairness index at least {lowest:.4f} with random actions), so"
            f" no episode can be unfair. To judge fairness {advice}."
        )
        self._say(message, warning=True)

    def _say(self, message: str, warning: bool = False) -> None:
        log = self._logger.console_logger
        (log.warning if warning else log.info)(message)

    @contextmanager
    def tapping(self) -> Iterator[None]:
        """While the host's runner is constructed, its environments are made with taps."""
        registry, name = self._host.environments, self._args.env
        entry = registry[name]
        factory = TappedFactory(entry, self.settings.allocation, carry=self._parallel)
        registry[name] = factory
        try:
            yield
        finally:
            registry[name] = entry
        self.recording.sources = list(factory.made)
        factory.made.clear()

    def connect(self, runner: Any) -> None:
        if self._parallel:
            runner.parent_conns = tuple(TappedConnection(c) for c in runner.parent_conns)
            self.recording.sources = runner.parent_conns
        size = self.recording.sample.size
        kept = f"a sample of at most {size} training episodes" if size else "no training episodes"
        self._say(
            f"FairTest is on board: task {self.task.name}, allocation {self.settings.allocation}, method"
            f" {self.settings.method}, budget {self.settings.budget}; it keeps {kept} and tests the team when"
            " training ends."
        )
        self.curve.announce()

    def meet(self, runner: Any) -> None:
        """The controller is made: can it be asked as the test will ask it? Better known now than after training."""
        with aside(), untouched(runner.mac):
            try_controller(runner.mac, runner.new_batch, self._args, self._obs_size)

    # --- after training ---

    def test(self, runner: Any) -> None:
        """Save the team, then test it. Called once; some hosts close their environments twice."""
        if self._tested:
            return
        self._tested = True
        folder: RunFolder | None = None
        with aside(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the environments' own, thousands of times
            record = self._record(int(runner.t_env))
            try:
                with stoppable():
                    with uninterrupted():  # hours of training are saved whole, or not at all
                        folder = self._save(runner, record)
                    self._test_saved(runner, folder, record)
            except KeyboardInterrupt as stop:
                if folder is None:
                    raise
                self._say_stopped(folder, getattr(stop, "number", signal.SIGINT))

    def _test_saved(self, runner: Any, folder: RunFolder, record: PolicyRecord) -> None:
        try:
            self._save_sample(folder.path / "policy")
            self.curve.finish(runner, folder.path)
            self._test(runner, folder, record)
        except Exception as error:
            if not isinstance(error, FairTestError):
                self._say(f"FairTest failed after training:\n{traceback.format_exc()}", warning=True)
            message = f"{error or type(error).__name__}\n{_safe(folder)}"
            raise FairTestError(message) from (None if isinstance(error, FairTestError) else error)

    def _say_stopped(self, folder: RunFolder, number: int) -> None:
        """The host goes on to its end: its training is complete, whatever became of the test."""
        self._warn("FairTest was stopped; the training itself is complete.")
        began = (folder.path / "manifest.json").is_file()
        say_last(f"FairTest: {stopped(folder, self.settings)}" + ("" if began else f" {_safe(folder)}"))
        exit_as_stopped(number)

    def _record(self, training_steps: int) -> PolicyRecord:
        logged = getattr(self._logger, "stats", {})  # `total`: with common_reward=False
        returns = logged.get("test_return_mean") or logged.get("test_total_return_mean")
        return record_of_training(
            self._args,
            time_limit=self._limit,
            n_agents=self.task.n_agents,
            n_actions=self._available.shape[1],
            obs_size=self._obs_size,
            allocation=self.settings.allocation,
            host=self._host.name,
            training_steps=training_steps,
            test_return=float(returns[-1][1]) if returns else None,
            command=command_line(),
            learner=settings_of_learner(self._args),
        )

    def _save(self, runner: Any, record: PolicyRecord) -> RunFolder:
        weights = {k: v.detach().cpu() for k, v in runner.mac.agent.state_dict().items()}
        folder = None
        try:
            folder = RunFolder(self._out)
            half = folder.path / ".policy.tmp"
            save_policy(half, record, weights)
            self._save_learner(half)
            half.rename(folder.path / "policy")
        except FairTestError as error:
            if folder is not None:
                shutil.rmtree(folder.path / ".policy.tmp", ignore_errors=True)
                folder.remove_if_empty()
            rescue = Path(tempfile.mkdtemp(prefix="fairtest-policy-"))
            try:
                save_policy(rescue, record, weights)
            except FairTestError as second:
                raise FairTestError(f"{error}\nNor could the trained team be saved elsewhere: {second}") from None
            raise FairTestError(
                f"{error}\nThe trained team was saved in {str(rescue)!r} instead; test it with:"
                f" fairtest run --policy {str(rescue)!r} --out NEW_FOLDER"
            ) from None
        return folder

    def _save_learner(self, policy: Path) -> None:
        """What training on needs. The team is worth more: whatever goes wrong here is a warning."""
        try:
            if (learner := self._learner()) is not None:
                save_learner(policy, state_of(learner))
        except Exception as error:  # a full disk, or a fork's learner in whatever way it differs
            self._warn(f"FairTest keeps nothing of the learner ({in_words(error)}); the team itself is saved.")

    def _save_sample(self, policy: Path) -> None:
        """Into the run, and beside the models; a loaded team brings the sample of its training along."""
        if self.recording.sample.offered:
            self.recording.sample.save(policy / SAMPLE_FILE)
            models = self._host.models_folder(self._args)
            if models.is_dir():
                copy_atomically(policy / SAMPLE_FILE, models / SAMPLE_FILE)
        elif not self.recording.broken and (beside := self._sample_beside_checkpoint()) is not None:
            copy_atomically(beside, policy / SAMPLE_FILE)

    def _test(self, runner: Any, folder: RunFolder, record: PolicyRecord) -> None:
        sample = self._training_episodes()
        sacred = storage_folder(self._logger)
        policy = ControllerPolicy(runner.mac, runner.new_batch, self._args, self._obs_size)
        origin = origin_of(record, digest(runner.mac.agent.state_dict()), sample)
        if sacred is not None:  # where `fairtest run --resume` puts what is added later
            origin["sacred"] = os.path.relpath(sacred, folder.path)
        team = replace(self._team(policy), sample=sample, origin=origin)
        self._say(self._begins())
        summary = run(
            team,
            self.settings,
            folder,
            seed=self._seed,
            command=command_line(),
            warn=self._warn,
            observers=self._observers(runner.t_env),
        )
        self._say(f"FairTest has tested the team: {folder.path}")
        if self.settings.repair:
            repair_run(self._host, folder.path, self.settings.repair, self._say)
        say_last(summary_table(summary, folder.path))  # not logged: loggers fold long lines

    def _team(self, policy: Policy) -> Team:
        """The team in the host's own environment."""
        return Team(
            task=self.task,
            policy=policy,
            make_world=self._world,
            caution=self._caution,
            available=self._available,
            limit=self._limit,
            environment=self._make_wrapper()._env,
            allocation=self.settings.allocation,
        )

    def _world(self) -> World:
        return host_world(self._make_wrapper(), self.task, self._host, self.settings.allocation)

    def _begins(self) -> str:
        """What is about to happen, and how long it may take."""
        budget = self.settings.budget
        twin = self.settings.engine != "lockstep" and bool(self.task.twins)
        seconds = BESIDES + budget * self._limit * self._step_seconds * (1 if twin else 2)  # the replay, or all of it
        first = ", and a minute more the first time on a machine, for compiling" if twin else ""
        return (
            f"FairTest begins to test the team: method {self.settings.method}, {budget} episodes of at most"
            f" {self._limit} steps. It should take about {duration(seconds)}{first}."
        )

    def _observers(self, t_env: int) -> list[Observer]:
        page: list[Observer] = [Page(self._warn)] if self.settings.report else []
        log = SacredLog(self._logger, t_env, info=not self._host.plots_info)
        return [Progress(self.settings, terminal=on_terminal(), say=self._say), *page, log]

    def _warn(self, message: str) -> None:
        self._say(message, warning=True)

    def _training_episodes(self) -> TrainingEpisodes:
        """This training's sample, or the one saved beside a loaded checkpoint."""
        if self.recording.sample.offered:
            return self.recording.sample.episodes()
        if self.recording.broken:
            self._say("FairTest has no sample of this training; it falls back to random executions of the team.")
            return TrainingEpisodes.none()
        beside = self._sample_beside_checkpoint()
        if beside is not None:
            sample = load_sample(beside)
            refuse_other_teams(sample, beside, self.task.n_agents, self._available.shape[1])
            self._say(f"FairTest uses the training sample in {str(beside)!r} ({len(sample)} episodes).")
            return sample
        self._say(
            "FairTest found no training sample beside the checkpoint (it is saved when training runs with"
            " fairtest=True save_model=True); it falls back to random executions of the team."
        )
        return TrainingEpisodes.none()

    def _sample_beside_checkpoint(self) -> Path | None:
        given = getattr(self._args, "checkpoint_path", "")
        places = (Path(given), Path(given).parent) if given else ()
        return next((place / SAMPLE_FILE for place in places if (place / SAMPLE_FILE).is_file()), None)
