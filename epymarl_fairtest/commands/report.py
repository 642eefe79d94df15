"""`fairtest report RUN`: the page of a finished run, made again from its folder; of several runs, side by side."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

from epymarl_fairtest.core.errors import FairTestError

ORDER = 60
SEVERAL = Path("fairtest-report.html")


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "report",
        help="the page of a finished run: RUN/report/index.html",
        epilog="examples: fairtest report runs/1 --open; fairtest report runs/1 runs/2 --out both.html",
    )
    parser.add_argument(
        "runs", type=Path, nargs="+", metavar="RUN", help="run folder; several: side by side on one page"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="the page of several runs (fairtest-report.html)")
    parser.add_argument("--open", action="store_true", help="show it in a browser")
    parser.set_defaults(func=report)


def report(args: Namespace) -> int:
    from epymarl_fairtest.report.libraries import needed_for

    with needed_for("fairtest report"):
        from epymarl_fairtest.report.page import make_report
        from epymarl_fairtest.report.several import make_side_by_side
    if len(args.runs) == 1 and args.out:
        raise FairTestError("--out is for several runs: the page of one run is RUN/report/index.html.")
    one, *others = args.runs
    path = make_side_by_side(args.runs, args.out or SEVERAL) if others else make_report(one)
    print(path)
    if args.open:
        import webbrowser

        webbrowser.open(path.resolve().as_uri())
    return 0
