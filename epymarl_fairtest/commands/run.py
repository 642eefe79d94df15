"""`fairtest run`: test a saved team, or resume a run that was interrupted. No training framework is needed."""

from __future__ import annotations

import json
import signal
import sys
from argparse import Namespace
from datetime import date
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epymarl_fairtest.commands.arguments import (
    add_search_arguments,
    add_team_arguments,
    checked_team,
    command_line,
    observers,
    settings_for_team,
    warn,
)
from epymarl_fairtest.core.errors import FairTestError

if TYPE_CHECKING:
    from epymarl_fairtest.settings import Settings
    from epymarl_fairtest.store.run import RunFolder
    from epymarl_fairtest.team.contract import Team

ORDER = 40


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "run",
        help="test a saved team, no training framework needed",
        epilog="example: fairtest run --policy results/fairtest/RUN/policy --budget 2000 --out runs/1",
    )
    add_team_arguments(parser, required=False)
    parser.add_argument("--out", metavar="RUN", help="run folder to make (default: runs/TEAM-DATE)")
    parser.add_argument("--resume", type=Path, metavar="RUN", help="resume an interrupted run with its own settings")
    add_search_arguments(parser)
    parser.set_defaults(func=run)


def run(args: Namespace) -> int:
    if not args.resume and not args.policy:
        raise FairTestError("fairtest run needs --policy DIR, or --resume RUN.")
    if sys.stderr.isatty():
        warn("loading the team")  # the imports take seconds
    return _resume(args) if args.resume else _begin(args)


def _begin(args: Namespace) -> int:
    from epymarl_fairtest.store.run import RunFolder

    settings = settings_for_team(args)
    team = checked_team(args.policy, settings)
    out = Path(settings.out) if settings.out else unused_folder(args.policy)
    return _execute(team, settings, RunFolder(out), settings.root_seed(), command_line(), args.json)


def unused_folder(policy: Path) -> Path:
    """runs/TEAM-DATE, numbered where that is taken; the team of a run, RUN/policy, is called by its run."""
    folder = policy.resolve()
    team = folder.parent.name if folder.name == "policy" else folder.name
    names = (f"{team}-{date.today()}" + (f"-{number}" if number > 1 else "") for number in count(1))
    return next(path for path in (Path("runs") / name for name in names) if not path.exists())


def _resume(args: Namespace) -> int:
    """Continue an interrupted run with its own settings: it ends as if nothing had happened."""
    from epymarl_fairtest.host.sacred_log import sacred_folder
    from epymarl_fairtest.store.run import RunFolder
    from epymarl_fairtest.strategies import configure
    from epymarl_fairtest.team.checkpoint import differences
    from epymarl_fairtest.team.saved import saved_team, team_folder

    folder = RunFolder.resume(args.resume, warn)
    manifest = folder.manifest()
    settings = configure(manifest["settings"])
    policy = team_folder(folder.path, manifest, args.policy)
    team = saved_team(policy, settings.allocation)
    unlike = differences(manifest, {"task": team.task.name, **team.origin})
    if unlike:
        raise FairTestError(
            f"The team in {str(policy)!r} is not the one that {str(folder.path)!r} tested ({'; '.join(unlike)})."
            " Give the right folder with --policy."
        )
    sacred = sacred_folder(folder.path, manifest)
    code = _execute(team, settings, folder, manifest["seed"], manifest["command"], args.json, sacred)
    if code == 0 and sacred is not None and not args.json:
        print(f"The files of the run were copied into its sacred run, {str(sacred)!r}, as fairtest_….")
    return code


def _execute(
    team: Team,
    settings: Settings,
    folder: RunFolder,
    seed: int,
    command: str,
    as_json: bool,
    sacred: Path | None = None,
) -> int:
    from epymarl_fairtest.campaign.run import resume_command, run, stopped
    from epymarl_fairtest.campaign.summary import summary_table
    from epymarl_fairtest.core.stopping import stoppable
    from epymarl_fairtest.host.sacred_log import SacredFolder

    listening = [*observers(settings), *([] if sacred is None else [SacredFolder(sacred)])]
    try:
        with stoppable():
            summary = run(team, settings, folder, seed=seed, command=command, warn=warn, observers=listening)
    except KeyboardInterrupt as stop:
        warn(stopped(folder, settings))
        return 128 + getattr(stop, "number", signal.SIGINT)
    except FairTestError as error:
        if not folder.path.exists():
            raise
        raise FairTestError(f"{error} What was found before is kept; resume with: {resume_command(folder)}") from error
    print(json.dumps(summary) if as_json else summary_table(summary, folder.path))
    return 0
