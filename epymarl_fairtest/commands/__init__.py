"""The `fairtest` command. One file per command; `parser.py` finds them, `arguments.py` has what they share."""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
from collections.abc import Sequence

from epymarl_fairtest.commands.arguments import as_typed
from epymarl_fairtest.commands.parser import make_parser
from epymarl_fairtest.core.errors import FairTestError

KEPT = 1_000_000  # new objects between two looks for garbage


def main(argv: Sequence[str] | None = None) -> int:
    gc.set_threshold(KEPT)  # imports make millions of objects that stay: looking through them took a second
    atexit.register(gc.freeze)  # nor does the end of the process look through them: what is left goes with it
    parser = make_parser()
    args = parser.parse_args(argv)
    if "func" not in args:
        parser.print_help(sys.stderr)
        return 2
    try:
        code: int = args.func(args)
        return code
    except FairTestError as error:
        print(f"fairtest: {as_typed(str(error), args)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("fairtest: stopped.", file=sys.stderr)
        return 128 + signal.SIGINT
    except BrokenPipeError:  # whoever read the output has seen enough (head, less)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
