"""Reading failures.npz back: the episodes as they were executed, without what the agents saw.

Observations are not stored: they follow from the states. Who replays failures of agents with a memory
restores each state of the prefix in a world and looks.
"""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.episode import OPERATORS, Episodes
from epymarl_fairtest.errors import FairTestError

COPIED = ("states", "actions", "rewards", "q", "length", "root_seed", "stream", "shift", "start_step", "parent", "id")


def load_failures(path: Path) -> Episodes:
    """The failures of a run, in the order in which they were found; `obs` holds nothing (B, T, N, 0)."""
    try:
        with np.load(path, allow_pickle=False) as file:
            columns = {name: file[name] for name in file.files}
            if not columns:
                return _nothing()
            operator = np.array([OPERATORS.index(name) for name in columns["operator"].tolist()], np.int8)
            obs = np.empty((*columns["actions"].shape, 0), np.float32)
            return Episodes(**{name: columns[name] for name in COPIED}, operator=operator, obs=obs)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise FairTestError(f"{str(path)!r} holds no failures of a FairTest run ({error}).") from error


def columns_of(path: Path) -> list[str]:
    with np.load(path, allow_pickle=False) as file:
        return list(file.files)


def read_column(path: Path, name: str) -> NDArray[Any]:
    """One column of a file of failures."""
    with np.load(path, allow_pickle=False) as file:
        return file[name]


def _nothing() -> Episodes:
    """A run without failures: no rows, and nobody knows of how many agents."""
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
