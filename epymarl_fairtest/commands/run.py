"""`fairtest run`: test a saved team, or resume a run that was interrupted. No training framework is needed."""

from __future__ import annotations

import json
import signal
import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epymarl_fairtest.commands.arguments import (
    add_search_arguments,
    add_team_arguments,
    command_line,
    given_settings,
    observers,
    warn,
)
from epymarl_fairtest.commands.lean import lean_imports
from epymarl_fairtest.core.errors import FairTestError

if TYPE_CHECKING:
    from epymarl_fairtest.api.starting import Started

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
    from epymarl_fairtest.api.starting import begin, begin_again

    with lean_imports():
        if args.resume:
            return _finish(begin_again(args.resume, args.policy, warn), args.json)
        return _finish(begin(args.policy, given_settings(args), command_line()), args.json)


def _finish(started: Started, as_json: bool) -> int:
    from epymarl_fairtest.campaign.summary import summary_table

    try:
        summary = started.finish(warn, observers(started.settings))
    except KeyboardInterrupt as stop:
        warn(started.stopped())
        return 128 + getattr(stop, "number", signal.SIGINT)
    print(json.dumps(summary) if as_json else summary_table(summary, started.folder.path))
    if started.sacred is not None and not as_json:
        print(f"The files of the run were copied into its sacred run, {str(started.sacred)!r}, as fairtest_….")
    return 0
