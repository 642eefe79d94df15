"""THE loop: ask the strategy, execute, judge, store, tell. It owns the budget; nobody else does.

A strategy is a generator: it yields a Request and receives the executed Episodes. It never touches
the engine, the disk or the budget. When the budget is used up, the campaign closes it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from epymarl_fairtest.engine.contract import Engine
from epymarl_fairtest.episode import Episodes, Tests
from epymarl_fairtest.fairness import Verdict, jfi, judge, totals
from epymarl_fairtest.ledger import ACCOUNTINGS, Ledger
from epymarl_fairtest.metrics import Tally
from epymarl_fairtest.tasks.base import Task


@dataclass(frozen=True)
class Request:
    """Tests to execute, and why: the purpose decides how the ledger charges them."""

    tests: Tests
    purpose: str


@dataclass(frozen=True)
class Context:
    """All a strategy may know."""

    task: Task
    seed: int
    theta: float
    state_size: int
    limit: int
    batch: int


Strategy = Generator[Request, Episodes, None]


class Store(Protocol):
    def save_batch(self, number: int, purpose: str, episodes: Episodes, index: Any, failing: Any) -> None: ...


class Campaign:
    """One search for unfair episodes."""

    def __init__(
        self,
        strategy: Callable[[Context], Strategy],
        context: Context,
        engine: Engine,
        store: Store,
        tally: Tally,
        *,
        budget: int,
        accounting: str,
        on_batch: Callable[[int, int], None] = lambda episodes, failures: None,
    ) -> None:
        self._strategy, self._context, self._engine, self._store = strategy, context, engine, store
        self._budget, self._accounting, self._on_batch = budget, accounting, on_batch
        self.tally, self.ledger = tally, Ledger()

    def run(self) -> None:
        asking = self._strategy(self._context)
        number, told = 0, None
        try:
            while self._left() > 0:
                try:
                    request = next(asking) if told is None else asking.send(told)
                except StopIteration:
                    break
                told = self._execute(number, request)
                number += 1
        finally:
            asking.close()

    def _left(self) -> int:
        return self._budget - self.ledger.charged(self._accounting)

    def _execute(self, number: int, request: Request) -> Episodes:
        tests = request.tests
        if request.purpose in ACCOUNTINGS[self._accounting] and len(tests) > self._left():
            tests = tests.take(slice(self._left()))
        episodes = self._engine.execute(tests)
        episodes.id = self.ledger.executed_episodes + np.arange(len(episodes), dtype=np.int64)
        self.ledger.charge(request.purpose, len(episodes), episodes.executed_steps())
        index = jfi(totals(episodes.rewards))
        verdict = judge(index, self._context.theta)
        failing = verdict == Verdict.UNFAIR
        self._store.save_batch(number, request.purpose, episodes, index, failing)
        self.tally.add(episodes, index, verdict)
        self._on_batch(len(episodes), int(failing.sum()))
        return episodes


@dataclass
class Clock:
    """Wall and CPU seconds since it was made."""

    wall: float
    cpu: float

    @staticmethod
    def start() -> Clock:
        return Clock(time.perf_counter(), time.process_time())

    def spent(self) -> dict[str, float]:
        return {
            "wall_seconds": round(time.perf_counter() - self.wall, 3),
            "cpu_seconds": round(time.process_time() - self.cpu, 3),
        }
