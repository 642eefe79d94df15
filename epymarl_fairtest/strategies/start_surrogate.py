"""A surrogate of the start: a forest that knows starts alone proposes which seeds are worth executing.

A baseline of our own, not a published method: it shows how much of the unfairness is decided before the first step,
and every failure it finds has a start of its own. A reset shows a start without a step of the environment, so looking
at starts is free; only executions are charged.

The forest predicts the fairness index itself. It learns from every episode, where a classifier only has the few
failures to go by: with the same proposals it found up to twice as many (docs/baselines.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core.episodes import Tests, random_tests
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.judged import Judged
from epymarl_fairtest.core.ledger import EXECUTION
from epymarl_fairtest.settings import AT_ONCE, between, setting, whole
from epymarl_fairtest.strategies.contract import Context, Request, Search, Strategy

if TYPE_CHECKING:
    from sklearn.ensemble import RandomForestRegressor

GROWTH = 10  # a batch is at least 1/GROWTH of what was executed: a large budget is not spent on fitting


@dataclass(frozen=True)
class StartSurrogateOptions:
    initial: int = setting(whole(1, AT_ONCE), "random executions that the first forest learns from", 200)
    refit: int = setting(
        whole(1, 10_000), "executions between two fits; a tenth of all executions so far if that is more", 100
    )
    sample: int = setting(whole(1, 1_000), "fresh seeds whose initial states the forest compares, per execution", 100)
    explore: float = setting(between(0, 1), "share of the executions that the forest does not choose", 0.1)
    trees: int = setting(whole(1, 10_000), "trees of the forest", 100)


def start_surrogate(context: Context) -> Search:
    options, size, generator = context.options, context.task.state_size, context.generator("tests")
    if not size:
        raise FairTestError(
            f"fairtest_args.method='start_surrogate' learns from starts, and the task {context.task.name!r} does not"
            " show its states here. Choose method=random."
        )
    executed = yield Request(random_tests(options.initial, size, generator), EXECUTION)
    starts, index = learned(executed)
    while True:
        forest = fitted(starts, index, context)
        batch = max(options.refit, len(starts) // GROWTH)
        sample = random_tests(batch * options.sample, size, generator)
        executed = yield Request(promising(sample, batch, forest, context), EXECUTION)
        more_starts, more_index = learned(executed)
        starts, index = np.concatenate([starts, more_starts]), np.concatenate([index, more_index])


def learned(judged: Judged) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Starts and the fairness index they led to; where nobody received anything, nobody was treated worse."""
    return judged.episodes.states[:, 0], np.nan_to_num(judged.index, nan=1.0)


def fitted(starts: NDArray[np.float64], index: NDArray[np.float64], context: Context) -> RandomForestRegressor:
    from sklearn.ensemble import RandomForestRegressor

    forest = RandomForestRegressor(
        n_estimators=context.options.trees,
        min_samples_leaf=5,
        max_features="sqrt",
        random_state=int(context.generator("forest", len(starts)).integers(2**31)),
        n_jobs=context.settings.threads,
    )
    with context.clock.phase("predictor"):
        forest.fit(starts, index)
    # Threads would add up the trees' answers in the order in which they finish: the last bit would be random.
    return forest.set_params(n_jobs=1)


def promising(sample: Tests, count: int, forest: RandomForestRegressor, context: Context) -> Tests:
    """The tests of the sample with the lowest predicted index, and a share that was simply drawn first."""
    explored = round(context.options.explore * count)
    predicted = forest.predict(context.initial_states(sample.root_seed))
    lowest = np.argsort(predicted[explored:], kind="stable")[: count - explored]
    return sample.take(np.concatenate([explored + lowest, np.arange(explored)]))


STRATEGY = Strategy(
    "start_surrogate",
    "Start surrogate",
    start_surrogate,
    StartSurrogateOptions,
    observes=False,
    order=22,
    doc="a forest that predicts fairness from the initial state (ours)",
)
