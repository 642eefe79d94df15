"""A search in memory: everything that a strategy asked for and was given, and what was executed for it.

It goes through the same preparation and the same loop as a run; only the folder is not there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.campaign.run import Run
from epymarl_fairtest.core.clock import Clock
from epymarl_fairtest.core.episodes import Episodes, Tests
from epymarl_fairtest.core.judged import Judged
from epymarl_fairtest.core.ledger import Ledger
from epymarl_fairtest.engine.contract import Engine
from epymarl_fairtest.settings import Settings
from epymarl_fairtest.team.contract import Team

FREE = 10  # times the budget: who executes more than that is not charged for it
EMPTY = 100  # requests without a single test, one after the other


@dataclass(frozen=True)
class Batch:
    """One request: why, what was executed (cut to the budget), and what came of it."""

    purpose: str
    tests: Tests
    judged: Judged


class Recorder:
    """An engine that remembers what it executes, and refuses to execute forever."""

    def __init__(self, engine: Engine, most: int) -> None:
        self.name, self.keeps_obs, self.needs_obs = engine.name, engine.keeps_obs, engine.needs_obs
        self.keeps_course, self.keeps_memory = engine.keeps_course, engine.keeps_memory
        self._engine, self._most, self._empty = engine, most, 0
        self.tests: list[Tests] = []
        self.episodes = self.steps = 0

    def execute(self, tests: Tests) -> Episodes:
        self._empty = 0 if len(tests) else self._empty + 1
        assert self._empty < EMPTY, f"{EMPTY} requests in a row held no test: such a search never ends"
        assert self.episodes + len(tests) <= self._most, (
            f"more than {self._most} episodes were executed, many times the budget: nobody is charged for them"
        )
        episodes = self._engine.execute(tests)
        self.tests.append(tests)
        self.episodes += len(episodes)
        self.steps += episodes.executed_steps()
        return episodes

    def search_is_over(self) -> None:
        """Steps after it execute as much as they need, on accounts of their own."""
        self._most = 2**63

    def around(self, engine: object) -> bool:
        return self._engine is engine

    def initial_states(self, seeds: NDArray[np.int64]) -> NDArray[np.float64]:
        return self._engine.initial_states(seeds)


@dataclass
class Memory:
    """A run folder that is none."""

    batches: list[tuple[str, Judged]] = field(default_factory=list)
    resumed = True  # nobody wants a manifest

    def load_batch(self, number: int) -> Episodes | None:
        return None

    def save_batch(self, number: int, purpose: str, judged: Judged) -> None:
        self.batches.append((purpose, judged))

    def failure_count(self) -> int:
        return sum(int(judged.unfair.sum()) for _, judged in self.batches)

    def failures(self, rows: NDArray[np.int64]) -> Episodes:
        """As a folder gives them: without what the agents saw."""
        failures = Episodes.concatenate([judged.episodes.take(judged.unfair) for _, judged in self.batches]).take(rows)
        failures.obs = failures.obs[..., :0]
        return failures


@dataclass(frozen=True)
class Searched:
    """A search that is over."""

    run: Run
    engine: Recorder
    batches: list[Batch]

    @property
    def ledger(self) -> Ledger:
        return self.run.ledger

    def executed(self, purpose: str) -> list[Batch]:
        return [batch for batch in self.batches if batch.purpose == purpose]


def searched(
    team: Team, settings: Settings, seed: int = 0, warn: Callable[[str], None] = lambda message: None
) -> Searched:
    """The search of the strategy that the settings name, until its budget is spent."""
    memory: Any = Memory()
    run = Run(team, settings, memory, seed, "", warn, ())
    run.clock, run.ledger = Clock(), Ledger()
    run.prepare()
    run.engine = recorder = Recorder(run.engine, FREE * (settings.budget + 50))
    run.search()
    recorder.search_is_over()
    pairs = zip(memory.batches, recorder.tests, strict=True)
    return Searched(run, recorder, [Batch(purpose, tests, judged) for (purpose, judged), tests in pairs])
