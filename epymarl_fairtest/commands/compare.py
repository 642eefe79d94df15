"""`fairtest compare`: is the second of two teams fairer? The table, the figure and the verdict of two finished runs.

More than two runs, or --trade-off: natural rate against return, and who is beaten in both.
"""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

from epymarl_fairtest.core.errors import FairTestError

ORDER = 80
FORMATS = (".png", ".svg", ".pdf")


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "compare",
        help="is the second of two tested teams fairer? What does fairness cost?",
        epilog="example: fairtest compare runs/before runs/after --figure compared.png",
    )
    parser.add_argument("a", type=Path, metavar="RUN_A", help="finished run of the first team")
    parser.add_argument("b", type=Path, metavar="RUN_B", help="finished run of the second team")
    parser.add_argument("more", type=Path, nargs="*", metavar="RUN", help="further runs: rate against return of all")
    parser.add_argument("--trade-off", action="store_true", help="rate against return, of two runs as well")
    parser.add_argument("--theta", type=float, help="judge all runs with this threshold")
    parser.add_argument("--confidence", type=float, default=0.95, help="of the intervals and of the verdict (0.95)")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="draw the comparison: .png, .svg or .pdf")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.set_defaults(func=compare)


def compare(args: Namespace) -> int:
    from epymarl_fairtest.api.comparing import Comparison
    from epymarl_fairtest.api.trade_off import TradeOff
    from epymarl_fairtest.core.files import write_atomically

    if args.figure is not None and (args.figure.suffix not in FORMATS or not args.figure.resolve().parent.is_dir()):
        raise FairTestError(f"--figure {str(args.figure)!r} must be a {', '.join(FORMATS)} in a folder that exists.")
    judging = {"theta": args.theta, "confidence": args.confidence}
    result: Comparison | TradeOff
    if args.trade_off or args.more:
        result = TradeOff.of_runs([args.a, args.b, *args.more], **judging)
    else:
        result = Comparison.of_runs(args.a, args.b, **judging)
    if args.figure is not None:
        drawn = result.drawn(args.figure.suffix[1:])
        write_atomically(args.figure, lambda file: file.write(drawn))
    if args.json:
        print(json.dumps(result.numbers, allow_nan=False))
    else:
        for warning in result.warnings:
            print(f"fairtest: {warning}", file=sys.stderr)
        print(result)
    return 0
