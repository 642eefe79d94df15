"""GMT (Li et al. 2023): a diffusion model proposes starts, drawn towards rare terminal states.

It knows starts as the task's vectors, and how often the coverage cells of terminal states were reached.

The released code (lizhuo-1994/mdp_testing) is not followed where it does not do what the method says:
- its guidance term is a constant for the network, so its gradient is zero: here novelty weighs the loss of each case;
- novelty enters as a quantity to be minimised: here a novel case counts for more;
- its forward process scales by the cumulative product where its square root belongs, and 25 steps of its noise
  schedule keep four fifths of the signal, while sampling starts from pure noise: here the schedule ends in noise;
- it predicts the posterior mean, one case at a time: here a batch, and the noise (epsilon), as is usual;
- it alternates between 50 random and 50 generated cases and trains on the last of both: here the random ones all come
  first, as a warm-up, and stay beside the latest generated ones in what the model is trained on.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core.episodes import Episodes, Tests, random_tests
from epymarl_fairtest.core.ledger import EXECUTION
from epymarl_fairtest.strategies.contract import Context, Request, Search
from epymarl_fairtest.strategies.gmt.diffusion import Cases, Diffusion
from epymarl_fairtest.strategies.starts import starting_from

Array = NDArray[np.float64]
WARMUP_SHARE = 5  # the warm-up takes at most one part in five of the budget


def gmt(context: Context) -> Search:
    """Train on normal starts; then generate, execute, see what was new, retrain."""
    options, task = context.options, context.task
    generator, visits = context.generator("tests"), Visits(context)
    size = max(1, min(options.warmup, context.budget // WARMUP_SHARE))
    normal = visits.cases((yield Request(random_tests(size, task.state_size, generator), EXECUTION)).episodes)
    model = Diffusion(normal.starts.shape[1], options, context.generator("diffusion"))
    model.train(normal, options.epochs * -(-len(normal) // options.minibatch))
    latest = normal.last(0)
    while True:
        executed = yield Request(propose(model, context, generator), EXECUTION)
        latest = latest.joined(visits.cases(executed.episodes)).last(options.memory)
        model.train(normal.joined(latest), options.retraining)


class Visits:
    """How often each cell of the coverage grid held a terminal state."""

    def __init__(self, context: Context) -> None:
        self._task, self._bins = context.task, context.settings.coverage_bins
        self._novelty_weight = context.options.novelty_weight
        self._cells = np.empty(0, np.int64)  # one per episode so far

    def cases(self, episodes: Episodes) -> Cases:
        terminal = episodes.states[np.arange(len(episodes)), episodes.length]
        weight = 1 + self._novelty_weight * self.novelty(self._task.cells(terminal, self._bins))
        return Cases(self._task.start_vectors(episodes.states[:, 0]), weight)

    def novelty(self, cells: NDArray[np.int64]) -> Array:
        """exp(-(visits - 1)) of each cell in turn, this visit included."""
        self._cells = np.concatenate([self._cells, cells])
        order = np.argsort(self._cells, kind="stable")
        ranked = self._cells[order]
        visits = np.empty_like(order)
        visits[order] = 1 + np.arange(len(order)) - np.searchsorted(ranked, ranked)
        novelty: Array = np.exp(1.0 - visits[len(order) - len(cells) :])
        return novelty


def propose(model: Diffusion, context: Context, generator: np.random.Generator) -> Tests:
    """A cycle of tests: valid starts from the model, and random ones for those it does not yield."""
    task, missing, states = context.task, context.options.cycle, []
    for _ in range(context.options.redraws):
        drawn, valid = task.starts_from(model.sample(missing))
        states.append(drawn[valid])
        context.count("invalid_starts", int((~valid).sum()))
        missing -= int(valid.sum())
        if not missing:
            break
    context.count("random_starts", missing)
    tests = starting_from(np.concatenate(states), generator)
    return Tests.concatenate([tests, random_tests(missing, task.state_size, generator)])
