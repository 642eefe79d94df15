"""The fairness curve during training: at every test of the host the team as it is plays the same random executions.

The team is a copy of the weights, or the live controller whose memory is put back; global random states are given
back. Nothing that goes wrong here may end a training: the curve stops, with one warning.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from epymarl_fairtest.campaign.observers import duration
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.files import copy_atomically
from epymarl_fairtest.curve.keep import keep_teams, kept_steps
from epymarl_fairtest.curve.player import WITH_TWIN, Player, curve_tests
from epymarl_fairtest.curve.point import Point, curve_judge, point_of
from epymarl_fairtest.curve.series import FILE, FOLDER, append, asked_for, begin
from epymarl_fairtest.host.aside import aside
from epymarl_fairtest.host.console import warning_nobody
from epymarl_fairtest.host.controller import ControllerPolicy, untouched
from epymarl_fairtest.host.tap import in_words
from epymarl_fairtest.settings import Settings
from epymarl_fairtest.tasks.contract import Task
from epymarl_fairtest.team.checkpoint import PolicyRecord, mismatches, rebuild, save_policy
from epymarl_fairtest.team.contract import Policy, Team

SUGGESTED = 100  # executions per point where they are slow
LOGGED = {"natural_rate": "rate", "natural_rate_low": "low", "natural_rate_high": "high"} | {
    name: name for name in ("index", "return", "worst_off", "best_off", "undefined")
}  # as the log calls a point's numbers


@dataclass(frozen=True)
class Course:
    """What a curve must know of the training that it follows."""

    args: Any  # the host's
    logger: Any
    settings: Settings
    seed: int
    out: Path  # the run folder, which does not exist yet
    task: Task
    make_team: Callable[[Policy], Team]
    record: Callable[[int], PolicyRecord]
    obs_size: int
    twin: bool  # has the environment one?
    episode_seconds: float  # of the environment itself

    @property
    def episodes(self) -> int:
        """Random executions per point."""
        asked = self.settings.curve_episodes
        return asked if asked is not None else (WITH_TWIN if self.twin else 0)

    @property
    def tests(self) -> int:
        """How often the host tests, and once more when training ends."""
        steps, interval = getattr(self.args, "t_max", 0), getattr(self.args, "test_interval", 0)
        return int(steps // interval) + 2 if interval and steps else 2


class LearningCurve:
    def __init__(self, course: Course) -> None:
        self._course, self._console = course, course.logger.console_logger
        self.points: list[Point] = []
        self._trains = self._broken = False
        self._player: Player | None = None
        self._folder = _free(course.out.with_name(f"{course.out.name}-{FOLDER}"))

    @property
    def _on(self) -> bool:
        return self._course.episodes > 0 and not self._broken

    def announce(self) -> None:
        """Before training: whether there will be a curve, and what it costs where that is much."""
        course = self._course
        each = SUGGESTED if course.settings.curve_episodes is None else course.episodes
        once = each * course.episode_seconds
        price = f"about {duration(once)} at each of about {course.tests} tests, {duration(once * course.tests)} in all"
        if not course.episodes:
            if course.settings.curve_episodes is None:
                self._console.info(
                    "FairTest draws no fairness curve while the team learns: this environment has no twin. Turn it on"
                    f" with fairtest_args.curve_episodes={each}, which takes {price}."
                )
            return
        try:
            curve_judge(course.settings, course.task)
        except FairTestError as error:
            self._stop(str(error))
            return
        self._console.info(
            f"FairTest plays {course.episodes} random executions at every test, for the fairness curve"
            + ("." if course.twin else f", in the environment itself: {price}.")
        )
        interval, steps = (getattr(course.args, name, None) for name in ("test_interval", "t_max"))
        if interval and steps and interval > steps:
            self._console.warning(
                f"test_interval={interval} is larger than t_max={steps}: the fairness curve will have two points, after"
                " the first episode and at the end of training. Choose a smaller test_interval for more."
            )

    def before(self, runner: Any, *, test: bool) -> None:
        """The runner is about to play: a training episode, or one of a test. A point is taken before each test."""
        self._trains |= not test
        if test and self._trains:
            self.take(runner)

    def take(self, runner: Any) -> None:
        """The point of the team as it is now, unless there is one of this step."""
        step = int(runner.t_env)
        if not self._on or (self.points and self.points[-1].step == step):
            return
        try:
            with aside(), untouched(runner.mac), warning_nobody():
                self._take(runner, step)
        except Exception as error:  # whatever it is, training is worth more than our curve
            self._stop(in_words(error).removeprefix("PluginError: "))

    def _take(self, runner: Any, step: int) -> None:
        course, record = self._course, replace(self._course.record(step), test_return=None)
        weights = {name: value.detach().cpu() for name, value in runner.mac.agent.state_dict().items()}
        policy = self._policy(runner, weights, record)
        if self._player is None:
            self._begin(course.make_team(policy))
        assert self._player is not None
        began = time.process_time()
        point = point_of(step, self._player.play(policy, self._tests))
        spent = time.process_time() - began
        append(self._folder / FILE, point)
        self.points.append(point)
        for name, value in logged(point).items():
            course.logger.log_stat(f"fairtest_curve_{name}", value, step)
        wanted = kept_steps(self.points, course.settings.curve_keep)
        keep_teams(self._folder, wanted, step, lambda folder: save_policy(folder, record, weights))
        if len(self.points) == 1:
            left = course.tests - 1
            self._console.info(
                f"FairTest: a point of the fairness curve ({course.episodes} random executions, {self._player.engine}"
                f" engine) took {spent:.2f} s of CPU time; about {left} more follow, {spent * left:.1f} s in all."
            )

    def _begin(self, team: Team) -> None:
        """The first point: the engine is made, and proved, for all of them."""
        course = self._course
        judge = curve_judge(course.settings, team.task)
        self._tests = curve_tests(team, course.episodes, course.seed)
        self._player = Player(team, course.settings, judge, self._console.warning)
        self._folder.mkdir(parents=True)
        asked = asked_for(
            course.settings, task=team.task.name, theta=judge.theta, allocation=course.settings.allocation,
            seed=course.seed, episodes=course.episodes,
        )  # fmt: skip
        begin(self._folder / FILE, asked)

    def _policy(self, runner: Any, weights: dict[str, Any], record: PolicyRecord) -> Policy:
        """From the weights, where the network is one that we know; else the live controller."""
        if getattr(self._course.args, "agent", None) in ("rnn", "rnn_ns") and not mismatches(weights, record):
            return rebuild(weights, record)
        return ControllerPolicy(runner.mac, runner.new_batch, self._course.args, self._course.obs_size)

    def finish(self, runner: Any, run: Path) -> None:
        """Training is over: the point of the final team, and everything goes into its run folder."""
        if self._trains:
            self.take(runner)
        if not self.points:
            return
        try:
            copy_atomically(self._folder / FILE, run / "policy" / FILE)
            self._folder.rename(run / FOLDER)
        except (OSError, FairTestError) as error:
            self._console.warning(f"FairTest leaves the fairness curve in {str(self._folder)!r}: {error}")

    def _stop(self, why: str) -> None:
        self._broken = True
        self._console.warning(
            f"FairTest draws no further points of the fairness curve: {why.rstrip('.')}. Training continues, and the"
            " team is tested when it ends."
        )


def logged(point: Point) -> dict[str, float]:
    """What goes to the host's log; what is undefined is left out, so that it is a gap and not a zero."""
    numbers = point.numbers()
    return {name: numbers[number] for name, number in LOGGED.items() if numbers[number] is not None}


def _free(folder: Path) -> Path:
    """This folder, or with a number: an earlier training that was killed may have left its curve there."""
    others = (folder.with_name(f"{folder.name}-{number}") for number in range(2, 10_000))
    return next((place for place in (folder, *others) if not place.exists()), folder)
