"""What a run says to the host's log: numbers for sacred, TensorBoard and W&B, files for the sacred run."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from epymarl_fairtest.campaign.observers import Observer
from epymarl_fairtest.team.contract import Team

COUNTS = (
    "failures", "unique_failures", "distinct_failures", "distinct_failures_wide", "distinct_starts", "roots",
    "undefined", "evaluated", "coverage", "charged_strict", "charged_paper", "executed_steps",
)  # fmt: skip
PREFIX = "fairtest_"  # of artifacts
PAGE = Path("report", "index.html")


class SacredLog(Observer):
    """Speaks through the host's own logger; a fork without sacred gets the numbers alone."""

    def __init__(self, logger: Any, t_env: int, *, info: bool) -> None:
        """`info`: may the summary go into sacred's info? A host may draw every entry of it, and stop at one that is
        no curve."""
        self._logger, self._t_env, self._info = logger, t_env, info

    def finished(self, run: Path, summary: dict[str, Any], team: Team) -> None:
        for name, value in scalars(summary).items():
            if value is not None:
                self._logger.log_stat(f"fairtest_{name}", value, self._t_env)
        sacred_run = getattr(self._logger, "_run_obj", None)
        if sacred_run is None:
            return
        if self._info:
            sacred_run.info["fairtest"] = summary
        for file in sorted(path for path in run.rglob("*") if path.is_file()):
            name = PREFIX + "_".join(file.relative_to(run).parts)
            if file.relative_to(run) == PAGE:
                self._add_page(sacred_run, file, name)
            else:
                sacred_run.add_artifact(str(file), name=name)

    def _add_page(self, sacred_run: Any, page: Path, name: str) -> None:
        """Sacred keeps all files in one folder, under other names: the page's links must follow."""
        with tempfile.TemporaryDirectory(prefix="fairtest-page-") as folder:
            copy = Path(folder) / page.name
            copy.write_bytes(page.read_bytes().replace(b'href="../', b'href="' + PREFIX.encode()))
            sacred_run.add_artifact(str(copy), name=name)  # sacred copies it at once


def scalars(summary: dict[str, Any]) -> dict[str, Any]:
    """The natural rate first: it says how unfair the team is, everything else how the search went."""
    rate = summary["natural_rate"] or {}
    return {
        "natural_rate": rate.get("rate"),
        "natural_rate_low": rate.get("low"),
        "natural_rate_high": rate.get("high"),
        **{name: summary[name] for name in COUNTS},
        "search_share": summary["failures"] / max(summary["evaluated"], 1),
        "jfi_min": summary["jfi_quantiles"]["0"],
        "jfi_median": summary["jfi_quantiles"]["0.5"],
    }
