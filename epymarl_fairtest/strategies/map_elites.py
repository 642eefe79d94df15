"""MAP-Elites (Mouret and Clune 2015) on pyribs: the most unfair start for every kind of behaviour.

A solution is a start, as the task's vector. An archive keeps the most unfair one per cell of a grid of behaviours, and
new ones are made of those it keeps. pyribs is the archive and the emitters; its scheduler is not used, because it
cannot leave out a solution that no environment would accept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core.episodes import random_tests
from epymarl_fairtest.core.judged import Judged
from epymarl_fairtest.core.ledger import EXECUTION
from epymarl_fairtest.settings import AT_ONCE, between, one_of, setting, whole
from epymarl_fairtest.strategies.contract import Context, Request, Search, Strategy
from epymarl_fairtest.strategies.starts import starting_from
from epymarl_fairtest.tasks.contract import Task

Array = NDArray[np.float64]

REFUSED = -2.0  # objective of a solution that no environment accepts: below that of every execution
PATIENCE = 20  # batches in a row without an acceptable solution before random starts are executed instead


@dataclass(frozen=True)
class MapElitesOptions:
    initial: int = setting(whole(1), "random executions that the archive begins with", 200)
    batch: int = setting(whole(1, AT_ONCE), "solutions that are made at once", 32)
    cells: int = setting(whole(1), "cells of the archive's grid along each of the three measures", 10)
    sigma: float = setting(between(0, 2, open_low=True), "standard deviation of the steps in [-1, 1]", 0.1)
    emitter: str = setting(
        one_of("gaussian", "improvement"),
        "what makes solutions: elites and normal noise, or an evolution strategy that seeks improvement (CMA-ME)",
        "gaussian",
    )


def map_elites(context: Context) -> Search:
    options, task, generator = context.options, context.task, context.generator("tests")
    begun = yield Request(random_tests(options.initial, task.state_size, generator), EXECUTION)
    search = Elites(begun, context)
    refused = 0  # batches in a row
    while True:
        vectors = search.ask()
        states, valid = task.starts_from(vectors)
        context.count("invalid_starts", int((~valid).sum()))
        judged = None
        if valid.any():
            judged = yield Request(starting_from(states[valid], generator), EXECUTION)
        search.tell(vectors, valid, judged)
        refused = 0 if valid.any() else refused + 1
        if refused == PATIENCE:
            context.count("random_starts", options.batch)
            search.add((yield Request(random_tests(options.batch, task.state_size, generator), EXECUTION)))
            refused = 0
        context.note("elites", len(search.archive))


class Elites:
    """The archive and its emitter, one thread for both."""

    def __init__(self, begun: Judged, context: Context) -> None:
        from ribs.archives import GridArchive
        from threadpoolctl import ThreadpoolController

        options, self._task = context.options, context.task
        seeds = context.generator("archive").integers(0, 2**31, 2).tolist()
        self._threads, ranges = ThreadpoolController(), ranges_of(measures(begun, self._task))
        size = self._task.start_vectors(begun.episodes.states[:1, 0]).shape[1]
        dims = [options.cells] * len(ranges)
        self.archive: Any = GridArchive(solution_dim=size, dims=dims, ranges=ranges, seed=seeds[0])
        self.add(begun)
        self._emitter = self._made(options, seeds[1])

    def _made(self, options: MapElitesOptions, seed: int) -> Any:
        from ribs.emitters import EvolutionStrategyEmitter, GaussianEmitter

        size, begin = self.archive.solution_dim, self.archive.best_elite["solution"]
        common = {"x0": begin, "bounds": [(-1.0, 1.0)] * size, "batch_size": options.batch, "seed": seed}
        if options.emitter == "gaussian":
            return GaussianEmitter(self.archive, sigma=options.sigma, **common)
        return EvolutionStrategyEmitter(self.archive, sigma0=options.sigma, ranker="2imp", **common)

    def ask(self) -> Array:
        with self._threads.limit(limits=1):
            return np.asarray(self._emitter.ask(), np.float64)

    def tell(self, vectors: Array, valid: NDArray[np.bool_], judged: Judged | None) -> None:
        """What became of the solutions that were asked for. The budget may have cut the last of them."""
        executed = np.flatnonzero(valid)[: 0 if judged is None else len(judged)]
        goal, measured = np.full(len(vectors), REFUSED), np.zeros((len(vectors), self.archive.measure_dim))
        feedback = {"status": np.zeros(len(vectors), np.int32), "value": goal.copy()}
        if judged is not None:
            goal[executed], measured[executed] = objective(judged), measures(judged, self._task)
            kept = self.archive.add(vectors[executed], goal[executed], measured[executed])
            for name, values in feedback.items():
                values[executed] = kept[name]
        with self._threads.limit(limits=1):
            self._emitter.tell(vectors, goal, measured, feedback)

    def add(self, judged: Judged) -> None:
        """Executions that no emitter asked for."""
        vectors = self._task.start_vectors(judged.episodes.states[:, 0])
        self.archive.add(np.clip(vectors, -1, 1), objective(judged), measures(judged, self._task))


def objective(judged: Judged) -> Array:
    """Minus the fairness index; where nobody received anything, nobody was treated worse."""
    return -np.where(judged.undefined, 1.0, judged.index)


def measures(judged: Judged, task: Task) -> Array:
    """The behaviour in each episode (B, 3).

    How far apart the team is (the agents' mean distance from their centre), and how far the agent that received least
    and the one that received most move per step.
    """
    episodes, rows = judged.episodes, np.arange(len(judged))
    at, running = task.positions(episodes.states), episodes.running  # (B, T + 1, N, 2), (B, T)
    apart = _length(at - at.mean(axis=2, keepdims=True)).mean(axis=2)
    reached = np.arange(at.shape[1]) <= episodes.length[:, None]
    spread = np.where(reached, apart, 0.0).sum(axis=1) / reached.sum(axis=1)
    moved = np.where(running[..., None], _length(np.diff(at, axis=1)), 0.0).sum(axis=1)
    pace = moved / np.maximum(episodes.length, 1)[:, None]
    least, most = judged.received.argmin(axis=1), judged.received.argmax(axis=1)
    return np.stack([spread, pace[rows, least], pace[rows, most]], axis=1)


def _length(arrows: Array) -> Array:
    length: Array = np.sqrt((arrows**2).sum(axis=-1))
    return length


def ranges_of(measured: Array) -> list[tuple[float, float]]:
    """What the initial executions reach, a little more where they are all alike; beyond are the outermost cells."""
    low, high = measured.min(axis=0), measured.max(axis=0)
    return list(zip(low.tolist(), np.where(high > low, high, low + 1.0).tolist(), strict=True))


STRATEGY = Strategy(
    "map_elites",
    "MAP-Elites",
    map_elites,
    MapElitesOptions,
    needs=("proposable",),
    observes=False,
    order=6,
    doc="the most unfair start for every kind of behaviour (needs `ribs`)",
    libraries=("ribs",),
)
