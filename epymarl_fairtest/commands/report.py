"""`fairtest report RUN`: the page of a finished run, made again from its folder."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

ORDER = 60


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "report",
        help="the page of a finished run: RUN/report/index.html",
        epilog="example: fairtest report runs/1 --open",
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="run folder")
    parser.add_argument("--open", action="store_true", help="show it in a browser")
    parser.set_defaults(func=report)


def report(args: Namespace) -> int:
    from epymarl_fairtest.report.libraries import needed_for

    with needed_for("fairtest report"):
        from epymarl_fairtest.report.page import make_report
    path = make_report(args.run)
    print(path)
    if args.open:
        import webbrowser

        webbrowser.open(path.resolve().as_uri())
    return 0
