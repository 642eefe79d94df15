"""STARLA (Zolfagharian et al. 2023): a genetic search for faulty episodes, guided by a forest on abstract states.

Most offspring are crossover children, which are scored from their records; mutants are executed, and after the last
generation so are the children that are probably faulty. It must not know how tests are executed or judged.

The released code differs: it tests one agent; it scans 50 candidates for a partner, where we keep an index of joint
abstract states; it counts a picked parent that was not mutated as offspring; it executes mutants a second time; it has
a threshold for the reward, where ours always guides. Not reproduced: a candidate enters a front only if it dominates
all others; objective values of 100 and more are ignored; the last drawn that dominates anybody wins a tournament; the
search for a partner may never end; the final execution takes the agent's own actions: it only plays the start again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count

import numpy as np

from epymarl_fairtest.core.episodes import Episodes, Tests, random_tests
from epymarl_fairtest.core.judged import Judged
from epymarl_fairtest.core.ledger import EXECUTION, MUTANT
from epymarl_fairtest.core.scores import weights
from epymarl_fairtest.predictor import Traces, fit_predictor, traces_of, traces_of_sample
from epymarl_fairtest.settings import AT_ONCE, between, one_of, setting, whole
from epymarl_fairtest.strategies.contract import Context, Request, Search
from epymarl_fairtest.strategies.genetic.guidance import LEVEL, TEMPERATURE, temperature_of
from epymarl_fairtest.strategies.genetic.mosa import mosa_select, uncovered
from epymarl_fairtest.strategies.genetic.operators import Rows
from epymarl_fairtest.strategies.random import RandomOptions, random_executions
from epymarl_fairtest.strategies.starla.operators import (
    SHORTEST,
    Bools,
    Population,
    Scores,
    crossover,
    excused_in,
    explorations,
    forced_actions,
    is_mutated,
    join,
    mutate,
    tests_of,
    tournament,
)

GOALS = np.array([-np.inf, 0.04, 0.05])  # of reward, margin and forest; reaching one covers the objective
FAULTY = 0.5  # a child is probably faulty if the forest's "no fault" is less probable than this
CROSSOVER = 0.75
LARGEST = 0.25  # share of what is left that a round's random executions may take,
SMALLEST = 20  # which are at least this many


@dataclass(frozen=True)
class StarlaOptions:
    population: int = setting(
        whole(2, AT_ONCE), "random executions of a round, at most a quarter of what is left", 1500
    )
    generations: int = setting(whole(1), "generations of a round; its probably faulty children are executed then", 10)
    reserve: float = setting(between(0, 0.9), "share of what is left that a round keeps for executing children", 0.2)
    tournament: int = setting(whole(1, 1_000), "episodes per tournament", 10)
    objective: str = setting(
        one_of("reward", "jfi"), "what is minimised beside margin and forest: the team's return, or the index", "reward"
    )
    f3_temperature: float | str = setting(
        TEMPERATURE, "softmax temperature of the margin; scaled is the median Q range", "scaled", flat=True
    )
    d: float | None = setting(LEVEL, "abstraction level; null: by out-of-bag AUC", None, flat=True)


def starla(context: Context) -> Search:
    """Rounds until the budget is spent: each is the released search, from random executions of its own."""
    options, left, known = context.options, context.budget, [traces_of_sample(context.sample)]
    for number in count():
        size = min(options.population, max(int(LARGEST * left), SMALLEST))
        tests = random_tests(size, context.task.state_size, context.generator("initial", number))
        initial = yield Request(tests, EXECUTION)
        left -= len(initial)
        if left <= 0:
            return
        known.append(traces_of(initial))
        search = Round(context, number, initial, Objectives(context, Traces.concatenate(known)))
        if not len(search.population):
            context.warn(
                f"No episode has {SHORTEST} steps, so there is nothing to breed from: STARLA continues at random."
            )
            yield from random_executions(context, RandomOptions.batch)
        reserved = options.reserve * left
        for _ in range(options.generations):
            children, parents = search.offspring()
            if len(parents):
                tests, points = mutate(parents, context, search.rng)
                mutants = yield Request(tests, MUTANT)
                left -= len(mutants)
                children = join(children, search.mutants(mutants, parents, points))
            search.select(children)
            if left <= reserved:
                break
        for candidates in search.archive.candidates(options.population):
            executed = yield Request(candidates, EXECUTION)
            left -= len(executed)
            search.note_replaced(executed.episodes)


class Round:
    """One round: a population, which objectives were ever covered, and the archive of probably faulty children."""

    def __init__(self, context: Context, number: int, initial: Judged, objectives: Objectives) -> None:
        self._context, self._objectives = context, objectives
        self.rng = context.generator("search", number)
        everybody = self._scored(initial, explorations(initial.episodes, context.available))
        self.population = everybody.take(initial.episodes.length >= SHORTEST)
        self._size, self._best = len(self.population), everybody.scores.min(axis=0)
        self.archive = Archive(everybody.scores)

    def _scored(self, judged: Judged, excused: Bools) -> Population:
        return Population(judged.episodes, excused, self._objectives(judged))

    @property
    def goals(self) -> Scores:
        """An objective that was covered once remains covered, whoever is in the population now."""
        return np.where(self._best <= GOALS, np.inf, GOALS)

    def offspring(self) -> tuple[Population, Population]:
        """The crossover children that stay as they are, and who is to be mutated: children and picked parents."""
        context, population, rng = self._context, self.population, self.rng
        scores = population.scores[:, uncovered(population.scores, self.goals)]

        def draw(count: int) -> Rows:
            return tournament(scores, count, context.options.tournament, rng)

        pairs, picks = shares(self._size, rng)
        children, alone = crossover(population, draw, pairs, self._objectives.d, rng)
        context.count("crossover_without_partner", alone)
        picked, mutated = population.take(draw(picks)), is_mutated(children, rng)
        parents = join(children.take(mutated), picked.take(is_mutated(picked, rng)))
        children = children.take(~mutated)
        children = self._scored(context.judge(children.episodes), children.excused)
        context.count("probably_faulty", self.archive.add(children, context.available))
        return children, parents

    def mutants(self, mutants: Judged, parents: Population, points: Rows) -> Population:
        """The executed mutants with their objectives; the budget may have cut the last ones off."""
        parents, points = parents.take(slice(len(mutants))), points[: len(mutants)]
        scored = self._scored(mutants, excused_in(mutants.episodes, parents, points, self._context.available))
        self.archive.know(scored.scores)
        return scored.take(mutants.episodes.length >= SHORTEST)

    def select(self, children: Population) -> None:
        """MOSA's selection among parents and children."""
        merged = join(self.population, children)
        self._best = np.minimum(self._best, merged.scores.min(axis=0))
        self.population = merged.take(mosa_select(merged.scores, self.goals, self._size))

    def note_replaced(self, executed: Episodes) -> None:
        """Count the actions that the team would not have taken by itself; STARLA calls their states replaced."""
        self._context.count("final_actions", int(executed.running.sum()) * executed.actions.shape[-1])
        self._context.count("final_actions_replaced", int(explorations(executed, self._context.available).sum()))


def shares(size: int, rng: np.random.Generator) -> tuple[int, int]:
    """Crossovers (two offspring each) and picks (one each), drawn until there are `size` offspring."""
    crossing = rng.random(size) < CROSSOVER
    draws = int(np.searchsorted(np.cumsum(1 + crossing), size)) + 1
    pairs = int(crossing[:draws].sum())
    return pairs, draws - pairs


class Objectives:
    """Reward, margin and forest of records, all minimised."""

    def __init__(self, context: Context, traces: Traces) -> None:
        """Train the forest on the traces of labelled episodes."""
        self._context, options = context, context.options
        fair = ~context.judge.unfair(traces.received)  # undefined ones are not failures
        # STARLA's forest knows abstract states alone: what the agents received is hidden from it.
        blind = replace(traces, received=np.zeros_like(traces.received))
        with context.clock.phase("predictor"):
            self._predictor = fit_predictor(
                blind, fair, buckets=2, seed=context.seed, d=options.d, workers=context.settings.threads
            )
        self.d = self._predictor.abstraction.d
        self._temperature = temperature_of(options.f3_temperature, traces, context.available)
        labelled = {"auc_full": None, "episodes": len(traces), "unfair": int((~fair).sum())}
        context.note("predictor", self._predictor.summary() | labelled)

    def __call__(self, judged: Judged) -> Scores:
        context, traces = self._context, traces_of(judged)
        reward = traces.received.sum(axis=1)
        if context.options.objective == "jfi":
            reward = np.nan_to_num(judged.index, nan=np.inf)
        forest = self._predictor.fair_probability(traces)
        weight = weights(traces.q, context.available, context.reading, self._temperature)
        return np.stack([reward, margin(traces, weight), forest], axis=1)


def margin(traces: Traces, weight: Scores) -> Scores:
    """The gap between the two most probable actions, a mean over agents and steps of each episode."""
    top = np.partition(weight, -2, axis=-1)[..., -2:]
    return traces.mean_over_steps(((top[..., 1] - top[..., 0]) / weight.sum(axis=-1)).mean(axis=-1))


class Archive:
    """One of every probably faulty child, by its objectives; of each only what its execution needs."""

    def __init__(self, initial: Scores) -> None:
        self._known: set[bytes] = set()
        self._waiting: list[tuple[Tests, Scores]] = []
        self.know(initial)

    def know(self, scores: Scores) -> None:
        """Whoever has these objectives was executed already."""
        self._known.update(row.tobytes() for row in scores)

    def add(self, children: Population, available: Bools) -> int:
        """Keep the new ones that are probably faulty, and return how many there are."""
        new = []
        for row in np.flatnonzero(children.scores[:, -1] < FAULTY):  # one by one: each is compared with all before
            name = children.scores[row].tobytes()
            if name not in self._known:
                self._known.add(name)
                new.append(row)
        children = children.take(np.array(new, np.int64))
        tests = tests_of(children, children.episodes.stream, forced_actions(children, available))
        self._waiting.append((tests, children.scores[:, -1]))
        return len(new)

    def candidates(self, size: int) -> Iterator[Tests]:
        """All of them in batches of `size`, the most probably faulty first."""
        tests = Tests.concatenate([waiting for waiting, _ in self._waiting])
        order = np.argsort(np.concatenate([forest for _, forest in self._waiting]), kind="stable")
        for first in range(0, len(order), size):
            yield tests.take(order[first : first + size])
