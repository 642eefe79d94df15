"""Ctrl-C and SIGTERM stop a run: at once where they can, else after the batch. Knows no run.

What a signal raises inside a library may be swallowed there (one in some hundreds was): so it is remembered.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any

_came: list[int] = []  # since `stoppable` began


class Stopped(KeyboardInterrupt):
    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Both signals raise Stopped in here, unless the process ignores them (nohup)."""
    if threading.current_thread() is not threading.main_thread():  # only that one may say what a signal does
        yield
        return
    _came.clear()
    heard = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) is not signal.SIG_IGN]
    before = [(number, signal.signal(number, _stop)) for number in heard]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)
        _came.clear()


def _stop(number: int, _: Any) -> None:
    _came.append(number)
    raise Stopped(number)


def check() -> None:
    """Stop now if a signal came and nothing has stopped."""
    if _came:
        raise Stopped(_came[0])
