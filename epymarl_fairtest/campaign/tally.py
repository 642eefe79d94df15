"""What a campaign counts while it runs: failures, distinct failures, starts, coverage. Knows no engine."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.campaign.coverage import Cells, Coverage
from epymarl_fairtest.campaign.packing import Packing
from epymarl_fairtest.core.episodes import OPERATORS, Episodes
from epymarl_fairtest.core.indices.jain import jfi
from epymarl_fairtest.core.judged import Judge, Judged
from epymarl_fairtest.tasks.contract import Task

WIDE = 3  # times the distance of distinct failures: near-copies may pass one scale, not both
GROWTH_POINTS = 20  # of the curve of distinct failures over executed episodes
TENTH = 10  # distinct failure: how long a search takes to find its first few
QUANTILES = (0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 1.0)
Columns = dict[str, NDArray[Any]]


class Tally:
    """Takes judged batches one by one and keeps only what the summary needs."""

    def __init__(self, task: Task, judge: Judge, *, bins: int, distinct_distance: float) -> None:
        self._judge, self._how = judge, (task, bins, distinct_distance)
        self._executions: list[Columns] = []
        self._left_out = np.empty(0, np.int64)
        self._counts = FailureCounts(*self._how)

    @property
    def failures(self) -> int:
        return self._counts.failures

    def add(self, judged: Judged, purpose: str, *, random: bool = False) -> None:
        """A judged batch; `random` if nobody chose its starts, and the team was left as it is."""
        self._executions.append(execution_rows(judged, purpose, random=random))
        self._add_failures(judged)

    def _add_failures(self, judged: Judged) -> None:
        failing = np.flatnonzero(judged.unfair)
        if len(failing):
            after_prefix = self._judge.unfair_after_prefix(judged.episodes, failing)
            self._counts.add(judged.episodes, failing, int(after_prefix.sum()))

    def leave_out(self, ids: NDArray[np.int64], others: Iterable[Episodes]) -> None:
        """Count again, as if the failures with these ids had not been found; `others` are all that remain."""
        self._left_out, self._counts = ids, FailureCounts(*self._how)
        for failures in others:
            self._add_failures(self._judge(failures))

    def executions(self) -> Columns:
        """One row per judged episode, in the order of execution: executions.npz."""
        names = self._executions[0] if self._executions else ()
        return {name: np.concatenate([part[name] for part in self._executions]) for name in names}

    def random(self) -> tuple[int, int]:
        """How many random executions were unfair (none in which nobody received anything), and how many there are."""
        rows = self.executions()
        if not rows:
            return 0, 0
        return int((self.unfair(rows) & rows["random"]).sum()), int(rows["random"].sum())

    def unfair(self, rows: Columns) -> NDArray[np.bool_]:
        """Which of these executions count as unfair: not the failures that were left out."""
        unfair: NDArray[np.bool_] = (rows["index"] <= self._judge.theta) & ~np.isin(rows["id"], self._left_out)
        return unfair

    def starts(self) -> NDArray[np.int64]:
        """Of every failure the number of its distinct start; -1 where it was left out, or has none."""
        rows = self.executions()
        failing = rows["id"][rows["index"] <= self._judge.theta] if rows else np.empty(0, np.int64)
        numbers = np.full(len(failing), -1)
        numbers[np.isin(failing, self._counts.ids())] = self._counts.starts()
        return numbers

    def cells(self) -> Cells:
        """The coverage cells that failures went through, ascending."""
        return self._counts.coverage.cells()

    def summary(self) -> dict[str, Any]:
        rows = self.executions()
        index, received = rows.get("index", np.empty(0)), rows.get("received", np.empty((0, 1)))
        ids = rows.get("id", np.empty(0, np.int64))
        counted = ~np.isin(ids, self._left_out)
        return {
            "evaluated": len(index),
            **self._counts.summary(),
            **growth(ids, self._counts.ids(), self._counts.distinct_ids()),
            "undefined": int(np.isnan(index).sum()),
            "index_quantiles": _quantiles(index[counted]),
            "jfi_quantiles": _quantiles(jfi(received[counted])),
        }


class FailureCounts:
    """What is counted of failures, in the order in which they were found."""

    def __init__(self, task: Task, bins: int, distance: float) -> None:
        self._task = task
        self._after_prefix = 0
        self._unique: set[bytes] = set()
        self._roots: set[int] = set()
        self._ids: list[NDArray[np.int64]] = []
        self._distinct_ids: list[NDArray[np.int64]] = []
        self._distinct, self._wide = Packing(distance), Packing(WIDE * distance)
        self._starts = Packing(distance)
        self._start_numbers: list[NDArray[np.int64]] = []
        self.coverage = Coverage(task, bins)

    @property
    def failures(self) -> int:
        return sum(map(len, self._ids))

    def add(self, episodes: Episodes, rows: NDArray[np.int64], after_prefix: int) -> None:
        """The failures at these rows; so many of them are unfair in what was executed alone."""
        ids = episodes.id[rows]
        self._ids.append(ids)
        self._after_prefix += after_prefix
        states, positions = episodes.states[rows], episodes.length[rows] + 1
        self.coverage.add(states[np.arange(states.shape[1]) < positions[:, None]])
        for row, number in zip(rows.tolist(), positions.tolist(), strict=True):
            content = (episodes.states[row, :number].tobytes(), episodes.actions[row, : number - 1].tobytes())
            self._unique.add(hashlib.blake2b(b"".join(content), digest_size=16).digest())
        if self._placed:
            paths = self._task.positions(states).astype(np.float32)
            self._distinct_ids.append(ids[self._distinct.add(paths, positions)])
            self._wide.add(paths, positions)
            self._start_numbers.append(self._starts.sort(paths[:, :1], np.ones(len(paths), np.int64)))
        else:
            self._distinct_ids.append(ids[self._first_of_new_roots(episodes.root_seed[rows])])
        self._roots.update(episodes.root_seed[rows].tolist())

    def _first_of_new_roots(self, roots: NDArray[np.int64]) -> NDArray[np.int64]:
        """Which of these failures are the first of their root, ascending."""
        first = np.sort(np.unique(roots, return_index=True)[1])
        return first[[root not in self._roots for root in roots[first].tolist()]]

    @property
    def _placed(self) -> bool:
        """Is anything known of where agents are? If not, failures differ by their root alone."""
        return self._task.state_size > 0

    def ids(self) -> NDArray[np.int64]:
        """Of the failures, in the order in which they were found."""
        return np.concatenate([np.empty(0, np.int64), *self._ids])

    def starts(self) -> NDArray[np.int64]:
        """Of each failure, in the same order: the number of the first start that its own is not far from.

        Where nothing is known of places, starts differ by their seed, and no number is given: -1.
        """
        return np.concatenate(self._start_numbers) if self._start_numbers else np.full(self.failures, -1)

    def distinct_ids(self) -> NDArray[np.int64]:
        """Of the failures that were distinct from all before them."""
        return np.concatenate([np.empty(0, np.int64), *self._distinct_ids])

    def summary(self) -> dict[str, Any]:
        distinct, wide, starts = (
            len(packing) if self._placed else len(self._roots) for packing in (self._distinct, self._wide, self._starts)
        )
        return {
            "failures": self.failures,
            "unique_failures": len(self._unique),
            "distinct_failures": distinct,
            "distinct_failures_wide": wide,
            "distinct_starts": starts,
            "roots": len(self._roots),
            "suffix_failures": self._after_prefix,
            "coverage": self.coverage.share(),
            "coverage_of": self.coverage.of,
        }


def growth(executed: NDArray[np.int64], failing: NDArray[np.int64], distinct: NDArray[np.int64]) -> dict[str, Any]:
    """How the counts grew with the executed episodes; all three are ids in the order of execution.

    The area under the curve of distinct failures, divided by the episodes, is the number of distinct failures known on
    average during the search: of two searches that end alike it prefers the one that found them early.
    """
    points = np.unique(np.linspace(0, len(executed), GROWTH_POINTS + 1).astype(np.int64)[1:])
    failed, different = (np.searchsorted(executed, ids) + 1 for ids in (failing, distinct))  # after so many episodes
    return {
        "growth": {
            "episodes": points.tolist(),
            "failures": np.searchsorted(failed, points, "right").tolist(),
            "distinct_failures": np.searchsorted(different, points, "right").tolist(),
        },
        "distinct_area": float((len(executed) - different + 1).sum() / max(len(executed), 1)),
        "tenth_distinct_failure": int(different[TENTH - 1]) if len(different) >= TENTH else None,
    }


def execution_rows(judged: Judged, purpose: str, *, random: bool) -> Columns:
    """What is kept of every judged episode."""
    episodes = judged.episodes
    return {
        "id": episodes.id,
        "purpose": np.full(len(episodes), purpose),
        "random": np.full(len(episodes), random),
        "root_seed": episodes.root_seed,
        "operator": np.array(OPERATORS)[episodes.operator],
        "parent": episodes.parent,
        "start_step": episodes.start_step,
        "length": episodes.length,
        "index": judged.index,
        "received": judged.received,
        "initial_state": episodes.states[:, 0].copy(),  # a view would keep all states of the batch
    }


def _quantiles(values: NDArray[np.float64]) -> dict[str, float | None]:
    """Of the episodes whose index is defined."""
    values = values[~np.isnan(values)]
    quantiles = np.quantile(values, QUANTILES).tolist() if len(values) else [None] * len(QUANTILES)
    return {f"{q:g}": value for q, value in zip(QUANTILES, quantiles, strict=True)}
