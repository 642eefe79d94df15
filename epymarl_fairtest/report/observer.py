"""The page of a run, drawn as soon as the run is complete."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

from epymarl_fairtest.campaign.observers import Observer
from epymarl_fairtest.team.contract import Team


class Page(Observer):
    """A picture must not cost a finished run: what goes wrong is a warning."""

    phase = "drawing the page"

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn

    def finished(self, run: Path, summary: dict[str, Any], team: Team) -> None:
        for library in ("matplotlib", "PIL"):  # EPyMARL logs everything, and these have much to say
            logging.getLogger(library).setLevel(logging.WARNING)
        try:
            from epymarl_fairtest.report.page import make_report

            make_report(run, team.task)
        except Exception as error:
            self._warn(
                f"The run is complete, but its page could not be drawn ({type(error).__name__}: {error})."
                f" Try again with: fairtest report {shlex.quote(str(run))}"
            )
