"""A run from its first check to its summary: what `fairtest run`, `fairtest gate` and Python share.

Whatever can be refused is refused before the run folder is made.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import count
from pathlib import Path
from typing import Any

from epymarl_fairtest.campaign.observers import Observer
from epymarl_fairtest.campaign.run import resume_command, run, stopped
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.shipped import team_folder as place_of
from epymarl_fairtest.core.stopping import stoppable
from epymarl_fairtest.host.sacred_log import SacredFolder, sacred_folder
from epymarl_fairtest.settings import Settings
from epymarl_fairtest.store.run import RunFolder
from epymarl_fairtest.strategies import configure, strategy_of
from epymarl_fairtest.team.checkpoint import differences, load_record
from epymarl_fairtest.team.contract import Team
from epymarl_fairtest.team.saved import saved_team, team_folder

Warn = Callable[[str], None]


@dataclass(frozen=True)
class Started:
    """A run whose folder exists and whose search has not begun."""

    team: Team
    settings: Settings
    folder: RunFolder
    seed: int
    command: str
    sacred: Path | None = None  # the sacred run that also gets the files

    def finish(self, warn: Warn, observers: Sequence[Observer]) -> dict[str, Any]:
        """Search, and take the steps after it; the summary. What was found before an error or a signal is kept."""
        everyone = [*observers, *([] if self.sacred is None else [SacredFolder(self.sacred)])]
        try:
            with stoppable():
                return run(
                    self.team,
                    self.settings,
                    self.folder,
                    seed=self.seed,
                    command=self.command,
                    warn=warn,
                    observers=everyone,
                )
        except FairTestError as error:
            if not self.folder.path.exists():
                raise
            resume = resume_command(self.folder)
            raise FairTestError(f"{error} What was found before is kept; resume with: {resume}") from error

    def stopped(self) -> str:
        """What an interrupted run has found, and how to resume it."""
        return stopped(self.folder, self.settings)


def settings_for(policy: Path, given: Mapping[str, Any]) -> Settings:
    """The settings of whoever tests the team in `policy`; the team's allocation unless another is given."""
    return configure({"allocation": load_record(place_of(policy)).allocation, **given})


def checked_team(policy: Path, settings: Settings) -> Team:
    """The team, once everything that can be refused about the method has been checked."""
    strategy_of(settings).check_settings(settings)
    team = saved_team(place_of(policy), settings.allocation)
    strategy_of(settings).check_settings(settings, team.task)
    return team


def begin(policy: Path, given: Mapping[str, Any], command: str) -> Started:
    """A run of the team in this folder."""
    settings = settings_for(policy, given)
    return begin_with(checked_team(policy, settings), settings, command, policy)


def begin_with(team: Team, settings: Settings, command: str, called: Path) -> Started:
    """A run of a team that is at hand; where no folder is given for it, it is called after `called`."""
    out = Path(settings.out) if settings.out else unused_folder(called)
    refuse_unusable(out)
    return Started(team, settings, RunFolder(out), settings.root_seed(), command)


def refuse_unusable(out: Path) -> None:
    """A name that no folder can have, or one below a file."""
    try:
        os.lstat(out)
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise FairTestError(
            f"fairtest_args.out={str(out)!r} cannot be a folder ({why}). Choose another one."
        ) from error


def unused_folder(policy: Path) -> Path:
    """runs/TEAM-DATE, numbered where that is taken; the team of a run, RUN/policy, is called by its run."""
    folder = policy.resolve()
    team = folder.parent.name if folder.name == "policy" else folder.name
    names = (f"{team}-{date.today()}" + (f"-{number}" if number > 1 else "") for number in count(1))
    return next(path for path in (Path("runs") / name for name in names) if not path.exists())


def begin_again(path: Path, given_policy: Path | None, warn: Warn) -> Started:
    """An interrupted run with its own settings: it ends as if nothing had happened."""
    folder = RunFolder.resume(path, warn)
    manifest = folder.manifest()
    settings = configure(manifest["settings"])
    policy = team_folder(folder.path, manifest, given_policy)
    team = saved_team(policy, settings.allocation)
    unlike = differences(manifest, {"task": team.task.name, **team.origin})
    if unlike:
        raise FairTestError(
            f"The team in {str(policy)!r} is not the one that {str(folder.path)!r} tested ({'; '.join(unlike)})."
            " Give the right folder with --policy."
        )
    return Started(team, settings, folder, manifest["seed"], manifest["command"], sacred_folder(folder.path, manifest))
