"""`fairtest repair`: train the team on so that it shares more fairly, beside a control, and say what that was worth.

Exit code 0: repaired. 3: levelled down (the rate falls, the worst-off agent gains nothing). 1: not repaired.
"""

from __future__ import annotations

import json
import shlex
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

from epymarl_fairtest.commands.arguments import (
    add_search_arguments,
    add_team_arguments,
    command_line,
    given_settings,
    observers,
    warn,
)
from epymarl_fairtest.commands.study import seeds_of
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.repair.defaults import EXECUTIONS, MAX_LOSS, SEEDS, SHARE, STEPS, TIMEOUT

ORDER = 107
EXIT = {"repaired": 0, "levelled down": 3, "not repaired": 1}


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "repair",
        help="train a team on so that it shares more fairly, beside a control",
        epilog="example: fairtest repair RUN --out repaired --steps 300000 --seeds 3",
    )
    parser.add_argument("run", type=Path, nargs="?", metavar="RUN", help="finished run whose failures are to go")
    add_team_arguments(parser, required=False)
    add_search_arguments(parser)
    parser.add_argument(
        "--out", dest="folder", type=Path, required=True, metavar="DIR", help="of the repair; continued"
    )
    parser.add_argument("--steps", type=int, default=STEPS, help=f"of training, per arm ({STEPS})")
    parser.add_argument("--welfare", choices=("gini", "jain", "min"), help="what is paid for (measured and explained)")
    parser.add_argument(
        "--weight", type=float, action="append", help="of the welfare; several are tried (the welfare's)"
    )
    parser.add_argument("--share", type=float, default=SHARE, help=f"of the episodes from failing starts ({SHARE})")
    parser.add_argument(
        "--max-loss", type=float, default=MAX_LOSS, metavar="SHARE", help=f"of the return before ({MAX_LOSS})"
    )
    parser.add_argument(
        "--learner",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="its setting for every arm (the team's own)",
    )
    parser.add_argument("--seeds", default=str(SEEDS), help=f"how many, from 0 ({SEEDS}), or which ones: 3,5,7")
    parser.add_argument("--executions", type=int, default=EXECUTIONS, help=f"fresh ones, to judge by ({EXECUTIONS})")
    parser.add_argument("--backend", choices=("processes", "dask", "ray"), default="processes", help="(processes)")
    parser.add_argument("--address", help="of the cluster, e.g. tcp://HOST:8786 (dask) or HOST:6379 (ray)")
    parser.add_argument("--jobs", type=int, help="trainings at a time on this machine (its cores)")
    parser.add_argument("--timeout", type=float, default=TIMEOUT, help=f"seconds to wait for the cluster ({TIMEOUT:g})")
    parser.set_defaults(func=repair)


def repair(args: Namespace) -> int:
    from epymarl_fairtest.api.repairing import Listeners, Request, repaired
    from epymarl_fairtest.repair.words import text_of
    from epymarl_fairtest.settings import parse_assignment

    if (args.run is None) == (args.policy is None):
        raise FairTestError("fairtest repair needs either a finished RUN or --policy DIR, which is searched first.")
    learner = dict(parse_assignment(one, "--learner", "for example --learner lr=0.001") for one in args.learner)
    request = Request(
        args.run, args.policy, args.folder, command_line(), given_settings(args), args.steps, args.welfare,
        tuple(args.weight or ()), args.share, args.max_loss, tuple(seeds_of(args.seeds)), args.executions,
        args.backend, args.address, args.jobs, args.timeout, learner,
    )  # fmt: skip
    try:
        document, files = repaired(request, Listeners(warn, warn, observers))
    except KeyboardInterrupt as stop:
        again = "fairtest " + shlex.join(sys.argv[1:])
        warn(f"stopped; what is finished is kept in {str(args.folder)!r}, and the same command continues: {again}")
        return 128 + int(getattr(stop, "number", 2))
    print(json.dumps(document) if args.json else "\n".join([text_of(document), "", *map(str, files)]))
    return EXIT[document["verdict"]]
