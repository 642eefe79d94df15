"""Whoever follows a run: the progress bar, the page, a training framework's log."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tqdm import tqdm

from epymarl_fairtest.settings import Settings
from epymarl_fairtest.team.contract import Team

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
    """A bar on the terminal."""

    def __init__(self, settings: Settings, *, terminal: bool) -> None:
        self._method = settings.method
        self._bar = progress_bar(
            settings.budget, settings.progress and terminal, desc="preparing", unit="episode", leave=False
        )

    def searching(self, settings: Settings) -> None:
        self._bar.leave = True
        self._bar.unpause()  # the time it took to prepare says nothing about episodes per second
        self._bar.set_description(settings.method)

    def executed(self, charged: int, failures: int) -> None:
        self._bar.set_postfix(failures=failures, refresh=False)
        self._bar.update(charged - self._bar.n)

    def doing(self, phase: str) -> None:
        self._bar.set_description(phase)

    def closed(self) -> None:
        self._bar.set_description(self._method)
        self._bar.close()


def progress_bar(total: int, shown: bool, **how: Any) -> tqdm[Any]:
    """A bar of tqdm, which by itself shows nothing on a terminal that does not tell its size."""
    size = shutil.get_terminal_size()
    return tqdm(total=total, disable=not shown, ncols=size.columns, nrows=size.lines, **how)


def beside_the_bar(warn: Callable[[str], None]) -> Callable[[str], None]:
    def warn_beside(message: str) -> None:
        with tqdm.external_write_mode():
            warn(message)

    return warn_beside
