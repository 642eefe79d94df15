"""`fairtest completion`: completion for the user's shell, written by shtab from fairtest's own parser."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from epymarl_fairtest.core.errors import FairTestError

ORDER = 160
SHELLS = ("bash", "zsh", "fish", "tcsh")


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "completion",
        help="completion for your shell",
        epilog='example: eval "$(fairtest completion bash)" in ~/.bashrc',
    )
    parser.add_argument("shell", metavar="SHELL", help=f"one of {', '.join(SHELLS)}")
    parser.set_defaults(func=completion)


def completion(args: Namespace) -> int:
    import shtab

    from epymarl_fairtest.commands.parser import make_parser

    if args.shell not in SHELLS:
        raise FairTestError(f"There is no completion for {args.shell!r}; there is one for {', '.join(SHELLS)}.")
    print(shtab.complete(make_parser(), args.shell))
    return 0
