"""Failures of a finished run, explained: by executing them again with one thing changed. Says and draws nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.api.replaying import team_of_run, wanted_failures
from epymarl_fairtest.campaign.steps.contract import Aftermath, Execute, Outcome, taken
from epymarl_fairtest.campaign.steps.explain import explanations
from epymarl_fairtest.campaign.steps.explain.choosing import different_failures
from epymarl_fairtest.core.episodes import Episodes
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.indices import INDICES
from epymarl_fairtest.core.judged import Judge
from epymarl_fairtest.engine.selection import make_engine, real_engine
from epymarl_fairtest.settings import Settings
from epymarl_fairtest.store.failures import load_failures
from epymarl_fairtest.store.finished import FinishedRun
from epymarl_fairtest.strategies import configure
from epymarl_fairtest.team.contract import Team

UNLESS_GIVEN = 200  # failures, of a run that explained none
Warn = Callable[[str], None]


@dataclass(frozen=True)
class Loaded:
    """Failures as a step after the search asks for them."""

    episodes: Episodes

    def failure_count(self) -> int:
        return len(self.episodes)

    def failures(self, rows: NDArray[np.int64]) -> Episodes:
        return self.episodes.take(rows)


def explain_run(
    run: FinishedRun,
    ids: Sequence[int],
    warn: Warn,
    *,
    policy: Path | None = None,
    team: Team | None = None,
    given: Mapping[str, Any] | None = None,
) -> tuple[Outcome, Team]:
    """The failures with these ids; without any, different ones and what they have in common."""
    settings = configure({**run.settings, "explain": run.settings.get("explain") or UNLESS_GIVEN, **(given or {})})
    if settings.explain == 0:
        raise FairTestError("explain=0 explains nothing; give a number of failures, or all, or leave it out.")
    judge = Judge(INDICES[settings.index], run.theta, settings.agents)
    failures = load_failures(run.path / "failures.npz")
    wanted = wanted_failures(run.path, failures, ids, judge, "explain")  # ids that do not exist are refused
    team = team or team_of_run(run.path, run.manifest, settings, policy, failures, warn)
    if team.origin["policy_digest"] != run.manifest.get("policy_digest"):
        raise FairTestError(
            f"{str(policy)!r} is another team than {str(run.path)!r} tested (other weights): what it would do does not"
            " explain what the other one did. Leave --policy out, or give the team that was tested; for one start of"
            " any team: fairtest explain --policy DIR --seed S."
        )
    unstable = np.isin(failures.id, run.unstable)
    context, execute = aftermath(team, settings, judge, int(run.summary["seed"]), failures, run.executions, warn)
    context = replace(context, uncounted=unstable if unstable.any() else None)
    rows, limit = (np.flatnonzero(np.isin(failures.id, wanted.id)), None) if ids else different_failures(context)
    outcome: Outcome = taken(explanations(context, rows, limit, common=not ids), execute)
    return outcome, team


def aftermath(
    team: Team,
    settings: Settings,
    judge: Judge,
    seed: int,
    failures: Episodes | None,
    executions: Any,
    warn: Warn,
) -> tuple[Aftermath, Callable[[Execute], Episodes]]:
    """What a step after the search may know, and who executes what it asks for."""
    real = real_engine(team, settings)
    engine = make_engine(team, settings, warn, real=real)
    engine.keeps_obs = engine.needs_obs
    recorded: Any = Loaded(failures) if failures is not None else None
    context = Aftermath(
        team, settings, seed, judge, recorded, (0, 0), executions, real.seen, warn, engine.name, engine.needs_obs
    )
    return context, lambda wanted: wanted.by(engine, real)
