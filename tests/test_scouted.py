"""The default search: Algorithm 1 with candidates that scout chooses and mutants that are screened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support import training_sample
from test_search import walkers

from epymarl_fairtest.core.episodes import OPERATORS, Episodes, Tests
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.judged import Judged
from epymarl_fairtest.predictor import forest
from epymarl_fairtest.strategies import configure, strategy_of
from epymarl_fairtest.strategies.fairtest.plan import Plan, plan_of
from epymarl_fairtest.strategies.fairtest.screen import LATE, Screen, before
from epymarl_fairtest.strategies.genetic.operators import mutate
from epymarl_fairtest.strategies.scout.options import ScoutOptions
from epymarl_fairtest.strategies.scout.surrogate import Surrogate
from epymarl_fairtest.team.contract import Team
from epymarl_fairtest.testing import random_team
from epymarl_fairtest.testing.running import Searched, searched

SPREAD = "epymarl_fairtest:mpe-spread-v0"
SMALL: dict[str, Any] = {"rounds": 2, "generations": 2, "budget": 220, "theta": 0.9, "d": 0.5, "workers": 1}


@pytest.fixture(autouse=True)
def _few_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forest, "TREES", 12)


@cache
def team() -> Team:
    """Nobody trained it."""
    return random_team(SPREAD)


def search(subject: Team, warn: Callable[[str], None] = lambda message: None, **given: Any) -> Searched:
    engine = "auto" if subject.environment is None else "twin"
    chosen = configure({**SMALL, "engine": engine, **given})
    strategy_of(chosen).check_settings(chosen, subject.task)
    return searched(subject, chosen, 4, warn)


def planned(**given: Any) -> Plan:
    chosen = configure({**SMALL, **given})
    return plan_of(chosen, strategy_of(chosen).chosen(chosen))


def executed(run: Searched, *purposes: str) -> Judged:
    return Judged.concatenate([batch.judged for batch in run.batches if batch.purpose in purposes])


def phases(run: Searched) -> list[str]:
    """The purposes in order, repetitions left out; candidates that scout chose and random ones among them as one."""
    names = ["candidates" if b.purpose in ("scouted", "candidate") else b.purpose for b in run.batches]
    return [name for at, name in enumerate(names) if at == 0 or names[at - 1] != name]


@pytest.fixture(scope="module")
def default() -> Searched:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forest, "TREES", 12)
        return search(team())


# --- Algorithm 1 --------------------------------------------------------------------------------------


def test_the_default_search_takes_all_steps_of_algorithm_1_and_scouts_what_is_left(default: Searched) -> None:
    assert configure({}).options["candidates"] == "scout"
    kept = default.run.context.notes["splices"]["kept"]
    end = ["splice", "candidates"] if kept else ["candidates"]
    expected = ["predictor", *["candidates", "mutant"] * 2, *end]
    assert phases(default) == expected
    assert sum(len(batch.judged) for batch in default.batches) == 220 == default.ledger.charged("strict")
    plan = planned()
    assert [len(batch.judged) for batch in default.executed("mutant")] == [plan.offspring] * 4
    assert len(executed(default, "predictor")) == plan.predictor


def test_a_pool_is_as_large_as_planned_and_a_share_of_it_is_random(default: Searched) -> None:
    plan = planned()
    first = [batch.purpose for batch in default.batches].index("mutant")
    pool = [batch for batch in default.batches[:first] if batch.purpose != "predictor"]
    assert sum(len(batch.judged) for batch in pool) == plan.pool
    random = executed(default, "candidate")
    assert 0 < len(random) < 0.15 * 220
    assert (random.episodes.operator == OPERATORS.index("seed")).all()
    assert default.run.tally.random()[1] == len(random) + len(executed(default, "predictor"))


def test_scouted_candidates_fail_more_often_than_random_ones() -> None:
    run = search(team(), theta=0.8, budget=400)
    assert executed(run, "scouted").unfair.mean() > 1.5 * executed(run, "candidate", "predictor").unfair.mean()


def test_candidates_of_a_round_are_parents_whoever_chose_them(default: Searched) -> None:
    candidates = executed(default, "scouted", "candidate").episodes
    mutants = default.executed("mutant")[0].judged.episodes
    assert set(mutants.parent.tolist()) <= set(candidates.id.tolist())
    assert set(mutants.parent.tolist()) & set(executed(default, "scouted").episodes.id.tolist())


@pytest.mark.parametrize("budget", [60, 90])
def test_paper_accounting_ends_with_its_rounds(budget: int) -> None:
    """Candidates are free there: to scout what is left would never end."""
    run = search(team(), accounting="paper", budget=budget)
    plan = planned(accounting="paper", budget=budget)
    assert run.ledger.charged("paper") <= budget
    assert len(executed(run, "scouted", "candidate")) == plan.rounds * plan.pool
    assert phases(run)[-1] in ("mutant", "splice")


def test_a_subset_of_the_agents_can_be_judged() -> None:
    run = search(team(), agents=[1, 3])
    assert all(batch.judged.received.shape[1] == 2 for batch in run.batches)
    assert run.ledger.charged("strict") == 220


def test_a_training_sample_without_random_executions_makes_the_first_candidates_random() -> None:
    """Scout knows nothing then: what the sample holds are no starts."""
    run = search(replace(team(), sample=training_sample()), predictor_episodes=0)
    assert run.batches[0].purpose == "candidate"
    assert len(run.batches[0].judged) == 50
    assert run.batches[1].purpose == "scouted"


# --- the screen ---------------------------------------------------------------------------------------


@cache
def mutants_of(run_key: int = 0) -> tuple[Searched, Judged, Tests]:
    """A search that is over, its candidates, and many mutants of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forest, "TREES", 12)
        run = search(team())
    candidates, generator = executed(run, "scouted", "candidate"), np.random.default_rng(1)
    draw = lambda count: generator.integers(0, len(candidates), count)  # noqa: E731
    tests, _ = mutate(candidates.episodes, draw, 300, team().task, generator)
    return run, candidates, tests


def screened(count: int) -> tuple[Tests, Tests, NDArray[np.int64]]:
    run, candidates, tests = mutants_of()
    screen = Screen(run.run.context)
    screen.learn(candidates)
    unfair = candidates.episodes.id[candidates.unfair]
    return screen.most_promising(tests, unfair, count, np.random.default_rng(2)), tests, unfair


def late(tests: Tests, unfair: NDArray[np.int64]) -> NDArray[np.bool_]:
    assert tests.prefix is not None
    return (tests.start_step > LATE * tests.prefix.limit) & np.isin(tests.parent, unfair)


def test_the_screen_drops_late_mutants_of_failing_parents_and_keeps_as_many_as_are_wanted() -> None:
    kept, drawn, unfair = screened(40)
    assert late(drawn, unfair).sum() > 20
    assert not late(kept, unfair).any()
    assert len(kept) == 40


def test_where_too_few_mutants_are_left_the_screen_takes_late_ones_too() -> None:
    _, drawn, unfair = screened(1)
    wanted = int((~late(drawn, unfair)).sum()) + 5
    kept, _, _ = screened(wanted)
    assert len(kept) == wanted
    assert late(kept, unfair).any()


def test_as_many_mutants_as_are_wanted_pass_as_they_are() -> None:
    kept, drawn, _ = screened(300)
    assert kept is drawn


def test_the_screen_keeps_the_order_in_which_mutants_were_drawn() -> None:
    kept, drawn, _ = screened(40)
    rows = [int(np.flatnonzero(drawn.stream == stream)[0]) for stream in kept.stream]
    assert rows == sorted(rows)


def test_what_was_received_before_a_step_is_counted_as_slowly() -> None:
    generator = np.random.default_rng(0)
    rewards, steps = generator.normal(size=(20, 9, 3)), generator.integers(0, 10, 20)
    expected = [rewards[row, : steps[row]].sum(axis=0) for row in range(20)]
    assert before(rewards, steps) == pytest.approx(np.array(expected), abs=1e-12)


def test_a_screen_of_1_executes_all_mutants(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*anything: Any) -> Any:
        raise AssertionError("nobody screens")

    monkeypatch.setattr(Screen, "most_promising", never)
    run = search(team(), screen=1)
    assert [len(batch.judged) for batch in run.executed("mutant")] == [planned().offspring] * 4


def test_screened_mutants_come_from_as_many_drawn_ones_as_the_setting_says(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []
    real = Screen.most_promising

    def counted(self: Screen, mutants: Tests, unfair: Any, count: int, rng: Any) -> Tests:
        drawn.append(len(mutants))
        return real(self, mutants, unfair, count, rng)

    monkeypatch.setattr(Screen, "most_promising", counted)
    search(team(), screen=4)
    assert drawn == [4 * planned(screen=4).offspring] * 4


# --- bad input ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [1, 2, 10])
def test_a_budget_below_one_round_is_refused_with_the_smallest_that_works(budget: int) -> None:
    with pytest.raises(FairTestError, match=rf"budget={budget} does not pay .* smallest workable budget .* is \d+ "):
        search(team(), budget=budget)


@pytest.mark.parametrize(("theta", "failing"), [(1e-9, 0.0), (1.0, 1.0)])
def test_a_team_without_a_failure_and_one_that_always_fails_are_searched_to_the_end(
    theta: float, failing: float
) -> None:
    said: list[str] = []
    run = search(team(), said.append, theta=theta)
    assert run.ledger.charged("strict") == 220
    assert Judged.concatenate([batch.judged for batch in run.batches]).unfair.mean() == failing
    assert any("f2 is constant" in message for message in said)


def test_a_task_that_only_resets_has_candidates_of_fresh_seeds_and_mutants_that_are_not_screened() -> None:
    run = search(walkers(), epsilon=0.3)
    assert run.ledger.charged("strict") == 220
    assert {"scouted", "mutant"} <= {batch.purpose for batch in run.batches}
    assert (executed(run, "scouted").episodes.operator == OPERATORS.index("seed")).all()


def test_a_task_without_a_state_has_random_candidates_and_says_so() -> None:
    subject = walkers()
    subject.task.state_size = 0
    subject.task._spaces, subject.task._sizes = [], []  # type: ignore[attr-defined]
    subject = replace(subject, make_world=lambda: Blind(walkers().make_world()))
    said: list[str] = []
    run = search(subject, said.append, epsilon=0.3)
    assert len([message for message in said if "candidates are random, not scouted" in message]) == 1
    assert "scouted" not in run.ledger.episodes
    assert run.ledger.episodes["candidate"] > 0


class Blind:
    """A world whose state nobody sees."""

    def __init__(self, world: Any) -> None:
        self._world = world

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world, name)

    def state(self) -> Any:
        return np.zeros(0)


@pytest.mark.parametrize("accepts", [0.0, 0.05])
def test_perturbations_that_are_refused_leave_a_search_that_goes_on(
    accepts: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = random_team(SPREAD)
    real, generator = subject.task.perturb, np.random.default_rng(0)

    def perturb(states: Any, rng: Any) -> Any:
        new, kept = real(states, rng)
        return new, kept & (generator.random(len(kept)) < accepts)

    monkeypatch.setattr(subject.task, "perturb", perturb)
    run = search(subject)
    assert run.ledger.charged("strict") == 220
    assert run.run.context.notes["mutations_refused"] > 0 or accepts


def test_features_that_are_no_numbers_do_not_stop_a_screen() -> None:
    features = np.random.default_rng(0).normal(size=(40, 3, 4))
    features[::3, :, 1], features[1::3, :, 2] = np.inf, np.nan
    model = Surrogate(features, features[..., 0], ScoutOptions())
    assert np.isfinite(model.received(-features)).all()


def test_a_distance_of_0_and_short_episodes_are_searched() -> None:
    assert search(team(), distinct_distance=0.0).ledger.charged("strict") == 220
    short: list[Episodes] = [batch.judged.episodes for batch in search(random_team(SPREAD, time_limit=4)).batches]
    assert sum(map(len, short)) == 220
