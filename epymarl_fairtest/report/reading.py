"""What a run folder holds, read back for the report. Knows the files and their older formats, judges nothing.

Every .npz may be missing (runs of older versions, or a folder thinned out to save space): `missing` says why.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.errors import FairTestError
from epymarl_fairtest.fairness import totals
from epymarl_fairtest.store.checksum import unsealed, verify
from epymarl_fairtest.store.read import read_arrays, refuse_newer

Columns = dict[str, NDArray[Any]]
SCALARS = ("id", "root_seed", "operator", "parent", "start_step", "length", "index", "status")


@dataclass(frozen=True)
class Record:
    """One finished run."""

    path: Path
    manifest: dict[str, Any]
    summary: dict[str, Any]
    failures: Columns  # one row per failure: SCALARS and `received`; no columns where there is none
    positions_known: bool  # do the failures' states hold anything?
    executions: Columns | None  # one row per judged episode
    evidence: Columns
    missing: dict[str, str]  # file -> why it cannot be shown

    @property
    def settings(self) -> dict[str, Any]:
        found = self.manifest.get("settings")
        return found if isinstance(found, dict) else {}

    @property
    def theta(self) -> float:
        return float(self.summary["theta"])


def read_run(path: Path) -> Record:
    """The run in `path`; refuses what is no run, or an unfinished one."""
    if not (path / "manifest.json").is_file():
        raise FairTestError(f"{str(path)!r} is no FairTest run: it holds no manifest.json. Name a run folder.")
    if not (path / "summary.json").is_file():
        raise FairTestError(
            f"The run {str(path)!r} is not finished: it holds no summary.json yet."
            f" Finish it with: fairtest run --resume {shlex.quote(str(path))}"
        )
    refuse_newer(path)
    manifest, summary = (_json(path / name) for name in ("manifest.json", "summary.json"))
    missing = {}
    for name in ("failures.npz", "executions.npz", "evidence.npz"):
        if not (path / name).is_file():
            missing[name] = _absence(name, manifest)
    failures, known = _failures(path / "failures.npz")
    executions = None if "executions.npz" in missing else read_arrays(path / "executions.npz")
    if executions is not None and "index" not in executions:  # nothing was judged
        executions, missing["executions.npz"] = None, "no episode was judged"
    evidence = {} if "evidence.npz" in missing else read_arrays(path / "evidence.npz")
    return Record(path, manifest, summary, failures, known, executions, evidence, missing)


def _absence(name: str, manifest: dict[str, Any]) -> str:
    if name == "failures.npz":
        return "failures.npz is not in the run folder"
    version = manifest.get("fairtest", "of an older version")
    return f"{name} is not in the run folder: this run (FairTest {version}) did not write it, or it was taken away"


def _json(path: Path) -> dict[str, Any]:
    verify(path)
    try:
        content = path.read_bytes()
        found = json.loads(content)
        if path.name == "manifest.json" and found["format"] >= 3:
            found = unsealed(content)
        if not isinstance(found, dict):
            raise ValueError("not a set of names and values")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise FairTestError(f"{str(path)!r} is damaged ({error}); the report cannot be made.") from error
    return found


def _failures(path: Path) -> tuple[Columns, bool]:
    """The scalar columns of all formats, what each agent received, and whether states were recorded."""
    if not path.is_file():
        return {}, False
    found = read_arrays(path, (*SCALARS, "jfi", "rewards", "initial_state"))
    if not found:
        return {}, False
    found.setdefault("index", found["jfi"])  # format 1: `jfi` held the chosen index
    found.setdefault("status", np.full(len(found["id"]), "unchecked"))
    columns = {name: found[name] for name in SCALARS}
    return columns | {"received": totals(found["rewards"])}, found["initial_state"].shape[1] > 0
