"""`fairtest predictor`: how well fairness can be predicted for one team."""

from __future__ import annotations

import json
from argparse import Namespace
from typing import Any

from epymarl_fairtest.commands.arguments import add_team_arguments, settings_for_team, warn
from epymarl_fairtest.core.errors import FairTestError

ORDER = 130


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "predictor",
        help="how well fairness can be predicted for a team: AUC",
        epilog="example: fairtest predictor --policy results/fairtest/RUN/policy --episodes 2500",
    )
    add_team_arguments(parser)
    parser.add_argument("--episodes", type=int, default=2500, help="random executions to learn from (2500)")
    parser.set_defaults(func=predictor)


def predictor(args: Namespace) -> int:
    from epymarl_fairtest.study.predictor import predictor_report
    from epymarl_fairtest.team.saved import saved_team

    args.set = [*args.set, "method=fairtest"]  # whose predictor it is, whatever method is given
    settings = settings_for_team(args)
    if args.episodes < 50:
        raise FairTestError(f"--episodes {args.episodes} is too few to cross-validate; it must be at least 50.")
    report = predictor_report(saved_team(args.policy, settings.allocation), settings, args.episodes, warn)
    print(json.dumps(report.as_dict()) if args.json else str(report))
    return 0
