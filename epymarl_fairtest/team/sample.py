"""The training sample: some of the training episodes, later ones with more weight. Pure numpy.

The episode at position i of the training sequence is kept with probability proportional to i, in one
pass and bounded memory: weighted reservoir sampling with keys u^(1/i) (Efraimidis and Spirakis 2006).
The key is drawn before the episode runs, so the hook only records episodes that will be kept.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core import rng
from epymarl_fairtest.core.episodes import Episodes
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.files import write_arrays
from epymarl_fairtest.core.judged import totals

FILE = "training_pool.npz"


@dataclass(frozen=True)
class TrainingEpisodes:
    """Episodes of training, the steps of all of them one after the other; `length` tells them apart."""

    position: NDArray[np.int64]  # (E,) in the training sequence, from 1
    length: NDArray[np.int64]  # (E,)
    q: NDArray[np.float32]  # (steps, agents, actions): the policy's scores
    rewards: NDArray[np.float64]  # (steps, agents), the allocation

    @staticmethod
    def none() -> TrainingEpisodes:
        whole = np.empty(0, np.int64)
        return TrainingEpisodes(whole, whole, np.empty((0, 0, 0), np.float32), np.empty((0, 0)))

    def __len__(self) -> int:
        return len(self.length)

    def digest(self) -> str:
        """A name for exactly these episodes."""
        sha = hashlib.sha256()
        for array in (self.position, self.length, self.q, self.rewards):
            sha.update(f"{array.dtype.str} {array.shape}".encode())
            sha.update(np.ascontiguousarray(array).tobytes())
        return sha.hexdigest()

    @property
    def received(self) -> NDArray[np.float64]:
        """By each agent in each episode (E, agents)."""
        if not len(self):
            return np.empty((0, self.rewards.shape[-1]))
        return np.stack([totals(part) for part in np.split(self.rewards, np.cumsum(self.length)[:-1])])


class TrainingSample:
    """Takes part in training: says which episodes to record, and keeps them."""

    def __init__(self, size: int, seed: int) -> None:
        self.size, self.offered = size, 0
        # The stream is named as the sample once was: with another name, other episodes would be kept.
        self._stream = rng.named(seed, "training pool").integers(0, 2**64, dtype=np.uint64)
        self._heap: list[tuple[float, int]] = []  # (key, position), smallest key first
        self._kept: dict[int, tuple[NDArray[np.float32], NDArray[np.float64]]] = {}  # q and rewards

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

    def add(self, position: int, q: NDArray[np.float32], rewards: NDArray[np.float64]) -> None:
        """A recorded episode: q (length, agents, actions) and rewards (length, agents)."""
        self._kept[position] = q, rewards

    def episodes(self) -> TrainingEpisodes:
        """What was kept, in the order of training."""
        return joined({position: self._kept[position] for position in sorted(self._kept)})

    def save(self, path: Path) -> None:
        kept = self.episodes()
        arrays: dict[str, NDArray[Any]] = {
            "position": kept.position,
            "length": kept.length.astype(np.int32),
            "offered": np.array(self.offered, np.int64),
            "q": kept.q,
            "rewards": kept.rewards,
        }
        write_arrays(path, arrays, compressed=True)


def keep_some(sample: TrainingSample, episodes: Episodes) -> None:
    """Offer these training episodes to the sample, which keeps what it wants."""
    first = sample.offered + 1
    for position in sample.offer(len(episodes)):
        row = position - first
        steps = slice(0, episodes.length[row])
        sample.add(position, episodes.q[row, steps].copy(), episodes.rewards[row, steps].copy())


def joined(episodes: dict[int, tuple[NDArray[np.float32], NDArray[np.float64]]]) -> TrainingEpisodes:
    """The episodes at these positions, each given by its q and rewards."""
    if not episodes:
        return TrainingEpisodes.none()
    q, rewards = zip(*episodes.values(), strict=True)
    lengths: Sequence[int] = [len(part) for part in rewards]
    return TrainingEpisodes(
        np.array(list(episodes), np.int64),
        np.array(lengths, np.int64),
        np.concatenate(q),
        np.concatenate(rewards),
    )


def _fit(*arrays: NDArray[Any]) -> bool:
    """Do these arrays describe episodes, one after the other?"""
    if not all(isinstance(array, np.ndarray) for array in arrays):  # an archive may hold other files under these names
        return False
    position, length, q, rewards = arrays
    if position.shape != length.shape or length.ndim != 1 or any(a.dtype.kind not in "iuf" for a in arrays):
        return False
    if not len(length):
        return True  # a sample of size 0
    return (
        {position.dtype.kind, length.dtype.kind} <= {"i", "u"}
        and int(length.min()) > 0
        and int(position.min()) > 0
        and q.ndim == 3
        and len(q) == sum(length.tolist())  # numpy's own sum may overflow
        and rewards.shape == q.shape[:2]
    )


def load_sample(path: Path) -> TrainingEpisodes:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = file["position"], file["length"], file["q"], file["rewards"]
    except Exception as error:  # a damaged archive fails in zipfile, zlib, tokenize and elsewhere
        raise FairTestError(
            f"{str(path)!r} is not a training sample ({type(error).__name__}: {error}). Remove it to test without one,"
            " or train again."
        ) from error
    if not _fit(*arrays):
        raise FairTestError(
            f"{str(path)!r} is not a training sample: its arrays do not fit together. Remove it to test without one,"
            " or train again."
        )
    position, length, q, rewards = arrays
    if not len(length):
        return TrainingEpisodes.none()
    if not (np.isfinite(q).all() and np.isfinite(rewards).all()):
        raise FairTestError(
            f"{str(path)!r} holds NaN or infinite numbers: the training diverged, or the file is damaged. Remove it to"
            " test without a training sample, or train again."
        )
    return TrainingEpisodes(position.astype(np.int64), length.astype(np.int64), q, rewards)


def refuse_other_teams(sample: TrainingEpisodes, path: Path, agents: int, actions: int) -> None:
    """A sample of another team's training would only be noticed when a predictor learns from it."""
    if len(sample) and sample.q.shape[1:] != (agents, actions):
        raise FairTestError(
            f"{str(path)!r} is the training sample of another team: {sample.q.shape[1]} agents with"
            f" {sample.q.shape[2]} actions, and this team has {agents} with {actions}. Remove it, or put the right one"
            " there."
        )
