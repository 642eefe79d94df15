"""One run: a trained team, its environment and the settings become a run folder and a summary.

The plug-in and `fairtest run` both end here. Whatever can be refused was refused before: the run
folder exists only once everything fits.
"""

from __future__ import annotations

import platform
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import metadata
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.campaign.calibration import calibrate, given_theta
from epymarl_fairtest.campaign.loop import Campaign
from epymarl_fairtest.campaign.observers import Observer, beside_the_bar
from epymarl_fairtest.campaign.steps import STEPS, Step
from epymarl_fairtest.campaign.steps.contract import Aftermath, Execute, Outcome, taken
from epymarl_fairtest.campaign.summary import summarise
from epymarl_fairtest.campaign.tally import Columns, Tally
from epymarl_fairtest.core import stopping
from epymarl_fairtest.core.clock import Clock
from epymarl_fairtest.core.episodes import Episodes
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.indices import INDICES
from epymarl_fairtest.core.judged import Judge, numbers_of, of_agents
from epymarl_fairtest.core.ledger import PROOF, Ledger
from epymarl_fairtest.core.version import __version__
from epymarl_fairtest.core.worst_off import worst_off_in
from epymarl_fairtest.curve.story import story_of_team
from epymarl_fairtest.engine.contract import Engine
from epymarl_fairtest.engine.lockstep import Lockstep, q_if_seen
from epymarl_fairtest.engine.selection import make_engine, real_engine
from epymarl_fairtest.settings import Settings
from epymarl_fairtest.store.run import RunFolder
from epymarl_fairtest.strategies import strategy_of
from epymarl_fairtest.strategies.contract import Context, Strategy
from epymarl_fairtest.team.contract import Team

Warn = Callable[[str], None]
AT_ONCE = 1000  # failures that are read back
LIBRARIES = "torch numpy scikit-learn moocore gymnasium pettingzoo mpe2 lbforaging sacred numba".split()  # noqa: SIM905


def run(
    team: Team,
    settings: Settings,
    folder: RunFolder,
    *,
    seed: int,
    command: str,
    warn: Warn,
    observers: Sequence[Observer] = (),
) -> dict[str, Any]:
    """Test the team; return the summary that was written to `folder`."""
    warn = beside_the_bar(warn)
    try:
        with folder:  # others may write to it once this is over, however it ends
            try:
                summary = Run(team, settings, folder, seed, command, warn, observers).summary()
            except BaseException as error:
                folder.remove_if_empty(refused=isinstance(error, FairTestError))
                raise
        for observer in observers:
            for other in observers if observer.phase else ():
                other.doing(observer.phase)
            observer.finished(folder.path, summary, team)
    finally:
        for observer in observers:
            observer.closed()
    return summary


@dataclass
class Run:
    """One run while it happens: prepare, search, take the steps after it, summarise."""

    team: Team
    settings: Settings
    folder: RunFolder
    seed: int
    command: str
    warn: Warn
    observers: Sequence[Observer]
    later: list[Mapping[str, NDArray[Any]]] = field(default_factory=list)  # random executions made after the search
    uncounted: NDArray[np.bool_] | None = None  # by failure: which a step left out of every count

    def summary(self) -> dict[str, Any]:
        self.clock, self.ledger = Clock(), Ledger()
        self.prepare()
        self.search()
        added: dict[str, Any] = {}
        columns: dict[str, Any] = {}
        for step in STEPS.values():
            outcome = self.take(step)
            added |= outcome.summary
            columns |= outcome.columns
            self.folder.write_files(outcome.files, outcome.documents)
            self.leave_out(outcome.uncounted)
            self.later.append(outcome.executions)
        added["worst_off"] = self._worst_off()
        added["curve"] = story_of_team(self.folder.path, self.team.origin)
        with self.clock.phase("saving"):
            self.folder.join_failures(columns | {"start": self.tally.starts()})
            self.folder.write_evidence(
                self.tally.executions(), self.context.evidence | {"coverage_cells": self.tally.cells()}
            )
        summary = summarise(self.context, self.engine, self.tally, self.ledger, self.clock, added)
        self.folder.finish(summary)
        return summary

    def prepare(self) -> None:
        """Engine, threshold, and everything that the strategy may know."""
        team, settings = self.team, self.settings.played_by(self.team.policy.reading)
        self.settings = settings
        if team.caution:
            self.warn(team.caution)
        with self.clock.phase("compiling"):  # or reading what was compiled before
            self.real: Lockstep = real_engine(team, settings)
            self.engine: Engine = make_engine(team, settings, self.warn, real=self.real, clock=self.clock)
        if self.real.episodes:
            self.ledger.charge(PROOF, self.real.episodes, self.real.steps)
        judge = Judge(INDICES[settings.index], self._theta(), settings.agents)
        sample = team.sample
        if len(sample):
            sample = replace(sample, rewards=of_agents(sample.rewards, settings.agents))
        self.strategy: Strategy = strategy_of(settings)
        self.engine.keeps_obs = self.strategy.observes or self.engine.needs_obs
        self.context = Context(
            team.task,
            settings,
            self.seed,
            judge,
            team.available,
            team.policy.reading,
            sample,
            warn=self.warn,
            options=self.strategy.chosen(settings),
            ask=partial(q_if_seen, team.policy),
            initial_states=self.engine.initial_states,
            clock=self.clock,
        )
        own = settings.distinct_distance
        distance = team.task.distinct_distance if own is None else own
        self.tally = Tally(team.task, judge, bins=settings.coverage_bins, distinct_distance=distance)
        if not self.folder.resumed:
            self.folder.write_manifest(self._manifest(distance))

    def _theta(self) -> float:
        if self.settings.theta != "auto":
            return given_theta(self.settings, self.team.task)
        with self.clock.phase("calibration"):
            return calibrate(self.team, self.settings, self.engine, self.seed, self.ledger).theta

    def executions(self) -> Columns:
        """One row per judged episode: those of the search, then those of the steps after it."""
        parts = [part for part in (self.tally.executions(), *self.later) if part]
        return {name: np.concatenate([part[name] for part in parts]) for name in (parts[0] if parts else ())}

    def _worst_off(self) -> dict[str, Any]:
        """Who comes off badly in the failures that count."""
        executions = self.executions()
        unfair = self.tally.unfair(executions) if executions else np.empty(0, bool)
        agents = numbers_of(self.settings.agents, self.team.task.n_agents)
        return worst_off_in(executions, unfair).as_dict(agents)

    def _manifest(self, distance: float) -> dict[str, Any]:
        return {
            "fairtest": __version__,
            "python": platform.python_version(),
            "versions": versions(),
            "task": self.team.task.name,
            "engine": self.engine.name,
            "seed": self.seed,
            "theta": self.context.theta,
            "distinct_distance": distance,
            "settings": self.settings.as_dict(),
            "command": self.command,
            **self.team.origin,
        }

    def search(self) -> None:
        """The strategy's search, until the budget is spent."""
        for observer in self.observers:
            observer.searching(self.settings)

        def on_batch(charged: int) -> None:
            stopping.check()
            for observer in self.observers:
                observer.executed(charged, self.tally.failures)

        Campaign(self.strategy, self.context, self.engine, self.folder, self.tally, self.ledger, on_batch).run()

    def take(self, step: Step) -> Outcome:
        """A step after the search: what it asks for is executed, and charged under its own purpose."""
        for observer in self.observers:
            observer.doing(step.phase)
        look, judge = self.real.seen, self.context.judge
        random, executions = self.tally.random(), self.executions()
        context = Aftermath(
            self.team,
            self.settings,
            self.seed,
            judge,
            self.folder,
            random,
            executions,
            look,
            self.warn,
            self.engine.name,
            self.engine.needs_obs,
            self.uncounted,
        )

        def execute(wanted: Execute) -> Episodes:
            stopping.check()
            answer = wanted.by(self.engine, self.real)
            self.ledger.charge(step.purpose, len(answer), answer.executed_steps())
            return answer

        with self.clock.phase(step.phase):
            outcome: Outcome = taken(step.run(context), execute)
        return outcome

    def leave_out(self, uncounted: NDArray[np.bool_] | None) -> None:
        """Count again without these failures: replays came after the counting."""
        if uncounted is None or not uncounted.any():
            return
        self.uncounted = uncounted
        stable = np.flatnonzero(~uncounted)
        parts = np.split(stable, np.arange(AT_ONCE, len(stable), AT_ONCE)) if len(stable) else []
        with self.clock.phase("counting"):
            ids = self.folder.failures(np.flatnonzero(uncounted)).id
            self.tally.leave_out(ids, (self.folder.failures(rows) for rows in parts))


def stopped(folder: RunFolder, settings: Settings) -> str:
    """What an interrupted run has found, and how to resume it."""
    if not (folder.path / "manifest.json").is_file():
        return "Stopped before anything was executed."
    if (folder.path / "summary.json").is_file():
        return f"Stopped. The run is complete; draw its page with: fairtest report {shlex.quote(str(folder.path))}"
    return (
        f"Stopped. {folder.failure_count()} unfair episodes are kept, of {folder.episode_count()} that were executed"
        f" (budget {settings.budget}). Resume with:\n  {resume_command(folder)}"
    )


def resume_command(folder: RunFolder) -> str:
    return f"fairtest run --resume {shlex.quote(str(folder.path))}"


def versions() -> dict[str, str]:
    installed = {}
    for name in LIBRARIES:
        try:
            installed[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            installed[name] = "not installed"
    return installed
