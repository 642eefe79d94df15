"""The host's console: is it a terminal, who may write to it, and what stands there last.

Sacred captures the standard streams while the host runs, so the first is asked before, and the last printed after.
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

CHATTY = ("numba", "matplotlib", "PIL", "joblib", "asyncio", "filelock", "distributed", "dask", "ray", "fsspec", "h5py")
"""Libraries that FairTest uses and that write for their own developers, numba some 64,000 lines: EPyMARL logs all."""

_terminal = False
_later: list[str] | None = None  # what is to be said last; None: nobody will, so at once
_signal: list[int] = []  # what stopped the test


@contextmanager
def last_words() -> Iterator[None]:
    """While the host runs; what `say_last` was given is printed after it, and a test that was stopped ends so."""
    global _terminal, _later
    _terminal, _later = sys.stderr.isatty(), []
    _signal.clear()
    try:
        yield
    finally:
        said, _later = _later, None
        for text in said:
            print(text, flush=True)
    if _signal:  # not before: the host has written everything, and sacred calls the run completed
        sys.exit(128 + _signal[0])


def say_last(text: str) -> None:
    """After the host's last words, which would push it out of sight."""
    if _later is None:
        print(text, flush=True)
    else:
        _later.append(text)


def exit_as_stopped(number: int) -> None:
    """When the host is done, the process ends as one that this signal stopped."""
    _signal.append(number)


def on_terminal() -> bool:
    """Was the host started on one? No terminal if nobody asked."""
    return _terminal


def quieten() -> None:
    """Libraries say what is wrong and nothing else, unless the user has chosen a level for them."""
    for name in CHATTY:
        log = logging.getLogger(name)
        if log.level == logging.NOTSET:
            log.setLevel(logging.WARNING)


@contextmanager
def warning_nobody() -> Iterator[None]:
    """Warnings in here are not shown.

    Not by `catch_warnings`: it makes Python forget which warnings were shown already, and after every point of a
    fairness curve all of the host's would come again.
    """
    shown = warnings.showwarning
    warnings.showwarning = lambda *_, **__: None
    try:
        yield
    finally:
        warnings.showwarning = shown
