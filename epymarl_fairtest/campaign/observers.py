"""Whoever follows a run: the progress bar, the page, a training framework's log."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tqdm import tqdm

from epymarl_fairtest.settings import Settings
from epymarl_fairtest.team.contract import Team

SILENCE = 30.0  # seconds without a line, at least, where there is no terminal

tqdm.monitor_interval = 0  # its thread would show up among the host's


class Observer:
    """Overrides what it wants to hear. It must not change the run."""

    phase = ""  # what its `finished` does, where that takes long; the others hear of it (`doing`)

    def searching(self, settings: Settings) -> None:
        """Everything is prepared, and the search begins."""

    def executed(self, charged: int, failures: int) -> None:
        """So many episodes are charged so far, and so many unfair ones found."""

    def doing(self, phase: str) -> None:
        """A step after the search begins, or something that takes long once the run is complete."""

    def finished(self, run: Path, summary: dict[str, Any], team: Team) -> None:
        """The run folder is complete."""

    def closed(self) -> None:
        """The run is over, however it ended."""


class Progress(Observer):
    """A bar on the terminal; elsewhere (a pipe, a batch job's log) a line every so often."""

    def __init__(self, settings: Settings, *, terminal: bool, say: Callable[[str], None]) -> None:
        self._method, self._budget, self._say = settings.method, settings.budget, say
        self._lines = settings.progress and not terminal
        self._began = self._spoke = time.monotonic()
        self._bar = progress_bar(
            settings.budget, settings.progress and terminal, desc="preparing", unit="episode", leave=False
        )

    def searching(self, settings: Settings) -> None:
        self._began = time.monotonic()
        self._bar.leave = True
        self._bar.unpause()  # the time it took to prepare says nothing about episodes per second
        self._bar.set_description(settings.method)

    def executed(self, charged: int, failures: int) -> None:
        self._bar.set_postfix(failures=failures, refresh=False)
        self._bar.update(charged - self._bar.n)
        if self._silent_for_long():
            passed = time.monotonic() - self._began
            left = duration(passed * max(self._budget - charged, 0) / max(charged, 1))
            self._say(f"FairTest: {charged} of {self._budget} episodes, {failures} unfair; about {left} left.")

    def doing(self, phase: str) -> None:
        self._bar.set_description(phase)
        if self._silent_for_long():
            self._say(f"FairTest: {phase}.")

    def _silent_for_long(self) -> bool:
        now = time.monotonic()
        if not self._lines or now - self._spoke < SILENCE:
            return False
        self._spoke = now
        return True

    def closed(self) -> None:
        self._bar.set_description(self._method)
        self._bar.close()


def duration(seconds: float) -> str:
    """In words, no more exact than it is known."""
    if seconds < 90:
        return f"{max(5, 5 * round(seconds / 5))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{seconds / 3600:.1f} h"


def progress_bar(total: int, shown: bool, **how: Any) -> tqdm[Any]:
    """A bar of tqdm, which by itself shows nothing on a terminal that does not tell its size."""
    if shown and in_notebook():
        from tqdm.auto import tqdm as widget  # a bar of the notebook where it can show one

        return widget(total=total, **how)
    size = shutil.get_terminal_size()
    return tqdm(total=total, disable=not shown, ncols=size.columns, nrows=size.lines, **how)


def in_notebook() -> bool:
    """Does this process answer a notebook?"""
    return "ipykernel" in sys.modules


def beside_the_bar(warn: Callable[[str], None]) -> Callable[[str], None]:
    def warn_beside(message: str) -> None:
        with tqdm.external_write_mode():
            warn(message)

    return warn_beside
