"""Looking for failures again: a fresh search of a repaired team, and its old failures played once more."""

from __future__ import annotations

import shutil
import traceback
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from epymarl_fairtest.campaign.run import run
from epymarl_fairtest.core.episodes import replay_tests, tests_from_seeds
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.curve.point import curve_judge
from epymarl_fairtest.engine.lockstep import Lockstep
from epymarl_fairtest.engine.selection import make_engine
from epymarl_fairtest.repair.contract import Starts
from epymarl_fairtest.settings import Settings
from epymarl_fairtest.store.failures import load_failures
from epymarl_fairtest.store.finished import read_summary
from epymarl_fairtest.store.run import RunFolder
from epymarl_fairtest.team.saved import saved_team

COUNTED = ("failures", "distinct_failures", "distinct_starts", "roots")
MOST = 1000  # old failures that are played again


@dataclass(frozen=True, eq=False)
class Search:
    """A search of one team with the settings of the run before, as a job."""

    name: str
    folder: Path
    policy: Path
    settings: Settings
    failures: Path  # failures.npz of the run before

    def __str__(self) -> str:
        return self.name


def run_search(search: Search) -> dict[str, Any]:
    """Search and play again; an error is returned, not raised."""
    try:
        summary = searched(search)
        counts = {name: summary.get(name) for name in COUNTED}
        return {"search": counts, "regression": played_again(search.policy, search.settings, search.failures)}
    except FairTestError as error:
        return {"error": str(error)}
    except Exception:
        return {"error": traceback.format_exc()}


def searched(search: Search) -> dict[str, Any]:
    """The summary of the search; one that was interrupted goes on."""
    if (search.folder / "summary.json").is_file():
        return read_summary(search.folder)
    settings = replace(search.settings, report=False, explain=0, replay=0, natural_episodes=0, random_team=0)
    folder: RunFolder | None = None
    if (search.folder / "manifest.json").is_file():
        try:
            folder = RunFolder.resume(search.folder)
        except FairTestError:
            folder = None
    if folder is None:
        shutil.rmtree(search.folder, ignore_errors=True)
        folder = RunFolder(search.folder)
    team = saved_team(search.policy, settings.allocation)
    command = f"fairtest repair: search of {search.name}"
    return run(team, settings, folder, seed=settings.root_seed(), command=command, warn=lambda message: None)


def played_again(policy: Path, settings: Settings, failures: Path) -> dict[str, int]:
    """How many of the old failures are unfair with this team: same starts, same exploration, its own decisions."""
    team = saved_team(policy, settings.allocation)
    engine = make_engine(team, settings, lambda message: None)
    old = load_failures(failures)
    old = old.take(slice(0, MOST))
    if not len(old):
        return {"failures": 0, "unfair": 0}
    if team.task.restorable:
        tests = replay_tests(engine.seen(old) if isinstance(engine, Lockstep) else old)
        tests.forced = None  # what the search forced the old team to do is not this team's
    else:
        tests = tests_from_seeds(old.root_seed, old.stream, team.task.state_size)
    judged = curve_judge(settings, team.task)(engine.execute(tests))
    return {"failures": len(old), "unfair": int(judged.unfair.sum())}


def starts_of(failures: Path, restorable: bool) -> Starts:
    """Where the failures of a run began, each start once."""
    old = load_failures(failures)
    if not len(old):
        return Starts(np.empty((0, 0)), np.empty(0, np.int64))
    states = old.states[:, 0] if restorable else np.empty((len(old), 0))
    _, first = np.unique(np.column_stack([old.root_seed.astype(np.float64), states]), axis=0, return_index=True)
    first.sort()
    return Starts(states[first], old.root_seed[first])
