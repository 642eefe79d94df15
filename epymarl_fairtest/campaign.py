"""THE loop: ask the strategy, execute, judge, store, tell. It owns the budget; nobody else does.

A strategy is a generator: it yields a Request and receives the executed Episodes. It never touches
the engine, the disk or the budget. When the budget is used up, the campaign closes it.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest import rng
from epymarl_fairtest.config import NoOptions, Settings
from epymarl_fairtest.engine.contract import Engine
from epymarl_fairtest.episode import Episodes, Tests
from epymarl_fairtest.fairness import INDICES, Verdict, judge, totals
from epymarl_fairtest.ledger import ACCOUNTINGS, Ledger
from epymarl_fairtest.metrics import Tally
from epymarl_fairtest.pool import TrainingEpisode
from epymarl_fairtest.tasks.base import Task


@dataclass(frozen=True)
class Request:
    """Tests to execute, and why: the purpose decides how the ledger charges them.

    Without tests nothing is executed, `charge` episodes are charged, and nothing is told.
    """

    tests: Tests | None
    purpose: str
    charge: int = 0


class Clock:
    """Wall and CPU seconds since it was made, and the CPU seconds of each phase: the innermost one counts."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        self.phases: dict[str, float] = {}
        self._open: list[str] = []
        self._since = self._cpu

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        self._book()
        self._open.append(name)
        try:
            yield
        finally:
            self._book()
            self._open.pop()

    def _book(self) -> None:
        """Give the time since the last change to the phase that is open."""
        now = time.process_time()
        if self._open:
            self.phases[self._open[-1]] = self.phases.get(self._open[-1], 0.0) + now - self._since
        self._since = now

    def spent(self) -> dict[str, Any]:
        return {
            "wall_seconds": round(time.perf_counter() - self._wall, 3),
            "cpu_seconds": round(time.process_time() - self._cpu, 3),
            "phases": {name: round(seconds, 3) for name, seconds in self.phases.items()},
        }


Asking = Callable[[Episodes, NDArray[np.int32], NDArray[np.float32]], NDArray[np.float32]]
"""ask(episodes, steps (B,), obs (B, N, D)) -> the team's Q-values (B, N, A), had it seen `obs` at those steps."""


def _nobody_to_ask(*question: Any) -> Any:
    raise RuntimeError("this context was made without a team")


@dataclass(frozen=True)
class Context:
    """All a strategy may know, and where it leaves what the report should say about it."""

    task: Task
    settings: Settings
    seed: int
    theta: float
    available: NDArray[np.bool_]  # (agents, actions): which actions exist
    pool: Sequence[TrainingEpisode] = ()
    notes: dict[str, Any] = field(default_factory=dict)
    evidence: dict[str, NDArray[Any]] = field(default_factory=dict)
    warn: Callable[[str], None] = warnings.warn
    options: Any = None  # the method's own settings
    ask: Asking = _nobody_to_ask
    initial_states: Callable[[NDArray[np.int64]], NDArray[np.float64]] = _nobody_to_ask  # of seeds, nothing executed
    clock: Clock = field(default_factory=Clock)

    def generator(self, *names: str | int) -> np.random.Generator:
        """Randomness of its own for one purpose of this method."""
        return rng.named(self.seed, self.settings.method, *names)

    def index(self, received: NDArray[np.float64]) -> NDArray[np.float64]:
        """The fairness index that verdicts are made of; NaN where it is undefined."""
        return INDICES[self.settings.index](received)

    @property
    def stochastic(self) -> bool:
        """Does the team explore when it is tested?"""
        return self.settings.execution != "greedy" and (
            self.settings.execution != "epsilon_greedy" or self.settings.epsilon > 0
        )

    def note(self, name: str, value: Any) -> None:
        self.notes[name] = value

    def keep(self, name: str, value: NDArray[Any]) -> None:
        """An array for evidence.npz, from which the report draws."""
        self.evidence[name] = value

    def count(self, name: str, number: int) -> None:
        self.notes[name] = self.notes.get(name, 0) + number


Strategy = Generator[Request, Episodes, None]


@dataclass(frozen=True)
class Method:
    """A strategy as the registry holds it: the generator, the schema of its own settings, what it asks of a task."""

    strategy: Callable[[Context], Strategy]
    options: type = NoOptions
    needs: tuple[str, ...] = ()  # of tasks.base.ABILITIES


class BudgetSpent(Exception):
    """Thrown into a strategy that asks for more than is left: it may still ask for what is not charged."""


class Store(Protocol):
    def load_batch(self, number: int) -> Episodes | None: ...
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
        ledger: Ledger,
        on_batch: Callable[[int], None] = lambda charged: None,
    ) -> None:
        self._strategy, self._context, self._engine, self._store = strategy, context, engine, store
        self._budget, self._accounting = context.settings.budget, context.settings.accounting
        self.tally, self.ledger, self._on_batch = tally, ledger, on_batch
        self._clock = context.clock
        self._batches = 0

    def run(self) -> None:
        asking = self._strategy(self._context)
        told: Any = None  # what a generator must be sent first
        try:
            while True:
                with self._clock.phase("strategy"):
                    request = asking.send(told)
                    if self._is_charged(request) and self._left() <= 0:
                        request = asking.throw(BudgetSpent())
                        if self._is_charged(request):
                            break
                told = self._serve(request)
        except (StopIteration, BudgetSpent):
            pass  # the strategy has nothing more to ask, or nothing that is free of charge
        finally:
            asking.close()

    def _left(self) -> int:
        return self._budget - self.ledger.charged(self._accounting)

    def _is_charged(self, request: Request) -> bool:
        return request.purpose in ACCOUNTINGS[self._accounting]

    def _serve(self, request: Request) -> Episodes | None:
        if request.tests is None:
            charge = min(request.charge, self._left()) if self._is_charged(request) else request.charge
            self.ledger.charge(request.purpose, charge, 0)
            self._on_batch(self.ledger.charged(self._accounting))
            return None
        tests = request.tests
        if self._is_charged(request) and len(tests) > self._left():
            tests = tests.take(slice(self._left()))
        episodes = self._store.load_batch(self._batches)  # a resumed run has executed it already
        known = episodes is not None
        if episodes is None:
            with self._clock.phase("execution"):
                episodes = self._engine.execute(tests)
            episodes.id = self.ledger.executed_episodes + np.arange(len(episodes), dtype=np.int64)
        self.ledger.charge(request.purpose, len(episodes), episodes.executed_steps())
        index = self._context.index(totals(episodes.rewards))
        verdict = judge(index, self._context.theta)
        if not known:
            with self._clock.phase("saving"):
                self._store.save_batch(self._batches, request.purpose, episodes, index, verdict == Verdict.UNFAIR)
        self._batches += 1
        with self._clock.phase("counting"):
            executed = np.arange(episodes.limit)[None, :, None] >= episodes.start_step[:, None, None]
            suffix = self._context.index(totals(np.where(executed, episodes.rewards, 0.0)))
            self.tally.add(episodes, index, verdict, suffix, request.purpose)
        self._on_batch(self.ledger.charged(self._accounting))
        return episodes
