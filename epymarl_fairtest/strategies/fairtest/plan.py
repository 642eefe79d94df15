"""How much of everything: the sizes of a search, from the budget unless they are given.

The paper's proportions: a pool of five times the population, as many offspring per generation as the
population at the default ratio, whatever the ratio is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.settings import Settings
from epymarl_fairtest.strategies.fairtest.options import FairTestOptions

POOL_PER_OFFSPRING = 5
LARGEST_POOL = 7500  # the paper's; one that is given may be larger
SMALLEST = 8  # offspring per generation; below that it is no search


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


@dataclass(frozen=True)
class Sizes:
    """What a plan follows from: the settings and options of these names."""

    budget: int
    accounting: str
    calibration: int
    rounds: int
    generations: int
    pool: int | None
    select_ratio: float
    offspring: int | None
    crossover_ratio: float
    predictor_episodes: int | None


def sizes_of(settings: Settings, options: FairTestOptions) -> Sizes:
    names = [field.name for field in fields(Sizes)]
    return Sizes(**{name: getattr(options if hasattr(options, name) else settings, name) for name in names})


def plan_of(settings: Settings, options: FairTestOptions) -> Plan:
    s = _with_more_rounds(sizes_of(settings, options))
    plan = _plan(s, s.offspring if s.offspring is not None else _affordable_offspring(s))
    if (s.offspring is None and plan.offspring < SMALLEST) or s.budget < plan.cost(s.accounting, 1):
        raise FairTestError(
            f"fairtest_args.budget={s.budget} does not pay for one round of the search. The smallest workable budget"
            f" with these settings is {smallest_budget(s)} episodes ({s.accounting} accounting); with less, use"
            " method=random, or set a smaller pool and fewer offspring."
        )
    # A round that nothing is left for must not begin: its candidates are free of charge in paper accounting.
    paid = [r for r in range(1, s.rounds + 1) if plan.cost(s.accounting, r - 1) < s.budget]
    return replace(plan, rounds=len(paid))


def _with_more_rounds(s: Sizes) -> Sizes:
    """A large budget buys rounds, not larger pools than the paper's: memory and time per round stay what they are."""
    while s.pool is None and s.offspring is None and _plan(s, _affordable_offspring(s)).pool > LARGEST_POOL:
        s = replace(s, rounds=s.rounds + 1)
    return s


def _plan(s: Sizes, offspring: int) -> Plan:
    """All sizes, given the number of offspring per generation."""
    pool = s.pool if s.pool is not None else max(2, POOL_PER_OFFSPRING * offspring)
    population = _population(s, pool)
    return Plan(
        rounds=s.rounds,
        generations=s.generations,
        pool=pool,
        population=population,
        offspring=offspring,
        splices=2 * round(s.crossover_ratio * offspring / 2),
        predictor=s.predictor_episodes if s.predictor_episodes is not None else pool // 3,
        calibration=s.calibration,
        # The paper's pool is five times its population and passes whole; a smaller population narrows it.
        cap=min(pool, POOL_PER_OFFSPRING * population),
    )


def _population(s: Sizes, pool: int) -> int:
    return max(2, round(s.select_ratio * pool))


def _prices(s: Sizes) -> tuple[float, float]:
    """What all rounds together cost whatever the number of offspring, and what each offspring adds to it."""
    pool = POOL_PER_OFFSPRING if s.pool is None else 0
    fixed_pool = 0 if s.pool is None else s.pool
    if s.accounting == "paper":
        fixed = s.rounds * _population(s, fixed_pool) if s.pool is not None else 0
        unit = s.rounds * (s.select_ratio * pool + s.generations)
        # The ratio study keeps the offspring of the default ratio, so that only the selection differs.
        unit = max(unit, s.rounds * (1 + s.generations)) if s.pool is None else unit
    else:
        predictor = s.predictor_episodes if s.predictor_episodes is not None else fixed_pool // 3
        fixed = s.calibration + predictor + s.rounds * fixed_pool
        unit = s.rounds * (pool + s.generations) + (pool / 3 if s.predictor_episodes is None else 0)
        unit += s.crossover_ratio / 2  # kept for executing crossover children after the search
    return fixed, unit


def _affordable_offspring(s: Sizes) -> int:
    """Offspring per generation such that all rounds together use up the budget."""
    fixed, unit = _prices(s)
    if not unit:
        return SMALLEST  # no generation will ask for them
    return max(0, int((s.budget - fixed) / unit))


def smallest_budget(s: Sizes) -> int:
    """The least that pays for one round, with as few offspring as allowed where none are given."""
    one_round = _plan(s, SMALLEST if s.offspring is None else s.offspring).cost(s.accounting, 1)
    fixed, unit = _prices(s)
    if s.offspring is not None or not unit:
        return one_round
    budget = max(one_round, math.floor(fixed + SMALLEST * unit) - s.calibration)
    while _affordable_offspring(replace(s, budget=budget)) < SMALLEST:
        budget += 1
    return budget
