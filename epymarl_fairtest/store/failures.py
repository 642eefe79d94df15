"""Reading failures.npz back, whole or some rows: the episodes as they were executed, without what the agents saw.

Observations are not stored: they follow from the states. Replaying failures of agents with a memory
restores each state of the prefix in a world and looks.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core.episodes import OPERATORS, Episodes
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.rewards import first_odd
from epymarl_fairtest.store.read import read_columns, refuse_other_formats

BY_STEP = ("states", "actions", "rewards", "q")
COPIED = (*BY_STEP, "length", "root_seed", "stream", "shift", "start_step", "parent", "id")

KINDS = {"states": "f8", "obs": "f4", "actions": "i2", "rewards": "f8", "q": "f4", "operator": "i1", "stream": "u8"}


def load_failures(path: Path) -> Episodes:
    """The failures of a run, in the order in which they were found; `obs` holds nothing (B, T, N, 0)."""
    failures = FailureRows(path, at_once=True)
    return failures.take(slice(None)) if len(failures) else _nothing()


class FailureRows:
    """The failures of a run, of which those that are taken are read: a long run has more than fit into memory."""

    def __init__(self, path: Path, *, at_once: bool = False, verified: bool = False) -> None:
        refuse_other_formats(path.parent)
        try:
            columns = read_columns(path, (*COPIED, "operator"), () if at_once else BY_STEP, verified=verified)
        except FairTestError as error:
            raise FairTestError(f"{str(path)!r} holds no failures that can be read: {error}") from error
        if columns and (not _fit(columns) or not set(columns["operator"].tolist()) <= set(OPERATORS)):
            raise FairTestError(f"{str(path)!r} holds no failures of a FairTest run: its arrays do not fit together.")
        self._columns = columns
        if columns:
            names = columns.pop("operator").tolist()
            columns["operator"] = np.array([OPERATORS.index(name) for name in names], np.int8)

    def __len__(self) -> int:
        return len(self._columns["id"]) if self._columns else 0

    def take(self, rows: Any) -> Episodes:
        """These failures, with `obs` that holds nothing."""
        taken = self.columns(rows, self._columns)
        return Episodes(**taken, obs=np.empty((*taken["actions"].shape, 0), np.float32))

    def columns(self, rows: Any, names: Iterable[str]) -> dict[str, Any]:
        """What is known of these failures under these names; nothing else of them is read."""
        return {name: self._columns[name][rows] for name in names}

    def nbytes(self, names: Iterable[str]) -> int:
        """What all that is known under these names takes in memory."""
        return sum(self._columns[name].nbytes for name in names)


def _fit(columns: dict[str, Any]) -> bool:
    """Do these arrays describe episodes, one per row?"""
    if not columns.keys() >= {*COPIED, "operator"}:
        return False
    states, actions, rewards, q, *numbers = (columns[name] for name in COPIED)
    rows, shape = columns["operator"].shape, actions.shape
    start, length = columns["start_step"], columns["length"]
    return (
        len(rows) == 1
        and all(column.shape == rows and column.dtype.kind in "iu" for column in numbers)
        and (states.dtype.kind, actions.dtype.kind, rewards.dtype.kind, q.dtype.kind) == ("f", "i", "f", "f")
        and (len(shape), states.ndim, q.ndim) == (3, 3, 4)
        and shape == rewards.shape == q.shape[:3]
        and states.shape[:2] == (*rows, shape[1] + 1)
        and bool(((start >= 0) & (start <= length) & (length <= shape[1])).all())
    )


def are_episodes(columns: dict[str, NDArray[Any]]) -> bool:
    """Are these the arrays of an executed batch, as `Episodes` holds them?"""
    if columns.keys() != Episodes.__dataclass_fields__.keys() or not _fit(columns):
        return False
    if any(columns[name].dtype != kind for name, kind in KINDS.items()):
        return False
    operator, obs, actions = columns["operator"], columns["obs"], columns["actions"]
    known = bool(((operator >= 0) & (operator < len(OPERATORS))).all())
    paid = first_odd(columns["rewards"]) is None
    return known and paid and obs.ndim == 4 and obs.shape[:3] == actions.shape


def _nothing() -> Episodes:
    """A run without failures: no rows, of an unknown number of agents."""
    whole: dict[str, Any] = {name: np.empty(0, np.int64) for name in ("root_seed", "parent", "id")}
    steps: dict[str, Any] = {name: np.empty(0, np.int32) for name in ("length", "shift", "start_step")}
    return Episodes(
        states=np.empty((0, 1, 0)),
        obs=np.empty((0, 0, 0, 0), np.float32),
        actions=np.empty((0, 0, 0), np.int16),
        rewards=np.empty((0, 0, 0)),
        q=np.empty((0, 0, 0, 0), np.float32),
        stream=np.empty(0, np.uint64),
        operator=np.empty(0, np.int8),
        **whole,
        **steps,
    )
