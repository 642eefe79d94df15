"""What a step after the search is: a generator like a strategy, under a purpose of its own in the ledger.

It asks for executions and returns what goes into the run folder, the summary and the page. What it executes is never
charged against the strategy's budget. It is deterministic, so that a resumed run simply takes its steps again.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core import rng
from epymarl_fairtest.core.episodes import Episodes, Tests
from epymarl_fairtest.core.judged import Judge
from epymarl_fairtest.core.registry import LATER, is_name, is_text, missing_parts
from epymarl_fairtest.engine.contract import Engine
from epymarl_fairtest.settings import Settings
from epymarl_fairtest.team.contract import Team


class Failures(Protocol):
    """The failures of the search, as they lie in the run folder."""

    def failure_count(self) -> int: ...
    def failures(self, rows: NDArray[np.int64]) -> Episodes: ...


@dataclass(frozen=True)
class Execute:
    """Tests that a step wants executed: `real` ones in the environment itself, others by the run's engine."""

    tests: Tests
    real: bool = False
    course: bool = True  # are states and scores wanted, or only what the agents receive?
    memory: bool = False  # is what the agents carry from step to step wanted, if the engine keeps it?

    def by(self, engine: Engine, real: Engine) -> Episodes:
        """Executed; `real` is the environment itself."""
        if self.real:
            return real.execute(self.tests)
        engine.keeps_course, engine.keeps_memory = self.course, self.memory
        try:
            return engine.execute(self.tests)
        finally:
            engine.keeps_course, engine.keeps_memory = True, False


@dataclass(frozen=True)
class Aftermath:
    """All a step may know."""

    team: Team
    settings: Settings
    seed: int
    judge: Judge
    recorded: Failures
    random: tuple[int, int]  # random executions of the search: how many were unfair, and how many there are
    executions: Mapping[str, NDArray[Any]]  # one row per judged episode, those of earlier steps too; {} without one
    look: Callable[[Episodes], Episodes]  # the same episodes with what the agents saw, looked at in real worlds
    warn: Callable[[str], None]
    engine: str = "twin"  # what executes: its name
    needs_obs: bool = False  # can it continue the episodes of a team with a memory only from what the agents saw?
    uncounted: NDArray[np.bool_] | None = None  # by failure: which an earlier step left out of every count

    def generator(self, *names: str | int) -> np.random.Generator:
        return rng.named(self.seed, *names)


@dataclass(frozen=True)
class Outcome:
    """What a step leaves behind."""

    summary: Mapping[str, Any] = field(default_factory=dict)  # keys of summary.json
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)  # of failures.npz and failures.csv, by failure
    files: Mapping[str, Mapping[str, NDArray[Any]]] = field(default_factory=dict)  # NAME.npz -> its arrays
    documents: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # NAME.json -> what it says
    executions: Mapping[str, NDArray[Any]] = field(default_factory=dict)  # random ones that it made, row by row
    uncounted: NDArray[np.bool_] | None = None  # by failure: which are kept and left out of every count


Steps = Generator[Execute, Episodes, Outcome]


def taken(asking: Generator[Execute, Episodes, Any], execute: Callable[[Execute], Episodes]) -> Any:
    """What a generator returns once everything that it asks for was executed."""
    answer: Any = None  # what a generator must be sent first
    while True:
        try:
            wanted = asking.send(answer)
        except StopIteration as end:
            return end.value
        answer = execute(wanted)


Paragraphs = Callable[[Mapping[str, Any]], "list[str]"]


def _says_nothing(summary: Mapping[str, Any]) -> list[str]:
    return []


@dataclass(frozen=True)
class Step:
    """A step as the registry holds it."""

    name: str
    phase: str  # what it is doing, for the progress bar and the CPU time
    purpose: str  # of its executions, in the ledger
    run: Callable[[Aftermath], Steps]
    command: str = ""  # that does it for a finished run: `fairtest COMMAND`
    title: str = ""  # of its section of the page; none without one
    section: Paragraphs = _says_nothing  # what the page says, from the summary
    order: int = LATER


def complaint(entry: Any) -> str | None:
    """What a foreign object lacks to be a step."""
    parts: dict[str, Callable[[Any], bool]] = {"name": is_name, "phase": is_text, "purpose": is_text, "run": callable}
    return missing_parts(entry, Step, parts)
