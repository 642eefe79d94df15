"""`fairtest launch -- src/main.py …`: a host's own command with FairTest attached, no file edited."""

from __future__ import annotations

import argparse
from typing import Any

ORDER = 30
EXAMPLE = "fairtest launch -- src/main.py --config=qmix --env-config=fairtest_lbf with fairtest=True t_max=20000"


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "launch", help="run a training command with FairTest attached, editing nothing", epilog=f"example: {EXAMPLE}"
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, help="-- src/main.py … or -- pymarlzooplus.main …")
    parser.set_defaults(func=launch)


def launch(args: argparse.Namespace) -> int:
    from epymarl_fairtest.host.launch import launch

    return launch(args.command)
