"""Scout without one of its parts, where no option switches that part off. Run by benchmarks.effect.

    python -m benchmarks.ablations PART run --policy policies/pp-iql --method scout ...

PART is one of PARTS; the words behind it are those of `fairtest`. The search keeps its name and its random numbers.
"""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np

from epymarl_fairtest.commands import main as fairtest
from epymarl_fairtest.core.episodes import random_tests
from epymarl_fairtest.core.ledger import EXECUTION
from epymarl_fairtest.strategies import STRATEGIES
from epymarl_fairtest.strategies.contract import Context, Request, Search
from epymarl_fairtest.strategies.scout.known import Array
from epymarl_fairtest.strategies.scout.lookout import Lookout
from epymarl_fairtest.strategies.scout.options import ScoutOptions
from epymarl_fairtest.strategies.scout.search import UNGUIDED, look_and_execute
from epymarl_fairtest.strategies.scout.surrogate import Surrogate


class Blind(Surrogate):
    """Expects anything: starts are chosen in a random order."""

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator

    def received(self, features: Array) -> Array:
        return self._generator.random(features.shape[:2])


class Sorted(Surrogate):
    """Expects the same, but does not tell which agent receives it: the index stays as it is."""

    def __init__(self, surrogate: Surrogate) -> None:
        self._surrogate = surrogate

    def received(self, features: Array) -> Array:
        return np.sort(self._surrogate.received(features), axis=1)


class OfTheIndex(Surrogate):
    """A model of the index itself, from what all agents see together."""

    def __init__(self, features: Array, index: Array, options: ScoutOptions) -> None:
        super().__init__(features.reshape(len(features), 1, -1), index[:, None], options)

    def received(self, features: Array) -> Array:
        """Shares that are in the order of the expected index: all receive 1, one more the less fair it is."""
        expected = super().received(features.reshape(len(features), 1, -1))
        shares = np.ones(features.shape[:2])
        shares[:, -1] += np.maximum(2 - expected[:, 0], 0)
        return shares


class BlindLookout(Lookout):
    def _surrogate(self, rng: np.random.Generator) -> Surrogate:
        return Blind(rng)


class OneQuota(Lookout):
    """Whoever comes off worst, starts compete for the same places. Needs least_quota=0."""

    def __init__(self, context: Context, options: ScoutOptions) -> None:
        super().__init__(context, options)
        self._of_worst[1:] = 0

    def _surrogate(self, rng: np.random.Generator) -> Surrogate:
        return Sorted(super()._surrogate(rng))


class IndexLookout(OneQuota):
    def _surrogate(self, rng: np.random.Generator) -> Surrogate:
        known, rows = self._known, np.arange(len(self))
        if len(rows) > self._options.rows:
            rows = np.sort(rng.choice(len(rows), self._options.rows, replace=False))
        return OfTheIndex(known.features(known.states[rows]), known.index[rows], self._options)


PARTS: dict[str, type[Lookout]] = {"surrogate": BlindLookout, "per_agent": IndexLookout, "quotas": OneQuota}


def search(lookout_of: type[Lookout], context: Context) -> Search:
    """Scout's loop with another lookout."""
    lookout, generator = lookout_of(context, context.options), context.generator("tests")
    tests = random_tests(context.options.initial, context.task.state_size, generator)
    lookout.learn((yield Request(tests, UNGUIDED)))
    while (left := context.budget - len(lookout)) > 0:
        yield from look_and_execute(context, lookout, left, generator, EXECUTION, UNGUIDED)


def main() -> int:
    part, words = sys.argv[1], sys.argv[2:]
    entry = replace(STRATEGIES["scout"], search=lambda context: search(PARTS[part], context))
    with STRATEGIES.having(entry):
        return fairtest(words)


if __name__ == "__main__":
    sys.exit(main())
