"""A finished run, read back: the one way in for the report and for every command on a run. Decides nothing itself.

What is damaged or contradicts itself is refused, whoever asks. What is not there is listed (`missing`): a study keeps
few files, and a folder may have been thinned out. Whoever cannot do without a file names it.
"""

from __future__ import annotations

import csv
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.judged import totals
from epymarl_fairtest.settings import FIELDS, TEXT, Rule, between, whole
from epymarl_fairtest.store.checksum import unseal, verify
from epymarl_fairtest.store.read import (
    damaged,
    read_arrays,
    read_json,
    refuse_missing,
    refuse_odd_columns,
    refuse_odd_manifest,
    refuse_odd_summary,
    refuse_other_formats,
)

COUNTS = ("evaluated", "failures", "distinct_failures", "roots", "undefined", "unstable_failures")
SUMMARY = dict.fromkeys(COUNTS, whole(0)) | {"coverage": between(0, 1), "theta": between(0, 1), "method": TEXT}
NEEDED = ("index", "allocation", "execution", "epsilon", "temperature", "budget", "accounting")  # settings
SETTINGS: dict[str, Rule] = {name: FIELDS[name].metadata["rule"] for name in NEEDED}
SCALARS = ("id", "root_seed", "operator", "parent", "start_step", "length", "index")
FAILURES = (*SCALARS, "status", "rewards", "initial_state")
OPTIONAL = ("failures.npz", "executions.npz", "evidence.npz")
WHY_ABSENT = "a study keeps it only with --keep-failures, or it was deleted"
RENAMED = {"confirmation": "splice"}  # purposes that had another name in earlier runs of this format
RANDOM = {"predictor", "candidate"}  # purposes of random executions, for earlier runs without the column `random`
Columns = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class FinishedRun:
    """What was asked, what was counted, and one row per judged episode."""

    path: Path
    manifest: dict[str, Any]
    summary: dict[str, Any]
    executions: Columns  # SCALARS, purpose and received (n, agents); no rows where `missing` names the file
    unstable: list[int]  # failures that did not come out the same in the real environment
    missing: dict[str, str]  # file -> why there is nothing to show

    @property
    def settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = self.manifest["settings"]
        return settings

    @property
    def theta(self) -> float:
        return float(self.summary["theta"])

    @cached_property
    def failures(self) -> Columns:
        """SCALARS, status, initial_state and received; no columns where there is no failure."""
        path = self.path / "failures.npz"
        columns = read_arrays(path, FAILURES) if path.is_file() else {}
        if not columns:
            return {}
        fits = columns.keys() == set(FAILURES) and {one.shape[:1] for one in columns.values()} == {columns["id"].shape}
        if not fits or (columns["rewards"].ndim, columns["initial_state"].ndim) != (3, 2):
            raise damaged(path, "its columns do not hold failures")
        refuse_odd_columns(path, columns)
        columns["received"] = totals(columns.pop("rewards"))
        return columns

    @property
    def positions_known(self) -> bool:
        """Do the failures' states hold anything?"""
        return bool(self.failures) and self.failures["initial_state"].shape[1] > 0

    @cached_property
    def evidence(self) -> Columns:
        """What the method kept."""
        return {} if "evidence.npz" in self.missing else read_arrays(self.path / "evidence.npz")

    @property
    def rounds(self) -> list[int]:
        """Of the search, as far as their candidates are on record."""
        return sorted(int(name.split("_")[1]) for name in self.evidence if name.endswith("_candidates_scores"))

    @cached_property
    def random(self) -> NDArray[np.bool_]:
        """Which executions were random: only these show how often the team is unfair when nobody searches for it."""
        random: NDArray[np.bool_] = self.executions["random"]
        return random

    def unfair(self, theta: float | None = None) -> NDArray[np.bool_]:
        """Which executions were unfair; unstable ones are not counted, as in the summary."""
        unfair = self.executions["index"] <= (self.theta if theta is None else theta)
        return unfair & ~np.isin(self.executions["id"], self.unstable)

    def natural(self, theta: float | None = None) -> tuple[int, int]:
        """How many random executions are unfair (none in which nobody received anything), and how many there are."""
        if not self.random.any():
            raise FairTestError(
                f"The run {str(self.path)!r} (method {self.summary['method']!r}) holds no random executions, so"
                " nothing is known about the natural failure rate. Test the team with a method that makes some, e.g."
                " method=random."
            )
        return int((self.unfair(theta) & self.random).sum()), int(self.random.sum())


def read_run(path: Path, *needed: str) -> FinishedRun:
    """The finished search in `path`, with the files that are `needed`."""
    refuse_missing(path)
    if not (path / "manifest.json").is_file():
        raise FairTestError(f"{str(path)!r} is not a run: it holds no manifest.json. Name a run's own folder.")
    manifest = read_manifest(path)
    if not (path / "summary.json").is_file():
        raise FairTestError(
            f"The run {str(path)!r} is not finished: it holds no summary.json. Resume it first: fairtest run --resume"
            f" {shlex.quote(str(path))}"
        )
    summary = read_summary(path)
    if summary["method"] == "predictor":
        raise FairTestError(f"{str(path)!r} is not a search: a study of the predictor (rq3a) judges no team.")
    _check(path / "manifest.json", manifest["settings"], SETTINGS)
    absent = [name for name in OPTIONAL if not (path / name).is_file()]
    for name in needed:
        if name in absent:
            raise FairTestError(f"{str(path / name)!r} is missing: {WHY_ABSENT}. Run it again.")
    missing = {name: f"{name} is not in the run folder: {WHY_ABSENT}" for name in absent}
    judged = 0 if "executions.npz" in absent else summary["evaluated"]
    executions = _read_executions(path / "executions.npz", judged, summary["method"])
    if not judged:
        missing.setdefault("executions.npz", "no episode was judged")
    unstable = _read_unstable(path / "failures.csv") if summary.get("unstable_failures") else []
    run = FinishedRun(path, manifest, summary, executions, unstable, missing)
    counted = {"failures": run.unfair(), "undefined": np.isnan(executions["index"])} if judged else {}
    for name, rows in counted.items():
        if rows.sum() != summary[name]:
            raise damaged(path, f"executions.npz has {rows.sum()} {name}, summary.json says {summary[name]}")
    return run


def read_manifest(path: Path) -> dict[str, Any]:
    refuse_other_formats(path)
    manifest = _read_verified(path / "manifest.json")
    if not isinstance(manifest.get("settings"), dict) or not TEXT.holds(manifest.get("task")):
        raise damaged(path / "manifest.json", "it does not name the task and the settings")
    refuse_odd_manifest(path / "manifest.json", manifest)
    return manifest


def read_summary(path: Path) -> dict[str, Any]:
    """The summary of a search, or that of a study of the predictor, which counts nothing."""
    verify(path / "summary.json")
    summary = _read_verified(path / "summary.json")
    refuse_odd_summary(path / "summary.json", summary)
    if summary.get("method") != "predictor":
        _check(path / "summary.json", summary, SUMMARY)
        ledger = summary.get("ledger") or {}
        summary["ledger"] = {RENAMED.get(purpose, purpose): spent for purpose, spent in ledger.items()}
    return summary


def _read_verified(path: Path) -> dict[str, Any]:
    """A JSON object; its own checksum must match where it has one."""
    value = read_json(path)
    try:
        return unseal(value) if "crc" in value else value
    except ValueError as error:
        raise damaged(path, error) from error


def _check(path: Path, values: Mapping[str, Any], rules: Mapping[str, Rule]) -> None:
    wrong = [f"{name}={values.get(name)!r}" for name, rule in rules.items() if not rule.holds(values.get(name))]
    if wrong:
        raise damaged(path, "it says " + ", ".join(wrong))


def _read_executions(path: Path, judged: int, method: str) -> Columns:
    names = (*SCALARS, "purpose", "random", "received")
    columns = read_arrays(path) if path.is_file() else {}
    refuse_odd_columns(path, columns)
    if not columns and not judged:  # nothing was executed: no columns either
        columns = {name: np.empty(0) for name in names} | {"random": np.empty(0, bool), "received": np.empty((0, 0))}
    if "purpose" in columns:
        purposes = columns["purpose"].tolist()
        columns["purpose"] = np.array([RENAMED.get(purpose, purpose) for purpose in purposes], np.str_)
        columns.setdefault("random", np.array([method == "random" or purpose in RANDOM for purpose in purposes], bool))
    shapes = {name: columns[name].shape for name in names if name in columns}
    whole = len(shapes) == len(names) and {shape[:1] for shape in shapes.values()} == {(judged,)}
    if not whole or len(shapes["received"]) != 2 or columns["index"].dtype != np.float64:
        raise damaged(path, f"its columns do not hold the {judged} episodes that summary.json counts")
    return columns


def _read_unstable(path: Path) -> list[int]:
    try:
        verify(path)
        with path.open(newline="") as file:
            return [int(row["id"]) for row in csv.DictReader(file) if row["status"] == "unstable"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise damaged(path, error) from error
