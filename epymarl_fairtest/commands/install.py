"""`fairtest install`: make an EPyMARL checkout know `fairtest=True`, show its state, or restore every byte."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import Any

from epymarl_fairtest.core.checkout import known_checkout, registered
from epymarl_fairtest.core.errors import FairTestError

ORDER = 20


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "install",
        help="make an EPyMARL checkout know fairtest=True",
        description="Adds FairTest's hook and two repairs to an EPyMARL checkout, and its task settings to "
        "src/config/envs. --uninstall restores every byte.",
        epilog="example:\n"
        "  fairtest install ~/epymarl\n"
        "  cd ~/epymarl && python src/main.py --config=iql --env-config=gymma with fairtest=True ...",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("checkout", metavar="CHECKOUT", nargs="?", help="the EPyMARL folder (default: the one in use)")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--check", action="store_true", help="only show the state; exit code 1 unless installed")
    mode.add_argument("--uninstall", action="store_true", help="restore the checkout")
    parser.set_defaults(func=install_checkout)


def install_checkout(args: argparse.Namespace) -> int:
    from epymarl_fairtest.host.install import install, state, uninstall

    checkout = Path(args.checkout) if args.checkout else known_checkout()
    if checkout is None:
        raise FairTestError(
            "No CHECKOUT was given and none is known; name the EPyMARL folder: fairtest install CHECKOUT"
        )
    if args.check:
        report = state(checkout)
        print(report)
        return 0 if report.state == "installed" else 1
    if args.uninstall:
        print(uninstall(checkout))
        return 0
    before = registered()
    report = install(checkout)
    print(report)
    if before is not None and before != report.checkout:
        print(f"This is now the checkout that commands use unless told otherwise; before, it was {before}.")
    print(
        f"Next: cd {shlex.quote(str(report.checkout))} &&"
        " python src/main.py --config=qmix --env-config=fairtest_lbf with fairtest=True t_max=50000"
    )
    return 0
