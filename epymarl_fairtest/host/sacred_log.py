"""What a run says to the host's log: numbers for sacred, TensorBoard and W&B, files for the sacred run."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from epymarl_fairtest.campaign.observers import Observer
from epymarl_fairtest.core.files import write_bytes
from epymarl_fairtest.curve.series import FOLDER
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
        for name, file in artifacts(run).items():
            if file == run / PAGE:
                with tempfile.TemporaryDirectory(prefix="fairtest-page-") as folder:
                    copy = Path(folder) / file.name
                    copy.write_bytes(moved_page(file))
                    sacred_run.add_artifact(str(copy), name=name)  # sacred copies it at once
            else:
                sacred_run.add_artifact(str(file), name=name)


class SacredFolder(Observer):
    """A run that is resumed outside of its host: what it leaves goes into the folder of the sacred run, as far as
    files go. Sacred's own metrics and info belong to a run that is over."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def finished(self, run: Path, summary: dict[str, Any], team: Team) -> None:
        for name, file in artifacts(run).items():
            write_bytes(self._folder / name, moved_page(file) if file == run / PAGE else file.read_bytes())


def artifacts(run: Path) -> dict[str, Path]:
    """The files of a run by the names that they have in the sacred run; the kept teams of a training stay there."""
    files = sorted(path for path in run.rglob("*") if path.is_file() and not path.is_symlink())
    files = [file for file in files if file.relative_to(run).parts[0] != FOLDER]
    return {PREFIX + "_".join(file.relative_to(run).parts): file for file in files}


def moved_page(page: Path) -> bytes:
    """Sacred keeps all files in one folder, under other names: the page's links must follow."""
    return page.read_bytes().replace(b'href="../', b'href="' + PREFIX.encode())


def storage_folder(logger: Any) -> Path | None:
    """Where sacred keeps the files of this run; None where it keeps none."""
    observers = getattr(getattr(logger, "_run_obj", None), "observers", ())
    folders = (getattr(observer, "dir", None) for observer in observers)
    return next((Path(folder) for folder in folders if folder), None)


def sacred_folder(run: Path, manifest: Mapping[str, Any]) -> Path | None:
    """The folder of the sacred run that `run` belongs to, if it is still there and looks like one.

    A manifest may come from anywhere: nothing but a sacred run whose configuration asks for FairTest is written to.
    """
    name = manifest.get("sacred")
    folder = Path(os.path.normpath(run.absolute() / name)) if isinstance(name, str) and name else None
    if folder is None or folder.is_symlink() or not (folder / "run.json").is_file():
        return None
    try:
        config = json.loads((folder / "config.json").read_text())
    except (OSError, ValueError):
        return None
    asked = isinstance(config, dict) and (config.get("fairtest") is True or config.get("runner") == "fairtest")
    return folder if asked else None


def scalars(summary: dict[str, Any]) -> dict[str, Any]:
    """The natural rate first: it says how unfair the team is, everything else how the search went."""
    rate, explained = summary["natural_rate"] or {}, summary.get("explain")
    causes = {f"cause_{cause}": count for cause, count in explained["causes"].items()} if explained else {}
    why = (
        {"explained": explained["explained"], **causes, "avoidable_by_one_decision": explained["with_decision"]}
        if explained
        else {}
    )
    return {
        "natural_rate": rate.get("rate"),
        "natural_rate_low": rate.get("low"),
        "natural_rate_high": rate.get("high"),
        **{name: summary[name] for name in COUNTS},
        "search_share": summary["failures"] / max(summary["evaluated"], 1),
        "jfi_min": summary["jfi_quantiles"]["0"],
        "jfi_median": summary["jfi_quantiles"]["0.5"],
        **why,
    }
