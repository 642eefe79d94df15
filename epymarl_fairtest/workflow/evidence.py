"""A finished run, read strictly: a decision about a team must not rest on half a run. Decides nothing itself."""

from __future__ import annotations

import csv
import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.config import FIELDS, TEXT, Rule, between, whole
from epymarl_fairtest.errors import FairTestError
from epymarl_fairtest.store.checksum import unsealed, verify
from epymarl_fairtest.store.read import read_arrays, refuse_newer

COUNT, SHARE = whole(0), between(0, 1)
COUNTS = ("evaluated", "failures", "distinct_failures", "roots", "undefined", "unstable_failures")
SUMMARY = dict.fromkeys(COUNTS, COUNT) | {"coverage": SHARE, "theta": between(0, 1, open_low=True), "method": TEXT}
NEEDED = ("index", "allocation", "execution", "epsilon", "temperature", "budget", "accounting")  # settings
SETTINGS: dict[str, Rule] = {name: FIELDS[name].metadata["rule"] for name in NEEDED}
COLUMNS = ("id", "purpose", "root_seed", "index", "received")
RANDOM_PURPOSES = ("predictor", "candidate")  # executed from fresh random starts, whatever the search knows


@dataclass(frozen=True)
class Rate:
    """A share of some executions with its exact (Clopper-Pearson) interval."""

    count: int
    executions: int
    low: float
    high: float

    @property
    def estimate(self) -> float:
        return self.count / self.executions

    def __str__(self) -> str:
        return f"{self.estimate:.4f} [{self.low:.4f}, {self.high:.4f}]"


def rate_of(count: int, executions: int, confidence: float) -> Rate:
    """Of what is left of `confidence`, half lies beyond each end of the interval, at most."""
    from scipy.stats import beta

    outside = (1 - confidence) / 2
    low = beta.ppf(outside, count, executions - count + 1) if count else 0.0
    high = beta.ppf(1 - outside, count + 1, executions - count) if count < executions else 1.0
    return Rate(count, executions, float(low), float(high))


@dataclass(frozen=True)
class Evidence:
    """One finished run: what was asked, what was counted, and one row per judged episode."""

    path: Path
    manifest: dict[str, Any]
    summary: dict[str, Any]
    executions: dict[str, NDArray[Any]]  # COLUMNS and more
    unstable: list[int]  # failures that did not come out the same in the real environment

    @property
    def settings(self) -> dict[str, Any]:
        return self.manifest["settings"]

    @property
    def theta(self) -> float:
        return self.summary["theta"]

    @cached_property
    def random(self) -> NDArray[np.bool_]:
        """Which executions were random: only these tell how often the team is unfair when nobody looks for it."""
        if self.summary["method"] == "random":
            return np.ones(len(self.executions["id"]), bool)
        return np.isin(self.executions["purpose"], RANDOM_PURPOSES)

    def unfair(self, theta: float | None = None) -> NDArray[np.bool_]:
        """Which executions were unfair; unstable ones are not counted, as in the summary."""
        unfair = self.executions["index"] <= (self.theta if theta is None else theta)
        return unfair & ~np.isin(self.executions["id"], self.unstable)

    def natural_rate(self, confidence: float, theta: float | None = None) -> Rate:
        """Unfair among the random executions; those in which nobody received anything are among them."""
        if not self.random.any():
            raise FairTestError(
                f"The run {str(self.path)!r} (method {self.summary['method']!r}) holds no random executions, so that"
                " nothing is known about the natural failure rate. Test the team with method=fairtest or method=random."
            )
        return rate_of(int((self.unfair(theta) & self.random).sum()), int(self.random.sum()), confidence)


def read_run(path: Path) -> Evidence:
    """The finished search in `path`; whatever is missing, damaged or does not fit together is refused."""
    if not (path / "manifest.json").is_file():
        raise FairTestError(f"{str(path)!r} is no FairTest run: it holds no manifest.json. Name a run's own folder.")
    manifest = read_manifest(path)
    if not (path / "summary.json").is_file():
        raise FairTestError(
            f"The run {str(path)!r} is not finished: it holds no summary.json. Go on with it first:"
            f" fairtest run --resume {shlex.quote(str(path))}"
        )
    summary = read_summary(path)
    if summary.get("method") == "predictor":
        raise FairTestError(f"{str(path)!r} is no search: a study of the predictor (rq3a) judges no team.")
    _check(path / "summary.json", summary, SUMMARY)
    _check(path / "manifest.json", manifest["settings"], SETTINGS)
    executions = _read_executions(path / "executions.npz", summary["evaluated"])
    unstable = _read_unstable(path / "failures.csv") if summary["unstable_failures"] else []
    run = Evidence(path, manifest, summary, executions, unstable)
    counted = {"failures": run.unfair(), "undefined": np.isnan(executions["index"])}
    for name, rows in counted.items():
        if rows.sum() != summary[name]:
            raise damaged(path, f"executions.npz has {rows.sum()} {name} and summary.json tells of {summary[name]}")
    return run


def read_manifest(path: Path) -> dict[str, Any]:
    refuse_newer(path)
    manifest = _read_json(path / "manifest.json")
    if not isinstance(manifest.get("settings"), dict) or not TEXT.holds(manifest.get("task")):
        raise damaged(path / "manifest.json", "it does not tell task and settings")
    return manifest


def read_summary(path: Path) -> dict[str, Any]:
    verify(path / "summary.json")
    return _read_json(path / "summary.json")


def damaged(path: Path, why: object) -> FairTestError:
    return FairTestError(f"{str(path)!r} is damaged: {why}.")


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = path.read_bytes()
        value = json.loads(content)
        if not isinstance(value, dict):
            raise ValueError("it is no set of names and values")
        return unsealed(content) if "crc" in value else value  # older formats have no checksum
    except (OSError, ValueError, RecursionError) as error:
        raise damaged(path, error) from error


def _check(path: Path, told: Mapping[str, Any], rules: Mapping[str, Rule]) -> None:
    wrong = [f"{name}={told.get(name)!r}" for name, rule in rules.items() if not rule.holds(told.get(name))]
    if wrong:
        raise damaged(path, "it tells " + ", ".join(wrong))


def _read_executions(path: Path, evaluated: int) -> dict[str, NDArray[Any]]:
    if not path.is_file():
        raise FairTestError(
            f"{str(path)!r} is missing: the run is of an older FairTest, or it was taken away. Run it again."
        )
    columns = read_arrays(path)
    if not columns and not evaluated:  # nothing was executed: no columns either
        columns = {name: np.empty(0) for name in COLUMNS} | {"received": np.empty((0, 0))}
    shapes = {name: columns[name].shape for name in COLUMNS if name in columns}
    whole = len(shapes) == len(COLUMNS) and {shape[:1] for shape in shapes.values()} == {(evaluated,)}
    if not whole or len(shapes["received"]) != 2 or columns["index"].dtype != np.float64:
        raise damaged(path, f"its columns do not hold the {evaluated} episodes that summary.json tells of")
    return columns


def _read_unstable(path: Path) -> list[int]:
    try:
        verify(path)
        with path.open(newline="") as file:
            return [int(row["id"]) for row in csv.DictReader(file) if row["status"] == "unstable"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise damaged(path, error) from error
