"""The training pool: a sample of the training episodes, later ones with more weight. Pure numpy.

The episode at position i of the training sequence is kept with probability proportional to i, in one
pass and bounded memory: weighted reservoir sampling with keys u^(1/i) (Efraimidis and Spirakis 2006).
The key is drawn before the episode runs, so the hook only records episodes that will be kept.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest import rng
from epymarl_fairtest.errors import FairTestError
from epymarl_fairtest.store.write import write_arrays

FILE = "training_pool.npz"


@dataclass(frozen=True)
class TrainingEpisode:
    position: int  # i, from 1
    q: NDArray[np.float32]  # (length, agents, actions)
    actions: NDArray[np.int16]  # (length, agents)
    rewards: NDArray[np.float64]  # (length, agents), the allocation


class TrainingPool:
    def __init__(self, size: int, seed: int) -> None:
        self.size, self.offered = size, 0
        self._stream = rng.named(seed, "training pool").integers(0, 2**64, dtype=np.uint64)
        self._heap: list[tuple[float, int]] = []  # (key, position), smallest key first
        self._kept: dict[int, TrainingEpisode] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def offer(self, count: int = 1) -> list[int]:
        """The next `count` training episodes begin: the positions that must be recorded and added."""
        wanted = []
        for _ in range(count):
            self.offered += 1
            if self.size == 0:
                continue
            # log u / i orders like u^(1/i) without underflow; log of (0, 1].
            u = 1.0 - rng.uniform(np.asarray(self._stream), np.asarray(self.offered))
            key = float(np.log(u)) / self.offered
            if len(self._heap) < self.size or key > self._heap[0][0]:
                wanted.append(self.offered)
                heapq.heappush(self._heap, (key, self.offered))
                if len(self._heap) > self.size:
                    _, dropped = heapq.heappop(self._heap)
                    self._kept.pop(dropped, None)
                    wanted = [position for position in wanted if position != dropped]
        return wanted

    def add(self, episode: TrainingEpisode) -> None:
        self._kept[episode.position] = episode

    def episodes(self) -> list[TrainingEpisode]:
        """What was kept, in the order of training."""
        return [self._kept[position] for position in sorted(self._kept)]

    def save(self, path: Path) -> None:
        """One flat file: steps of all episodes one after the other, `length` tells them apart."""
        kept = self.episodes()
        arrays: dict[str, NDArray[Any]] = {
            "position": np.array([e.position for e in kept], np.int64),
            "length": np.array([len(e.actions) for e in kept], np.int32),
            "offered": np.array(self.offered, np.int64),
        }
        for name in ("q", "actions", "rewards"):
            arrays[name] = np.concatenate([getattr(e, name) for e in kept]) if kept else np.empty((0, 0))
        write_arrays(path, arrays, compressed=True)


def _fit(*arrays: NDArray[Any]) -> bool:
    """Do these arrays describe episodes, one after the other?"""
    if not all(isinstance(array, np.ndarray) for array in arrays):  # an archive may hold other files under these names
        return False
    position, length, q, actions, rewards = arrays
    if position.shape != length.shape or length.ndim != 1 or any(a.dtype.kind not in "iuf" for a in arrays):
        return False
    if not len(length):
        return True  # a pool of size 0
    return (
        {position.dtype.kind, length.dtype.kind, actions.dtype.kind} <= {"i", "u"}
        and int(length.min()) > 0
        and q.ndim == 3
        and len(q) == int(length.sum())
        and actions.shape == rewards.shape == q.shape[:2]
    )


def load_pool(path: Path) -> list[TrainingEpisode]:
    try:
        with np.load(path, allow_pickle=False) as file:
            position, length = file["position"], file["length"]
            q, actions, rewards = file["q"], file["actions"], file["rewards"]
    except Exception as error:  # a damaged archive fails in zipfile, zlib, tokenize and elsewhere
        raise FairTestError(
            f"{str(path)!r} is not a training pool ({type(error).__name__}: {error}). Remove it to test without one,"
            " or train again."
        ) from error
    if not _fit(position, length, q, actions, rewards):
        raise FairTestError(
            f"{str(path)!r} is not a training pool: its arrays do not fit together. Remove it to test without one,"
            " or train again."
        )
    ends = np.cumsum(length)
    starts = ends - length
    return [
        TrainingEpisode(int(i), q[a:b], actions[a:b], rewards[a:b])
        for i, a, b in zip(position, starts, ends, strict=True)
    ]
