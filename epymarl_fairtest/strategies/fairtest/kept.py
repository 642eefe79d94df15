"""The crossover children that ever entered a population. They wait for the end of the search, and in little room."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core.episodes import Episodes, Tests
from epymarl_fairtest.strategies.contract import Context
from epymarl_fairtest.strategies.genetic.operators import Rows, Splices

BY_STEP = ("states", "obs", "actions", "rewards", "q")  # of episodes: what has a value for every step


class Kept:
    """Their tests, and the verdicts that the splices promise."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.next_number = 0
        self._waiting: list[Waiting] = []
        self._promised: list[NDArray[np.bool_]] = []
        self._executed: list[NDArray[np.bool_]] = []

    def __len__(self) -> int:
        return sum(map(len, self._promised))

    def add(self, entered: Rows, splices: Splices) -> None:
        """Keep those of the newest `splices` that the selection let in; `entered` are the numbers of all it let in."""
        rows = np.sort(entered[entered >= self.next_number] - self.next_number)
        self.next_number += len(splices.tests)
        if len(rows):
            self._waiting.append(Waiting.of(splices.tests.take(rows)))
            self._promised.append(self._context.judge(splices.episodes.take(rows)).unfair)

    def tests(self, most: int) -> Iterator[Tests]:
        """All tests in batches of about `most`: a long search keeps more than can be executed at once."""
        while self._waiting:
            batch = [self._waiting.pop(0).tests()]
            while self._waiting and sum(map(len, batch)) + len(self._waiting[0]) <= most:
                batch.append(self._waiting.pop(0).tests())
            yield Tests.concatenate(batch)

    def executed(self, unfair: NDArray[np.bool_]) -> None:
        """The verdicts of the next batch."""
        self._executed.append(unfair)

    def summary(self) -> dict[str, Any]:
        """How often the execution gave the verdict that the splice promised."""
        if not self._executed:
            return {"kept": len(self), "executed": 0}
        executed = np.concatenate(self._executed)
        same = np.concatenate(self._promised)[: len(executed)] == executed
        return {
            "kept": len(self),
            "executed": len(executed),
            "failures": int(executed.sum()),
            "agreement": float(same.mean()) if len(executed) else None,
        }


@dataclass(frozen=True)
class Waiting:
    """Tests without the steps of their prefixes that they do not follow."""

    _tests: Tests
    _limit: int
    _prefix: Episodes | None  # what has a value for every step: followed steps of all rows, one after the other

    def __len__(self) -> int:
        return len(self._tests)

    @classmethod
    def of(cls, tests: Tests) -> Waiting:
        prefix = tests.prefix
        if prefix is None:
            return cls(tests, 0, None)
        followed = _followed(tests, prefix.limit)
        steps = {name: getattr(prefix, name)[:, : prefix.limit][followed] for name in BY_STEP}
        return cls(replace(tests, prefix=None), prefix.limit, replace(prefix, **steps))

    def tests(self) -> Tests:
        """As they were, and zero in steps that they do not follow."""
        if self._prefix is None:
            return self._tests
        followed, whole = _followed(self._tests, self._limit), {}
        for name in BY_STEP:
            values = getattr(self._prefix, name)
            steps = self._limit + (name == "states")
            whole[name] = np.zeros((len(self), steps, *values.shape[1:]), values.dtype)
            whole[name][:, : self._limit][followed] = values
        return replace(self._tests, prefix=replace(self._prefix, **whole))


def _followed(tests: Tests, limit: int) -> NDArray[np.bool_]:
    return np.arange(limit) < tests.start_step[:, None]
