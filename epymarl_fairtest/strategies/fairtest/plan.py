"""How much of everything: the sizes of a search, from the budget unless they are given.

The paper's proportions: a pool of five times the population, as many offspring per generation as the
population at the default ratio, whatever the ratio is. Scouted candidates are worth more than random ones, so their
pool is larger: mutants get the share `genetic_share` of a round.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.settings import Settings
from epymarl_fairtest.strategies.fairtest.options import FairTestOptions

POOL_PER_OFFSPRING = 5
LARGEST_POOL = 7500  # the paper's; one that is given may be larger
SMALLEST = {"random": 8, "scout": 2}  # offspring per generation, by candidates; fewer do not make a search


@dataclass(frozen=True)
class Plan:
    rounds: int
    generations: int
    pool: int  # candidates per round
    population: int  # K
    offspring: int  # mutants executed per generation
    splices: int  # crossover children per generation
    predictor: int  # random executions that train the predictor
    calibration: int  # random executions that calibrate theta
    cap: int  # candidates that the pre-filter lets through

    def cost(self, accounting: str, rounds: int) -> int:
        """Episodes charged for `rounds` rounds."""
        mutants = self.generations * self.offspring
        if accounting == "paper":
            return rounds * (self.population + mutants)
        return self.calibration + self.predictor + rounds * (self.pool + mutants)


def plan_of(settings: Settings, options: FairTestOptions) -> Plan:
    options = _with_more_rounds(settings, options)
    if not _pays(settings, options):
        raise FairTestError(
            f"fairtest_args.budget={settings.budget} does not pay for one round of the search. The smallest workable"
            f" budget with these settings is {smallest_budget(settings, options)} episodes ({settings.accounting}"
            " accounting); with less, use method=random, or set a smaller pool and fewer offspring."
        )
    plan = _plan(settings, options)
    # A round that nothing is left for must not begin: its candidates are free of charge in paper accounting.
    paid = [r for r in range(1, plan.rounds + 1) if plan.cost(settings.accounting, r - 1) < settings.budget]
    return replace(plan, rounds=len(paid))


def smallest_budget(settings: Settings, options: FairTestOptions) -> int:
    """The least that pays for one round, with as few offspring as allowed where none are given."""
    budget = _plan(settings, options, smallest=True).cost(settings.accounting, 1)
    fixed, unit = _prices(settings, options)
    if options.offspring is None and unit:
        budget = max(budget, math.floor(fixed + SMALLEST[options.candidates] * unit) - settings.calibration)
    while not _pays(replace(settings, budget=budget), options):  # rounding, and a calibration that grows with it
        budget += 1
    return budget


def _pays(settings: Settings, options: FairTestOptions) -> bool:
    """Does the budget pay for one round of a search?"""
    plan = _plan(settings, options)
    too_few = options.offspring is None and plan.offspring < SMALLEST[options.candidates]
    return not too_few and plan.cost(settings.accounting, 1) <= settings.budget


def _with_more_rounds(settings: Settings, options: FairTestOptions) -> FairTestOptions:
    """A large budget buys rounds, not larger pools than the paper's: memory and time per round stay what they are."""
    while options.pool is None and options.offspring is None and _plan(settings, options).pool > LARGEST_POOL:
        options = replace(options, rounds=options.rounds + 1)
    return options


def _plan(settings: Settings, options: FairTestOptions, *, smallest: bool = False) -> Plan:
    """All sizes; with the `smallest` number of offspring, or the one that the budget pays for, unless it is given."""
    offspring = options.offspring
    if offspring is None:
        offspring = SMALLEST[options.candidates] if smallest else _affordable_offspring(settings, options)
    pool = options.pool if options.pool is not None else max(2, _pool_per_offspring(options) * offspring)
    population = _population(options, pool)
    return Plan(
        rounds=options.rounds,
        generations=options.generations,
        pool=pool,
        population=population,
        offspring=offspring,
        splices=2 * round(options.crossover_ratio * offspring / 2),
        predictor=options.predictor_episodes if options.predictor_episodes is not None else pool // 3,
        calibration=settings.calibration,
        # The paper's pool is five times its population and passes whole; a smaller population narrows it.
        cap=min(pool, POOL_PER_OFFSPRING * population),
    )


def _population(options: FairTestOptions, pool: int) -> int:
    return max(2, round(options.select_ratio * pool))


def _pool_per_offspring(options: FairTestOptions) -> int:
    """Candidates of a round per offspring of a generation."""
    if options.candidates == "random":
        return POOL_PER_OFFSPRING
    share = options.genetic_share
    return max(1, round(options.generations * (1 - share) / share))


def _affordable_offspring(settings: Settings, options: FairTestOptions) -> int:
    """Offspring per generation such that all rounds together use up the budget."""
    fixed, unit = _prices(settings, options)
    if not unit:
        return SMALLEST[options.candidates]  # no generation will ask for them
    return max(0, int((settings.budget - fixed) / unit))


def _prices(settings: Settings, options: FairTestOptions) -> tuple[float, float]:
    """What all rounds together cost whatever the number of offspring, and what each offspring adds to it."""
    rounds, generations = options.rounds, options.generations
    pool = _pool_per_offspring(options) if options.pool is None else 0
    fixed_pool = options.pool or 0
    if settings.accounting == "paper":
        fixed = rounds * _population(options, fixed_pool) if options.pool is not None else 0
        unit = rounds * (options.select_ratio * pool + generations)
        # The ratio study keeps the offspring of the default ratio, so that only the selection differs.
        unit = max(unit, rounds * (1 + generations)) if options.pool is None else unit
    else:
        predictor = options.predictor_episodes if options.predictor_episodes is not None else fixed_pool // 3
        fixed = settings.calibration + predictor + rounds * fixed_pool
        unit = rounds * (pool + generations) + (pool / 3 if options.predictor_episodes is None else 0)
        unit += options.crossover_ratio / 2  # kept for executing crossover children after the search
    return fixed, unit
