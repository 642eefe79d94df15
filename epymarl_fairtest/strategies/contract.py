"""What a strategy is, what it may know, and how it asks.

A strategy is a generator: it yields a Request and receives the judged episodes. It never touches the engine, the disk
or the budget. When the budget is used up, the campaign closes it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Sequence
from dataclasses import MISSING, dataclass, field, is_dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core import rng
from epymarl_fairtest.core.clock import Clock
from epymarl_fairtest.core.episodes import Episodes, Tests
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.judged import Judge, Judged, places_of
from epymarl_fairtest.core.registry import LATER, is_name, is_text, missing_parts
from epymarl_fairtest.settings import FIELDS, NoOptions, Settings, fields_of, options_of
from epymarl_fairtest.tasks import TASKS
from epymarl_fairtest.tasks.contract import ABILITIES, Task
from epymarl_fairtest.team.sample import TrainingEpisodes


@dataclass(frozen=True)
class Request:
    """Tests to execute, and why: the purpose decides how the ledger charges them.

    Without tests nothing is executed, `charge` episodes are charged, and nothing comes back.
    """

    tests: Tests | None
    purpose: str
    charge: int = 0


class BudgetSpent(Exception):
    """Thrown into a strategy that asks for more than is left: it may still ask for what is not charged."""


Asking = Callable[[Episodes, NDArray[np.int32], NDArray[np.float32]], NDArray[np.float32]]
"""ask(episodes, steps (B,), obs (B, N, D)) -> the team's scores (B, N, A), had it seen `obs` at those steps."""


def _nobody_to_ask(*question: Any) -> Any:
    raise RuntimeError("this context was made without a team")


@dataclass(frozen=True)
class Context:
    """All a strategy may know, and where it leaves what the report should say about it."""

    task: Task
    settings: Settings
    seed: int
    judge: Judge
    available: NDArray[np.bool_]  # (agents, actions): which actions exist
    reading: str = "q"  # how the team's scores are read (core/scores.py)
    sample: TrainingEpisodes = field(default_factory=TrainingEpisodes.none)  # of the team's training episodes
    notes: dict[str, Any] = field(default_factory=dict)
    evidence: dict[str, NDArray[Any]] = field(default_factory=dict)
    warn: Callable[[str], None] = warnings.warn
    options: Any = None  # the strategy's own settings
    ask: Asking = _nobody_to_ask
    initial_states: Callable[[NDArray[np.int64]], NDArray[np.float64]] = _nobody_to_ask  # of seeds, nothing executed
    clock: Clock = field(default_factory=Clock)

    @property
    def theta(self) -> float:
        return self.judge.theta

    @property
    def budget(self) -> int:
        """What the strategy may spend: calibrating the threshold comes first where it is charged."""
        calibration = self.settings.calibration if self.settings.accounting == "strict" else 0
        return self.settings.budget - calibration

    def generator(self, *names: str | int) -> np.random.Generator:
        """Randomness of its own for one purpose of this strategy."""
        return rng.named(self.seed, self.settings.method, *names)

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


Search = Generator[Request, Judged, None]
Check = Callable[[Settings, Any], object]


def _nothing_to_check(settings: Settings, options: Any) -> None:
    pass


@dataclass(frozen=True)
class Strategy:
    """A strategy as the registry holds it. It says everything that others need to know about it."""

    name: str  # the setting `method`
    label: str  # as tables and figures write it
    search: Callable[[Context], Search]
    options: type = NoOptions  # the schema of its own settings
    needs: tuple[str, ...] = ()  # of tasks.contract.ABILITIES
    observes: bool = True  # does it look at what the agents saw (episodes.obs)?
    random: tuple[str, ...] = ()  # purposes under which it executes the team as it is, from starts that nobody chose
    check: Check = _nothing_to_check  # raises FairTestError for settings that it cannot work with
    order: int = LATER  # among all strategies, in lists and tables
    doc: str = ""  # how it chooses tests, in a few words
    libraries: tuple[str, ...] = ()  # that FairTest itself does without; imported when it searches

    def chosen(self, settings: Settings) -> Any:
        """Its own settings in `settings`, checked."""
        return options_of(self.options, settings.options, self.name)

    @property
    def missing(self) -> list[str]:
        """Its libraries that are not installed here."""
        return [name for name in self.libraries if find_spec(name) is None]

    def check_settings(self, settings: Settings, task: Task | None = None) -> None:
        """Everything that can be refused before training; more of it once the task is known."""
        if self.missing:
            names = " ".join(self.missing)
            raise FairTestError(
                f"fairtest_args.method={self.name!r} needs {names}, which is not installed here: pip install {names}"
            )
        self.check(settings, self.chosen(settings))
        if task is not None:
            places_of(settings.agents, task.n_agents)
        for need in self.needs:
            if task is not None and not getattr(task, need):
                raise FairTestError(
                    f"fairtest_args.method={self.name!r} needs {ABILITIES[need]}, which the task {task.name!r} does"
                    " not offer. Choose method=random, or an environment with a task of its own"
                    f" ({', '.join(name for name, other in TASKS.items() if getattr(other, need))})."
                )
        if settings.accounting == "strict" and settings.budget <= settings.calibration:
            raise FairTestError(
                f"fairtest_args.budget={settings.budget} leaves nothing to the method: theta=auto takes"
                f" calibration_episodes={settings.calibration} of it (strict accounting). Set a larger budget or fewer"
                " calibration_episodes."
            )


def complaint(entry: Any) -> str | None:
    """What a foreign object lacks to be a strategy."""
    parts: dict[str, Callable[[Any], bool]] = {
        "name": is_name,
        "label": is_text,
        "search": callable,
        "options": lambda schema: isinstance(schema, type) and is_dataclass(schema),
        "needs": lambda needs: isinstance(needs, Sequence) and set(needs) <= set(ABILITIES),
        "random": lambda purposes: isinstance(purposes, tuple) and all(map(is_text, purposes)),
        "check": callable,
        "libraries": lambda names: isinstance(names, tuple) and all(map(is_name, names)),
    }
    return missing_parts(entry, Strategy, parts) or _wrong_option(entry.options)


def _wrong_option(schema: type) -> str | None:
    """An option that would keep the settings of every method from being read."""
    for name, option in fields_of(schema).items():
        if "rule" not in option.metadata or option.default is MISSING:
            return f"has the option {name!r} without a rule or a default (make it with settings.setting)"
        if option.metadata["flat"] and name in FIELDS:
            return f"has the flat option {name!r}, which is the name of a setting of all methods"
    return None
