"""THE loop: ask the strategy, execute, judge, store, answer. It alone owns the budget."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from epymarl_fairtest.campaign.tally import Tally
from epymarl_fairtest.core.episodes import Episodes
from epymarl_fairtest.core.judged import Judged
from epymarl_fairtest.core.ledger import Ledger, is_charged
from epymarl_fairtest.engine.contract import Engine
from epymarl_fairtest.strategies.contract import BudgetSpent, Context, Request, Strategy


class Store(Protocol):
    def load_batch(self, number: int) -> Episodes | None: ...
    def save_batch(self, number: int, purpose: str, judged: Judged) -> None: ...


class Campaign:
    """One search for unfair episodes."""

    def __init__(
        self,
        strategy: Strategy,
        context: Context,
        engine: Engine,
        store: Store,
        tally: Tally,
        ledger: Ledger,
        on_batch: Callable[[int], None] = lambda charged: None,
    ) -> None:
        self._strategy, self._context, self._engine, self._store = strategy, context, engine, store
        self._budget, self._accounting = context.settings.budget, context.settings.accounting
        self.tally, self.ledger, self._on_batch = tally, ledger, on_batch
        self._clock = context.clock
        self._batches = 0

    def run(self) -> None:
        asking = self._strategy.search(self._context)
        answer: Any = None  # what a generator must be sent first
        try:
            while True:
                with self._clock.phase("strategy"):
                    request = asking.send(answer)
                    if self._is_charged(request) and self._left() <= 0:
                        request = asking.throw(BudgetSpent())
                        if self._is_charged(request):
                            break
                answer = self._serve(request)
        except (StopIteration, BudgetSpent):
            pass  # the strategy has nothing more to ask, or nothing that is free of charge
        finally:
            asking.close()

    def _left(self) -> int:
        return self._budget - self.ledger.charged(self._accounting)

    def _is_charged(self, request: Request) -> bool:
        return is_charged(request.purpose, self._accounting)

    def _serve(self, request: Request) -> Judged | None:
        if request.tests is None:
            charge = min(request.charge, self._left()) if self._is_charged(request) else request.charge
            self.ledger.charge(request.purpose, charge, 0)
            self._on_batch(self.ledger.charged(self._accounting))
            return None
        tests = request.tests
        if self._is_charged(request) and len(tests) > self._left():
            tests = tests.take(slice(self._left()))
        episodes = self._store.load_batch(self._batches)  # a resumed run has executed it already
        known = episodes is not None and episodes.answer(tests)
        if episodes is None or not known:
            with self._clock.phase("execution"):
                episodes = self._engine.execute(tests)
            episodes.id = self.ledger.executed_episodes + np.arange(len(episodes), dtype=np.int64)
        self.ledger.charge(request.purpose, len(episodes), episodes.executed_steps())
        judged = self._context.judge(episodes)
        if not known:
            with self._clock.phase("saving"):
                self._store.save_batch(self._batches, request.purpose, judged)
        self._batches += 1
        with self._clock.phase("counting"):
            self.tally.add(judged, request.purpose, random=request.purpose in self._strategy.random)
        self._on_batch(self.ledger.charged(self._accounting))
        return judged
