"""Was the host started on a terminal? Sacred captures the standard streams, so this is asked before it does."""

import sys

_terminal = False


def ask() -> None:
    """Look at the standard streams now."""
    global _terminal
    _terminal = sys.stderr.isatty()


def on_terminal() -> bool:
    """What `ask` saw; no terminal if nobody asked."""
    return _terminal
