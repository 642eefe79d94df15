"""A population and what Algorithm 1 does with it: score, prioritise, breed and select."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core.episodes import Episodes, Tests
from epymarl_fairtest.core.judged import Judged
from epymarl_fairtest.predictor import traces_of
from epymarl_fairtest.strategies.contract import Context
from epymarl_fairtest.strategies.fairtest.fitness import Fitness
from epymarl_fairtest.strategies.fairtest.plan import Plan
from epymarl_fairtest.strategies.fairtest.screen import Screen
from epymarl_fairtest.strategies.genetic.mosa import mosa_select, standing, tournament
from epymarl_fairtest.strategies.genetic.operators import Rows, Splices, crossover, mutate
from epymarl_fairtest.strategies.genetic.pareto import pareto_select

EXECUTED = -1


@dataclass(frozen=True)
class Population:
    """Episodes with their scores. A splice was never executed: it has no f1 and is never a parent."""

    episodes: Episodes
    scores: NDArray[np.float64]  # (B, 3): f1, f2, f3
    splice: Rows  # its number, EXECUTED for an executed episode

    def __len__(self) -> int:
        return len(self.episodes)

    def take(self, rows: Any) -> Population:
        return Population(self.episodes.take(rows), self.scores[rows], self.splice[rows])


def join(a: Population, b: Population) -> Population:
    return Population(
        Episodes.concatenate([a.episodes, b.episodes]),
        np.concatenate([a.scores, b.scores]),
        np.concatenate([a.splice, b.splice]),
    )


class Breeding:
    """What one search does with populations, by its plan and its fitness functions."""

    def __init__(self, context: Context, plan: Plan, fitness: Fitness, screen: Screen | None = None) -> None:
        self._context, self._plan, self._fitness, self._screen = context, plan, fitness, screen
        # f1 and f2 have goals: a failure, and an even chance of one. f3 is a direction without an end: it never
        # holds the search back by being the only objective that nobody has covered.
        self._goals = fitness.active(np.array([[context.theta, 0.5, np.inf]]))[0]

    def executed(self, judged: Judged) -> Population:
        if self._screen:
            self._screen.learn(judged)
        scores = self._fitness(judged.index, traces_of(judged))
        return Population(judged.episodes, scores, np.full(len(judged), EXECUTED, np.int64))

    def spliced(self, splices: Splices, first: int) -> Population:
        """Crossover children, numbered from `first`, scored from recorded transitions: f1 is missing until one is
        executed."""
        unknown = np.full(len(splices.episodes), np.nan)
        scores = self._fitness(unknown, traces_of(self._context.judge(splices.episodes)))
        return Population(splices.episodes, scores, first + np.arange(len(unknown)))

    def prioritise(self, candidates: Population, among: Rows | None = None) -> Population:
        """ParetoSelect on the predictive objectives; without them, or prioritisation, simply the first ones."""
        size, options = self._plan.population, self._context.options
        rows = np.arange(len(candidates)) if among is None else among  # a pool is too large to be copied
        scores = candidates.scores[rows]
        predictive = self._fitness.active(scores, ("f2", "f3"))
        if not options.prioritise or not predictive.shape[1]:
            return candidates.take(rows[:size])
        return candidates.take(rows[pareto_select(predictive, scores[:, 2], size, self._plan.cap, options.fill)])

    def select(self, merged: Population) -> Population:
        """MOSASelect on the active objectives; unguided, the newest replace the oldest."""
        active = self._fitness.active(merged.scores)
        if not active.shape[1]:
            return merged.take(np.arange(len(merged))[-self._plan.population :])
        return merged.take(mosa_select(active, self._goals, self._plan.population))

    def can_breed(self, population: Population) -> bool:
        if (population.splice == EXECUTED).any():
            return True
        self._context.warn(
            "No executed episode of at least 5 steps is left to breed from: the rest of the round is skipped."
        )
        return False

    def offspring(self, population: Population, rng: np.random.Generator) -> tuple[Splices, Tests]:
        """Line 9: crossover children and the tests of the mutants."""
        context, plan = self._context, self._plan
        parents = population.take(population.splice == EXECUTED)
        draw = self._parents(parents, rng)
        d = self._fitness.predictor.abstraction.d
        splices, alone = crossover(parents.episodes, draw, plan.splices // 2, d, context.task, rng)
        drawn = plan.offspring * (context.options.screen if self._screen else 1)
        mutants, refused = mutate(parents.episodes, draw, drawn, context.task, rng)
        if self._screen:
            unfair = parents.episodes.id[parents.scores[:, 0] <= context.theta]
            mutants = self._screen.most_promising(mutants, unfair, plan.offspring, rng)
        context.count("crossover_without_partner", alone)
        context.count("mutations_refused", refused)
        return splices, mutants

    def _parents(self, parents: Population, rng: np.random.Generator) -> Any:
        active = self._fitness.active(parents.scores)
        if self._context.options.parents == "uniform" or not active.shape[1]:
            return lambda count: rng.integers(0, len(parents), count)
        rank, distance = standing(active, self._goals)
        return lambda count: tournament(rank, distance, count, self._context.options.tournament, rng)
