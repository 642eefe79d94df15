"""A finished run, read back: the one way in for the report and for every command on a run. Decides nothing itself.

What is damaged or contradicts itself is refused, whoever asks. What is not there is listed (`missing`): a study keeps
few files, and a folder may have been thinned out. Whoever cannot do without a file names it.
"""

from __future__ import annotations

import csv
import shlex
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.judged import Agents, of_agents, totals
from epymarl_fairtest.core.statistics import CONFIDENCE, Rate, rate_of
from epymarl_fairtest.store.checksum import unseal, verify
from epymarl_fairtest.store.content import refuse_odd_columns, refuse_odd_manifest, refuse_odd_summary
from epymarl_fairtest.store.explanation import read_explanation
from epymarl_fairtest.store.read import damaged, read_arrays, read_json, refuse_missing, refuse_other_formats

NEEDED = ("index", "allocation", "execution", "epsilon", "temperature", "budget", "accounting")  # settings
SCALARS = ("id", "root_seed", "operator", "parent", "start_step", "length", "index")
ROWS = (*SCALARS, "purpose", "random", "received")  # of executions
FAILURES = (*SCALARS, "status", "rewards", "initial_state")
START = "start"  # a column of failures that earlier runs do not have
NATURAL = "natural.npz"  # executed after the search
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
    def agents(self) -> Agents:
        """The setting, which earlier runs did not have."""
        agents: Agents = self.settings.get("agents", "all")
        return agents

    @property
    def theta(self) -> float:
        return float(self.summary["theta"])

    @cached_property
    def failures(self) -> Columns:
        """SCALARS, status, initial_state, received and start; no columns where there is no failure."""
        path = self.path / "failures.npz"
        columns = read_arrays(path, (*FAILURES, START)) if path.is_file() else {}
        if not columns:
            return {}
        fits = columns.keys() >= set(FAILURES) and {one.shape[:1] for one in columns.values()} == {columns["id"].shape}
        if not fits or (columns["rewards"].ndim, columns["initial_state"].ndim) != (3, 2):
            raise damaged(path, "its columns do not hold failures")
        refuse_odd_columns(path, columns)
        columns["received"] = totals(of_agents(columns.pop("rewards"), self.agents))
        columns.setdefault(START, np.full(len(columns["id"]), -1))
        return columns

    def starts_of(self, rows: Columns) -> NDArray[np.int64]:
        """The start that each of these executions descends from, as a number: near-copies of a failure's start are
        one. Of an execution that is no failure, or of which nothing else is known, it is the seed's."""
        seeds = np.unique(rows["root_seed"], return_inverse=True)[1].astype(np.int64)
        if not self.failures:
            return seeds
        ids, start = self.failures["id"], self.failures[START]
        at = np.minimum(np.searchsorted(ids, rows["id"]), len(ids) - 1)
        known = (ids[at] == rows["id"]) & (start[at] >= 0)
        return np.where(known, start[at], seeds + start.max() + 1)

    @property
    def positions_known(self) -> bool:
        """Do the failures' states hold anything?"""
        return bool(self.failures) and self.failures["initial_state"].shape[1] > 0

    @cached_property
    def evidence(self) -> Columns:
        """What the method kept."""
        return {} if "evidence.npz" in self.missing else read_arrays(self.path / "evidence.npz")

    @cached_property
    def explanation(self) -> dict[str, Any] | None:
        """Why failures happened, as far as the run looked into it."""
        return read_explanation(self.path)

    @property
    def rounds(self) -> list[int]:
        """Of the search, as far as their candidates are on record."""
        return sorted(int(name.split("_")[1]) for name in self.evidence if name.endswith("_candidates_scores"))

    @cached_property
    def random(self) -> NDArray[np.bool_]:
        """Which of the search's executions were random."""
        random: NDArray[np.bool_] = self.executions["random"]
        return random

    @cached_property
    def judged(self) -> Columns:
        """The search's executions, and the random ones made after it (natural.npz)."""
        rows = {name: self.executions[name] for name in ROWS}
        if not self._natural_episodes or not (self.path / NATURAL).is_file():
            return rows
        natural = _read_executions(self.path / NATURAL, self._natural_episodes, self.summary["method"])
        return {
            name: np.concatenate([rows[name], natural[name]]) if len(rows[name]) else natural[name] for name in ROWS
        }

    @cached_property
    def random_executions(self) -> Columns:
        """Only these show how often the team is unfair when nobody searches for it."""
        return {name: values[self.judged["random"]] for name, values in self.judged.items()}

    @property
    def _natural_episodes(self) -> int:
        """Random executions that were made after the search."""
        return int((self.summary["ledger"].get("natural") or {}).get("episodes", 0))

    def unfair(self, theta: float | None = None) -> NDArray[np.bool_]:
        """Which executions were unfair; unstable ones are not counted, as in the summary."""
        return self.unfair_among(self.executions, theta)

    def unfair_among(self, rows: Columns, theta: float | None = None) -> NDArray[np.bool_]:
        unfair = rows["index"] <= (self.theta if theta is None else theta)
        return unfair & ~np.isin(rows["id"], self.unstable)

    def natural_rate(self, theta: float | None = None, confidence: float = CONFIDENCE) -> Rate | None:
        """The share of unfair ones among all random executions (none in which nobody received anything); None where
        there are none. A run that was thinned out still knows it at its own threshold."""
        counted = self.summary.get("natural_rate")
        if counted is not None and self._thinned and theta in (None, self.theta):
            return rate_of(counted["unfair"], counted["executions"], confidence)
        rows = self.random_executions
        executions = len(rows["index"])
        return rate_of(int(self.unfair_among(rows, theta).sum()), executions, confidence) if executions else None

    @property
    def _thinned(self) -> bool:
        """Are random executions that were made no longer on record?"""
        files = ["executions.npz"] + [NATURAL] * bool(self._natural_episodes)
        return not all((self.path / name).is_file() for name in files)

    def needed_rate(self, theta: float | None = None, confidence: float = CONFIDENCE) -> Rate:
        """The natural rate, for whoever can do nothing without it."""
        rate = self.natural_rate(theta, confidence)
        if rate is None:
            raise FairTestError(
                f"The run {str(self.path)!r} (method {self.summary['method']!r}) holds no random executions, so"
                " nothing is known about the natural rate. Test the team again with some, e.g."
                " --set natural_episodes=200."
            )
        return rate


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
    refuse_odd_manifest(path / "manifest.json", manifest, NEEDED)
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
    refuse_odd_manifest(path / "manifest.json", manifest)
    return {name: value for name, value in manifest.items() if value is not None}


def read_summary(path: Path) -> dict[str, Any]:
    """The summary of a search, or that of a study of the predictor, which counts nothing."""
    verify(path / "summary.json")
    summary = _read_verified(path / "summary.json")
    refuse_odd_summary(path / "summary.json", summary)
    if summary.get("method") != "predictor":
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


def _read_executions(path: Path, judged: int, method: str) -> Columns:
    columns = read_arrays(path) if path.is_file() else {}
    refuse_odd_columns(path, columns)
    if not columns and not judged:  # nothing was executed: no columns either
        columns = {name: np.empty(0) for name in ROWS} | {"random": np.empty(0, bool), "received": np.empty((0, 0))}
    if "purpose" in columns:
        purposes = columns["purpose"].tolist()
        columns["purpose"] = np.array([RENAMED.get(purpose, purpose) for purpose in purposes], np.str_)
        columns.setdefault("random", np.array([method == "random" or purpose in RANDOM for purpose in purposes], bool))
    shapes = {name: columns[name].shape for name in ROWS if name in columns}
    whole = len(shapes) == len(ROWS) and {shape[:1] for shape in shapes.values()} == {(judged,)}
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
