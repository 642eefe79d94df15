"""Failures of a finished run, executed again in the real environment and compared bit for bit. Draws nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.campaign.selection import worst
from epymarl_fairtest.campaign.steps.replay import agrees, tests_again
from epymarl_fairtest.core.episodes import OPERATORS, Episodes
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.indices import INDICES
from epymarl_fairtest.core.judged import Judge
from epymarl_fairtest.engine.selection import real_engine
from epymarl_fairtest.report.scenes import Scene, scene_of
from epymarl_fairtest.settings import Settings
from epymarl_fairtest.store.failures import load_failures
from epymarl_fairtest.store.finished import FinishedRun
from epymarl_fairtest.strategies import configure
from epymarl_fairtest.team.contract import Team
from epymarl_fairtest.team.saved import saved_team, team_folder

MOST_UNFAIR = 5  # failures, where the user names none
Warn = Callable[[str], None]


@dataclass(frozen=True)
class Difference:
    """Where two episodes begin to differ."""

    step: int
    field: str  # states, length, actions or rewards


@dataclass(frozen=True)
class Replayed:
    """The outcome for one failure."""

    id: int
    index: float
    operator: str
    start_step: int
    root_seed: int
    agrees: bool
    differs: Difference | None
    index_now: float | None  # None: nobody received anything


@dataclass(frozen=True)
class Again:
    """Failures that were executed again, row by row."""

    run: FinishedRun
    team: Team
    settings: Settings
    episodes: Episodes  # the replays
    outcomes: list[Replayed]

    def scene(self, row: int) -> Scene:
        """What can be drawn of a replay: where it agrees, of the failure."""
        chosen = self.settings
        return scene_of(self.team.task, self.episodes, row, chosen.index, self.run.theta, chosen.agents)


def replay(
    run: FinishedRun, ids: Sequence[int], warn: Warn, *, policy: Path | None = None, team: Team | None = None
) -> Again:
    """The failures with these ids, or the most unfair ones; of the run's own team, that in `policy`, or `team`."""
    chosen = configure(run.settings)
    judge = Judge(INDICES[chosen.index], run.theta, chosen.agents)
    failures = wanted_failures(run.path, load_failures(run.path / "failures.npz"), ids, judge)
    team = team or team_of_run(run.path, run.manifest, chosen, policy, failures, warn)
    again = executed_again(failures, team, chosen)
    return Again(run, team, chosen, again, compared(failures, again, judge))


def wanted_failures(path: Path, failures: Episodes, ids: Sequence[int], judge: Judge, what: str = "replay") -> Episodes:
    """The failures with these ids, or the most unfair ones."""
    if not len(failures):
        raise FairTestError(f"The run {str(path)!r} found no failures: there is nothing to {what}.")
    if not ids:
        return failures.take(worst(index_of(failures, judge), MOST_UNFAIR, failures.root_seed))
    known = {number: row for row, number in enumerate(failures.id.tolist())}
    for number in ids:
        if number not in known:
            near = sorted(known, key=lambda other: (abs(other - number), other))[:2]
            raise FairTestError(
                f"{number} is not a failure of {str(path)!r}; its {len(known)} failures have ids from {min(known)} to"
                f" {max(known)}, the nearest to it {' and '.join(map(str, sorted(near)))}. The column id of"
                f" {str(path / 'failures.csv')!r} lists them."
            )
    return failures.take([known[number] for number in dict.fromkeys(ids)])


def team_of_run(
    path: Path, manifest: dict[str, Any], chosen: Settings, given: Path | None, failures: Episodes, warn: Warn
) -> Team:
    """The team that was tested, or the one that was asked for, in an environment that the failures fit."""
    folder = team_folder(path, manifest, given)
    team = saved_team(folder, chosen.allocation)
    here = (team.task.name, team.limit, team.task.n_agents, team.policy.n_actions, team.task.state_size)
    there = (manifest["task"], failures.limit, *failures.q.shape[2:], failures.states.shape[-1])
    names = ("task", "time limit", "agents", "actions", "numbers of a state")
    unlike = [f"{name} {a} here and {b} there" for name, a, b in zip(names, here, there, strict=True) if a != b]
    if unlike:
        raise FairTestError(
            f"The team in {str(folder)!r} plays in another environment than {str(path)!r} was made in:"
            f" {', '.join(unlike)}. Give the right folder with --policy."
        )
    if team.origin["policy_digest"] != manifest.get("policy_digest"):
        if given is None:
            raise FairTestError(
                f"The team in {str(folder)!r} is not the one that {str(path)!r} tested (other weights). Give the right"
                " folder with --policy; named there, another team is replayed from the same starts."
            )
        warn(
            f"{str(folder)!r} is another team than {str(path)!r} tested (other weights): it starts where the failures"
            " did and acts by itself."
        )
    return team


def executed_again(failures: Episodes, team: Team, chosen: Settings) -> Episodes:
    real = real_engine(team, chosen)
    again = real.execute(tests_again(failures, real.seen, restorable=team.task.restorable))
    # Where nothing can be restored a replay begins with the first step, whatever was executed then.
    return replace(again, id=failures.id, start_step=failures.start_step)


def index_of(episodes: Episodes, judge: Judge) -> NDArray[np.float64]:
    return judge.index(judge.received(episodes.rewards))


def compared(failures: Episodes, again: Episodes, judge: Judge) -> list[Replayed]:
    same, before, now = agrees(failures, again), index_of(failures, judge), index_of(again, judge)
    return [
        Replayed(
            int(failures.id[row]),
            float(before[row]),
            OPERATORS[failures.operator[row]],
            int(failures.start_step[row]),
            int(failures.root_seed[row]),
            bool(same[row]),
            None if same[row] else first_difference(failures, again, row),
            None if np.isnan(now[row]) else float(now[row]),
        )
        for row in range(len(failures))
    ]


def first_difference(stored: Episodes, again: Episodes, row: int) -> Difference:
    """The first step at which the two, which do differ, are not the same; a state is the one before its step."""
    lengths = int(stored.length[row]), int(again.length[row])
    differences = [(min(lengths), "length")] if lengths[0] != lengths[1] else []
    for name in ("states", "actions", "rewards"):
        unlike = getattr(stored, name)[row] != getattr(again, name)[row]
        if unlike.any():
            differences.append((int(unlike.reshape(len(unlike), -1).any(axis=1).argmax()), name))
    order = ("states", "length", "actions", "rewards")  # within a step, what comes first explains the rest
    return Difference(*min(differences, key=lambda one: (one[0], order.index(one[1]))))
