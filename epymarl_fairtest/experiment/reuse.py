"""Runs that a study need not repeat, because another study has finished them. Knows when two runs are the same.

They are if version, team, seed and every setting that the method reads are the same, whatever team and variant are
called.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from epymarl_fairtest import __version__
from epymarl_fairtest.errors import FairTestError
from epymarl_fairtest.experiment.cells import EXECUTED, Cell, read_json, set_aside
from epymarl_fairtest.experiment.study import Study, differences_of
from epymarl_fairtest.store.write import copy_atomically, write_json

OF_THE_SEARCH = {
    "rounds", "generations", "pool", "select_ratio", "offspring", "crossover_ratio", "predictor_episodes", "prioritise",
    "fill", "fitness", "f3_temperature", "parents",
}  # fmt: skip
READ_OF_THE_SEARCH: dict[str, set[str]] = {
    "random": set(), "gmt": set(), "mastest": set(), "starla": {"f3_temperature"}, "hill_climber": set(),
    "start_surrogate": set(),
}  # fmt: skip
"""What our baselines read of the search's settings, in which the presets of the two accountings differ."""
PLACE = {"progress", "workers", "out"}


def reusable_runs(study: Study, other: Path) -> list[tuple[Path, Cell]]:
    """The finished runs of another study that are runs of this one, each with its cell here."""
    if not (other / "study.json").is_file():
        raise FairTestError(f"--runs-from {str(other)!r} is no study: it holds no study.json.")
    theirs = dict(_finished_runs(other.resolve()))
    if not theirs:
        raise FairTestError(f"--runs-from {str(other)!r} has no finished run yet.")
    path_of = {_key(run): path for path, run in theirs.items()}
    cells, teams = study.cells(), study.record()["policies"]
    ours = [_what_is_run(__version__, cell.study, teams[cell.team], cell.settings) for cell in cells]
    found = [
        (source, cell)
        for cell, run in zip(cells, ours, strict=True)
        if (source := path_of.get(_key(run))) is not None
        and not (cell.keep_failures and not (source / "failures.npz").is_file())
    ]
    if not found:
        differences = min(([text for _, text in differences_of(run, ours[0])] for run in theirs.values()), key=len)
        raise FairTestError(
            f"--runs-from {str(other)!r} has no run that this study needs; the nearest differs from {cells[0]} in"
            f" {'; '.join(differences) or 'its failures, which were not kept'}. Leave --runs-from out to run all here."
        )
    return found


def copy_run(source: Path, cell: Cell) -> None:
    set_aside(cell)
    cell.path.mkdir(parents=True)
    write_json(cell.path / "manifest.json", read_json(source / "manifest.json") | {"copied_from": str(source)})
    names = ["failures.csv", "journal.jsonl", *(EXECUTED if cell.keep_failures else ()), "summary.json"]
    for name in names:  # the summary last: it makes the cell finished
        if (source / name).is_file():
            copy_atomically(source / name, cell.path / name)


def _finished_runs(other: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    record = read_json(other / "study.json")
    for team, identity in record.get("policies", {}).items():
        for path in sorted((other / "cells" / team).glob("*/*/summary.json")):
            manifest = read_json(path.with_name("manifest.json"))
            yield (
                path.parent,
                _what_is_run(manifest.get("fairtest"), record.get("study"), identity, manifest.get("settings", {})),
            )


def _what_is_run(
    version: str | None, study: str | None, team: Mapping[str, Any], settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Everything that decides what a run does. rq3a runs no search, though its settings are those of one."""
    method, unread = "predictor" if study == "rq3a" else settings.get("method"), set(PLACE)
    if method in READ_OF_THE_SEARCH:
        unread |= (OF_THE_SEARCH - READ_OF_THE_SEARCH[method]) | {"preset"}
        if settings.get("theta") != "auto":  # whose random executions only strict accounting charges
            unread |= {"accounting"}
    read = {name: value for name, value in settings.items() if name not in unread}
    return json.loads(json.dumps({"fairtest": version, "team": team, "settings": read | {"method": method}}))


def _key(run: Mapping[str, Any]) -> str:
    return json.dumps(run, sort_keys=True)
