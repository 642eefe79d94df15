"""How much of everything: the paper's sizes, and budgets that are too small."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from epymarl_fairtest.campaign.steps import STEPS
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.ledger import ACCOUNTINGS, PURPOSES, Ledger
from epymarl_fairtest.settings import FIELDS, Settings
from epymarl_fairtest.strategies import configure, strategy_of
from epymarl_fairtest.strategies.fairtest.options import FairTestOptions
from epymarl_fairtest.strategies.fairtest.plan import SMALLEST, Plan, plan_of, smallest_budget
from epymarl_fairtest.strategies.scout.search import UNGUIDED

every_accounting = pytest.mark.parametrize("accounting", ACCOUNTINGS)
every_source = pytest.mark.parametrize("candidates", SMALLEST)  # random, as in the paper, or scouted

DEFAULTS = configure({})


def chosen(**given: Any) -> tuple[Settings, FairTestOptions]:
    """The settings of a run and the search's own; without a preset without reading a file again."""
    settings = configure(given) if "preset" in given else DEFAULTS
    options = strategy_of(settings).chosen(settings)
    if "preset" not in given:
        settings = replace(settings, **{name: value for name, value in given.items() if name in FIELDS})
        options = replace(options, **{name: value for name, value in given.items() if name not in FIELDS})
    return settings, options


def plan(**given: Any) -> Plan:
    return plan_of(*chosen(**given))


# --- the paper's sizes --------------------------------------------------------------------------------


def test_the_paper_preset_charges_18000_episodes() -> None:
    paper = plan(preset="paper")
    assert (paper.rounds, paper.generations) == (3, 3)
    assert (paper.pool, paper.population, paper.offspring, paper.cap) == (7500, 1500, 1500, 7500)
    assert paper.cost("paper", 3) == 3 * (1500 + 3 * 1500) == 18_000


def test_a_smaller_select_ratio_narrows_the_population_and_the_pre_filter_but_not_the_offspring() -> None:
    narrow = plan(preset="paper", select_ratio=0.05)
    assert (narrow.population, narrow.cap, narrow.offspring, narrow.pool) == (375, 1875, 1500, 7500)


@pytest.mark.parametrize("ratio", [0.01, 0.05, 0.1, 0.2])
def test_without_a_given_pool_the_ratio_study_keeps_pool_and_offspring(ratio: float) -> None:
    found = plan(candidates="random", budget=18_000, accounting="paper", select_ratio=ratio)
    assert (found.offspring, found.pool) == (1500, 7500)
    assert found.population == round(7500 * ratio)
    assert found.cap == min(7500, 5 * found.population)


@every_source
def test_the_population_is_never_larger_than_the_pool(candidates: str) -> None:
    for ratio in (0.001, 0.5, 1.0):
        found = plan(candidates=candidates, budget=2000, select_ratio=ratio)
        assert 2 <= found.population <= found.pool
        assert found.cap <= found.pool


@every_source
def test_crossover_children_come_in_pairs(candidates: str) -> None:
    for ratio in (0, 0.3, 0.5, 1, 2.7):
        assert plan(candidates=candidates, budget=1000, crossover_ratio=ratio).splices % 2 == 0
    assert plan(candidates=candidates, budget=1000, crossover_ratio=0).splices == 0
    even = plan(preset="paper", crossover_ratio=1)
    assert even.splices == even.offspring


@pytest.mark.parametrize("preset", ["paper", "strict"])
def test_the_papers_presets_do_not_scout(preset: str) -> None:
    _, options = chosen(preset=preset)
    assert (options.candidates, options.screen) == ("random", 1)


@pytest.mark.parametrize("share", [0.05, 0.1, 0.25, 0.5])
@pytest.mark.parametrize("generations", [1, 3, 6])
def test_mutants_get_their_share_of_a_round_where_candidates_are_scouted(share: float, generations: int) -> None:
    found = plan(candidates="scout", budget=20_000, genetic_share=share, generations=generations)
    mutants = found.generations * found.offspring
    assert mutants / (found.pool + mutants) == pytest.approx(share, rel=0.15)
    assert found.rounds == 3 or found.pool > 5000  # a pool above the paper's is cut into more rounds


def test_the_share_of_mutants_changes_nothing_where_candidates_are_random() -> None:
    plans = [plan(candidates="random", budget=2000, genetic_share=share) for share in (0.05, 0.1, 0.9)]
    assert plans[0] == plans[1] == plans[2]


# --- the budget ---------------------------------------------------------------------------------------

VARIANTS: list[dict[str, Any]] = [
    {},
    {"rounds": 1},
    {"rounds": 1, "generations": 1},
    {"rounds": 5, "generations": 2},
    {"generations": 0},
    {"select_ratio": 0.05},
    {"select_ratio": 1.0},
    {"select_ratio": 0.37, "rounds": 2},
    {"pool": 30},
    {"pool": 30, "select_ratio": 0.01, "rounds": 1},
    {"pool": 30, "generations": 0, "crossover_ratio": 0},
    {"predictor_episodes": 0},
    {"predictor_episodes": 25, "pool": 41},
    {"crossover_ratio": 0},
    {"crossover_ratio": 3.3},
    {"offspring": 1},
    {"offspring": 7, "pool": 10},
    {"offspring": 20},
    {"theta": "auto", "calibration_episodes": 50},
    {"theta": "auto", "calibration_episodes": 50, "offspring": 8},
    {"theta": "auto"},  # the calibration grows with the budget
    {"theta": "auto", "rounds": 1, "offspring": 20},
]
every_variant = pytest.mark.parametrize(
    "given", VARIANTS, ids=lambda given: ",".join(f"{k}={v}" for k, v in given.items())
)


@every_accounting
@every_source
@every_variant
def test_a_budget_that_is_too_small_names_the_smallest_workable_one_and_that_one_works(
    accounting: str, candidates: str, given: dict[str, Any]
) -> None:
    given = {**given, "candidates": candidates}
    named = smallest_budget(*chosen(**given, accounting=accounting, budget=1))
    assert named > 1
    for budget in range(1, named):
        with pytest.raises(FairTestError, match=f"budget={budget} does not pay") as caught:
            plan(**given, accounting=accounting, budget=budget)
        assert re.search(r"smallest workable budget with these settings is (\d+)", str(caught.value))[1] == str(named)  # type: ignore[index]
    for budget in range(named, named + 120):
        found = plan(**given, accounting=accounting, budget=budget)
        assert found.cost(accounting, 1) <= budget
        assert min(found.pool, found.population) >= 2
        assert found.offspring >= SMALLEST[candidates] or "offspring" in given


@every_accounting
@every_source
@pytest.mark.parametrize(
    "given", [v for v in VARIANTS if not {"offspring", "pool"} & set(v) and v != {"generations": 0}]
)
@pytest.mark.parametrize("budget", [500, 1000, 1777, 18_000])
def test_the_planned_rounds_fit_into_the_budget_and_use_most_of_it(
    accounting: str, candidates: str, given: dict[str, Any], budget: int
) -> None:
    found = plan(**given, candidates=candidates, accounting=accounting, budget=budget)
    cost = found.cost(accounting, found.rounds)
    assert cost <= budget
    expected = 0.75  # the rest pays for executing splices, is lost to rounding, or a small population leaves it
    if accounting == "strict" and candidates == "random":  # what is left beside scouted candidates is scouted, too
        expected = 0.85
    assert cost >= expected * budget


# --- the ledger ---------------------------------------------------------------------------------------


def test_the_two_accountings_charge_what_they_say() -> None:
    after = {step.purpose for step in STEPS.values()}  # of the steps after the search
    ledger = Ledger()
    for at, purpose in enumerate(PURPOSES):
        ledger.charge(purpose, 10**at, 2 * 10**at)
        ledger.charge(purpose, 0, 0)
    worth = {purpose: 10**at for at, purpose in enumerate(PURPOSES)}
    executed = sum(worth.values()) - worth["re-execution"] - worth["proof"]
    executed -= sum(worth[purpose] for purpose in after)
    assert ledger.charged("strict") == executed == ledger.executed_episodes
    assert ledger.executed_steps == 2 * executed
    chosen_or_not = worth["execution"] + worth[UNGUIDED]
    assert ledger.charged("paper") == chosen_or_not + worth["re-execution"] + worth["mutant"]
    assert ledger.as_dict()["mutant"] == {"episodes": worth["mutant"], "steps": 2 * worth["mutant"]}


def test_an_unknown_purpose_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown purpose"):
        Ledger().charge("fun", 1, 1)


@every_accounting
@every_source
@pytest.mark.parametrize("times", [2, 10, 25])
def test_a_larger_budget_buys_rounds_not_larger_pools(accounting: str, candidates: str, times: int) -> None:
    budget = 100_000 * times
    found = plan(candidates=candidates, accounting=accounting, budget=budget)
    assert 7000 <= found.pool <= 7500
    assert found.rounds > 4 * times
    assert 0.95 * budget <= found.cost(accounting, found.rounds) <= budget


def test_a_pool_that_is_given_is_taken_whatever_its_size() -> None:
    found = plan(preset="paper", budget=100_000, pool=20_000)
    assert (found.pool, found.rounds) == (20_000, 3)
