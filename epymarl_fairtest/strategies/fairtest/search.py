"""FairTest, Algorithm 1: a genetic search for unfair executions, its candidates prioritised by prediction.

With `candidates=scout` line 3 takes starts that scout chooses instead of random ones, and what is left of the budget in
the end is scouted, too. Everything else is the paper's.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import suppress
from functools import partial

import numpy as np

from epymarl_fairtest.core.episodes import random_tests
from epymarl_fairtest.core.judged import Judged
from epymarl_fairtest.core.ledger import MUTANT, PREDICTOR, RE_EXECUTION, SPLICE
from epymarl_fairtest.predictor import Predictor, Traces, fit_predictor, traces_of, traces_of_sample
from epymarl_fairtest.strategies.contract import BudgetSpent, Context, Request, Search
from epymarl_fairtest.strategies.fairtest.breeding import Breeding, Population, join
from epymarl_fairtest.strategies.fairtest.candidates import RandomCandidates, candidates_of
from epymarl_fairtest.strategies.fairtest.fitness import Fitness, decision_certainty
from epymarl_fairtest.strategies.fairtest.kept import Kept
from epymarl_fairtest.strategies.fairtest.plan import Plan, plan_of
from epymarl_fairtest.strategies.fairtest.screen import screen_of
from epymarl_fairtest.strategies.genetic.guidance import temperature_of
from epymarl_fairtest.strategies.genetic.operators import Rows

SHORTEST = 5  # steps; a shorter episode gives the operators nothing to work on


def fairtest(context: Context) -> Search:
    """Algorithm 1. Failures are judged and kept by the campaign, whatever the search does with an episode."""
    plan = plan_of(context.settings, context.options)
    source = candidates_of(context)
    predictor, temperature = yield from train_predictor(context, plan, source)
    certainty = partial(
        decision_certainty, available=context.available, reading=context.reading, temperature=temperature
    )
    breeding = Breeding(context, plan, Fitness(predictor, certainty, context.options.objectives), screen_of(context))
    kept = Kept(context)
    with suppress(BudgetSpent):
        yield from search(context, plan, breeding, kept, source)
    yield from execute(kept, context, plan.pool)
    yield from source.rest(plan.pool)


def search(context: Context, plan: Plan, breeding: Breeding, kept: Kept, source: RandomCandidates) -> Search:
    """The rounds and generations of Algorithm 1."""
    for r in range(plan.rounds):
        candidates = breeding.executed((yield from source.pool(plan.pool, r)))  # lines 3 and 4
        long = np.flatnonzero(candidates.episodes.length >= SHORTEST)
        population = breeding.prioritise(candidates, long)  # line 5
        keep_choice(context, f"round_{r}_candidates", candidates, long)
        keep_choice(context, f"round_{r}_population", population, np.arange(len(population)))
        del candidates  # a large pool is most of the memory
        yield Request(None, RE_EXECUTION, charge=len(population))  # line 6: the states are recorded already
        for g in range(plan.generations):
            if not breeding.can_breed(population):
                break
            splices, mutants = breeding.offspring(population, context.generator("offspring", r, g))  # line 9
            offspring = breeding.executed((yield Request(mutants, MUTANT)))  # line 10
            offspring = join(offspring, breeding.spliced(splices, kept.next_number))
            offspring = breeding.prioritise(offspring)  # line 11
            population = breeding.select(join(population, offspring))  # line 12
            kept.add(population.splice, splices)


def execute(kept: Kept, context: Context, at_once: int) -> Search:
    """The splices for real; a greedy team would only repeat the first parent."""
    context.note("splices", kept.summary())
    for tests in kept.tests(at_once) if context.stochastic else ():
        kept.executed((yield Request(tests, SPLICE)).unfair)
        context.note("splices", kept.summary())


def keep_choice(context: Context, name: str, population: Population, rows: Rows) -> None:
    """What a round chose from, or what it chose: ids and f2, f3."""
    context.keep(f"{name}_id", population.episodes.id[rows])
    context.keep(f"{name}_scores", population.scores[rows, 1:])


def train_predictor(
    context: Context, plan: Plan, source: RandomCandidates
) -> Generator[Request, Judged, tuple[Predictor, float]]:
    """The fairness predictor from the training sample and random executions, and f3's temperature."""
    options = context.options
    parts: list[Traces] = [traces_of_sample(context.sample)] if len(context.sample) else []
    wanted = max(plan.predictor, 1 if not parts else 0)
    if wanted:
        tests = random_tests(wanted, context.task.state_size, context.generator("predictor"))
        executed = yield Request(tests, PREDICTOR)
        parts.append(traces_of(executed))
        source.learn(executed)
    traces = Traces.concatenate(parts)
    fair = ~context.judge.unfair(traces.received)  # undefined ones are not failures
    with context.clock.phase("predictor"):
        predictor = fit_predictor(
            traces, fair, buckets=options.buckets, seed=context.seed, d=options.d, workers=context.settings.threads
        )
    context.note("predictor", predictor.summary() | {"episodes": len(traces), "unfair": int((~fair).sum())})
    for name, curve in predictor.roc.items():
        context.keep(f"roc_{name}", curve)
    if predictor.forest is None:
        kind = "unfair" if fair.all() else "fair"
        context.warn(
            f"The {len(traces)} labelled episodes hold no {kind} one: the predicted fairness f2 is constant, and the"
            " search continues with f1 and f3. A larger predictor_episodes, or another theta, may give it both kinds."
        )
    elif len(predictor.abstraction) == 1:
        context.warn("All steps share one joint abstract state: the Q-values hardly differ. Is the team trained?")
    return predictor, temperature_of(options.f3_temperature, traces, context.available)
