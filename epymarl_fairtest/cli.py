"""The `fairtest` command."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from epymarl_fairtest import __version__
from epymarl_fairtest.errors import FairTestError


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    try:
        return args.func(args)
    except FairTestError as error:
        print(f"fairtest: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    from epymarl_fairtest.demo import add_demo_parser
    from epymarl_fairtest.host.doctor import add_doctor_parser
    from epymarl_fairtest.host.install import add_install_parser
    from epymarl_fairtest.host.launch import add_launch_parser

    parser = argparse.ArgumentParser(
        prog="fairtest", description="Does a trained MARL team share its rewards fairly?"
    )
    parser.add_argument("--version", action="version", version=f"fairtest {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    add_demo_parser(commands)
    add_install_parser(commands)
    add_launch_parser(commands)
    _add_run_parser(commands)
    add_doctor_parser(commands)
    return parser


def _add_run_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "run",
        help="test a saved team, no training framework needed",
        epilog="example: fairtest run --policy results/fairtest/RUN/policy --method random --budget 1000 --out runs/1",
    )
    parser.add_argument("--policy", type=Path, required=True, metavar="DIR", help="agent.th and policy.yaml")
    parser.add_argument("--out", required=True, metavar="RUN", help="run folder to make")
    for name, kind, text in (
        ("method", str, "strategy that chooses the tests"),
        ("budget", int, "episodes it may spend"),
        ("seed", int, "root seed"),
        ("preset", str, "quick, paper or strict"),
    ):
        parser.add_argument(f"--{name}", type=kind, help=text)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="any other setting")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    parser.set_defaults(func=_run)


def _run(args: argparse.Namespace) -> int:
    import torch

    from epymarl_fairtest.config import parse_assignment, settings
    from epymarl_fairtest.run import check_method, run, summary_table
    from epymarl_fairtest.store.run import RunFolder
    from epymarl_fairtest.subject import saved_subject

    given = dict(parse_assignment(text) for text in args.set)
    for name in ("method", "budget", "seed", "preset", "out"):
        if getattr(args, name) is not None:
            given[name] = getattr(args, name)
    chosen = settings(given)
    check_method(chosen)
    torch.set_num_threads(1)
    subject = saved_subject(args.policy, given.get("allocation"))
    out = Path(args.out)
    summary = run(
        subject,
        chosen,
        RunFolder(out),
        seed=chosen.seed or 0,
        command=" ".join(["fairtest", *sys.argv[1:]]),
        terminal=sys.stderr.isatty(),
        warn=lambda message: print(f"fairtest: {message}", file=sys.stderr),
    )
    print(json.dumps(summary) if args.json else summary_table(summary, out))
    return 0
