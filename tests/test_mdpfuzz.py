"""MDPFuzz and its plain fuzzer, against slow references: mixtures, mutants, and what joins the corpus."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from support import environment
from test_own_baselines import Fated, Run, nothing, search, uneven_on_the_left

from epymarl_fairtest.core.episodes import OPERATORS
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.strategies import configure, strategy_of
from epymarl_fairtest.strategies.mdpfuzz.freshness import Freshness, Mixture, log_density, pairs_of, sequences_of
from epymarl_fairtest.strategies.mdpfuzz.search import Corpus, mutate, sensitivity
from epymarl_fairtest.tasks import task_for
from epymarl_fairtest.tasks.contract import Task
from epymarl_fairtest.tasks.generic.rules import GenericTask
from epymarl_fairtest.tasks.spread.rules import SpreadTask

pytestmark = pytest.mark.slow  # an opponent changes rarely; `make test` has its contract (test_contracts.py)

BUDGET = 200


def fuzzed(**options: Any) -> Run:
    return search("mdpfuzz", Fated(uneven_on_the_left), Fated.task, budget=BUDGET, **options)


@pytest.fixture(scope="module")
def plain() -> Run:
    return fuzzed(freshness=False)


# --- the mixtures -------------------------------------------------------------------------------------


@pytest.fixture
def rows() -> Any:
    generator = np.random.default_rng(5)
    return np.concatenate([generator.normal(2, 0.3, (40, 3)), generator.normal(-1, [1, 0.2, 0.01], (60, 3))])


def by_hand(mixture: Mixture, row: Any) -> list[float]:
    """Weight times density of every component, from its sums."""
    parts = []
    for weight, total, squares in zip(mixture._weight, mixture._sum, mixture._squares, strict=True):
        mean = total / weight
        variance, axes = np.linalg.eigh(squares / weight - np.outer(mean, mean))
        covariance = axes @ np.diag(np.maximum(variance, 1e-3)) @ axes.T
        parts.append(weight * multivariate_normal.pdf(row, mean, covariance))
    return parts


def test_the_density_of_a_mixture_is_that_of_its_gaussians(rows: Any) -> None:
    mixture = Mixture(rows, 4, np.random.default_rng(0))
    expected = np.array([by_hand(mixture, row) for row in rows[::9]])
    assert np.exp(mixture.parts(rows[::9])) == pytest.approx(expected, rel=1e-6, abs=1e-12)
    assert mixture._weight.sum() == pytest.approx(1)


def test_learning_moves_every_sum_towards_what_was_seen(rows: Any) -> None:
    mixture, new = Mixture(rows, 3, np.random.default_rng(0)), rows[:7] + 0.5
    sums = [mixture._weight.copy(), mixture._sum.copy(), mixture._squares.copy()]
    expected = [0.9 * one for one in sums]
    for row in new:
        parts = by_hand(mixture, row)
        for k, part in enumerate(parts):
            share = part / sum(parts) / len(new)
            for one, value in zip(expected, (1.0, row, np.outer(row, row)), strict=True):
                one[k] += 0.1 * share * value
    mixture.learn(new, mixture.parts(new), 0.1)
    for one, found in zip(expected, (mixture._weight, mixture._sum, mixture._squares), strict=True):
        assert found == pytest.approx(one, rel=1e-6, abs=1e-9)


def test_a_sequence_is_as_dense_as_its_start_and_its_steps(rows: Any) -> None:
    states, generator = rows[36:44], np.random.default_rng(0)
    single, both = Mixture(rows, 3, generator), Mixture(pairs_of(rows), 3, generator)
    expected = sum(by_hand(single, states[0]))
    for one, two in pairwise(states):
        step = sum(by_hand(both, np.concatenate([one, two]))) / sum(by_hand(single, one))
        expected *= min(step, 1.0)
    found = log_density(single.parts(states), both.parts(pairs_of(states)))
    assert found == pytest.approx(np.log(expected), rel=1e-6)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_mixture_of_fewer_rows_than_components_is_still_one(rows: Any, count: int) -> None:
    mixture = Mixture(rows[:count], 10, np.random.default_rng(0))
    assert np.isfinite(mixture.parts(rows)).all()


def test_what_was_seen_again_and_again_is_no_longer_fresh(plain: Run) -> None:
    episodes = plain.batches[0][1].episodes
    known, new = episodes.take(slice(0, 30)), episodes.take(slice(30, 31))
    new.states = new.states + 4.0
    freshness = Freshness(known, 3, 0.1, 0.5, np.random.default_rng(0))
    assert freshness.of(new).tolist() == [True]
    for _ in range(20):
        freshness.of(new)
    assert freshness.of(new).tolist() == [False]


@pytest.mark.parametrize(("threshold", "expected"), [(0.0, 0.0), (1e300, 1.0), (1.0, 0.5)])
def test_the_threshold_is_in_units_of_the_usual_density(plain: Run, threshold: float, expected: float) -> None:
    episodes = plain.batches[0][1].episodes
    freshness = Freshness(episodes, 3, threshold, 0.0, np.random.default_rng(0))
    assert freshness.of(episodes).mean() == pytest.approx(expected, abs=0.05)


def test_the_states_of_a_sequence_end_with_its_episode(plain: Run) -> None:
    episodes = plain.batches[0][1].episodes.take(slice(0, 2))
    episodes.length = np.array([2, 1], np.int32)
    assert [len(states) for states in sequences_of(episodes)] == [3, 2]


# --- mutants ------------------------------------------------------------------------------------------


def corpus_of(task: Task, vectors: Any) -> Corpus:
    states, valid = task.starts_from(vectors)
    states = states[valid]
    vectors, zero = task.start_vectors(states), np.zeros(len(states))
    return Corpus(states, vectors, zero, zero.copy(), 100 + np.arange(len(states)))


@pytest.mark.parametrize("task", ["spread", "tag", "foraging"])
def test_a_mutant_is_another_start_near_its_parent_that_keeps_the_rules(task: str, plain: Run) -> None:
    known, generator = task_for(environment(task)), np.random.default_rng(2)
    size = known.start_vectors(np.zeros((1, known.state_size))).shape[1]
    corpus = corpus_of(known, generator.uniform(-1, 1, (4000, size)))
    assert len(corpus) > 3
    context = plain.context.__class__(**{**vars(plain.context), "task": known, "notes": {}})
    tests, parents = mutate(corpus, np.arange(len(corpus)), context, generator)
    assert len(tests) == len(parents) > 0.9 * len(corpus)
    assert tests.parent.tolist() == (100 + parents).tolist()
    assert {OPERATORS[code] for code in tests.operator} == {"state"}
    assert (tests.start_state != corpus.states[parents]).any(axis=1).all()
    moved = np.abs(known.start_vectors(tests.start_state) - corpus.vectors[parents]).max(axis=1)
    if task == "foraging":  # a step of a grid is larger, but no larger than it takes
        assert np.median(moved) < 1.0
    else:
        assert moved.max() <= 0.05 + 1e-12
    assert known.starts_from(known.start_vectors(tests.start_state))[1].all()


def test_a_start_without_a_mutant_is_left_out_and_counted(plain: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = Corpus.of(plain.batches[0][1], Fated.task)
    plain.context.notes.pop("mutations_refused")
    monkeypatch.setattr(SpreadTask, "starts_from", lambda self, v: (np.zeros((len(v), 18)), v[:, 0] > 0))
    tests, parents = mutate(corpus, np.arange(len(corpus)), plain.context, np.random.default_rng(0))
    assert (corpus.vectors[parents, 0] > -0.05).all()
    assert 0 < len(tests) == len(corpus) - plain.context.notes["mutations_refused"] < len(corpus)


def test_where_nothing_can_be_mutated_random_starts_are_executed(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse = lambda self, v: (np.zeros((len(v), 18)), np.zeros(len(v), bool))  # noqa: E731
    monkeypatch.setattr(SpreadTask, "starts_from", refuse)
    run = search("mdpfuzz", Fated(uneven_on_the_left), Fated.task, budget=60, initial=20, batch=16)
    assert run.sizes == [("execution", 20), ("execution", 16), ("execution", 16), ("execution", 8)]
    assert len(set(run.executed("root_seed").tolist())) == 60


# --- the loop -----------------------------------------------------------------------------------------


def test_sensitivity_is_the_change_of_the_outcome_per_distance() -> None:
    def one(x: float, outcome: float) -> Corpus:
        return Corpus(np.zeros((1, 2)), np.array([[x, 1.0]]), np.array([outcome]), np.zeros(1), np.zeros(1, np.int64))

    assert sensitivity(one(0.5, 0.2), one(0.1, 0.9)) == pytest.approx([0.7 / 0.4])
    assert sensitivity(one(0.5, 0.2), one(0.5, 0.9)).tolist() == [0.0]


def test_starts_are_chosen_in_proportion_to_their_sensitivity() -> None:
    corpus = corpus_of(Fated.task, np.random.default_rng(0).uniform(-1, 1, (4, 12)))
    assert set(corpus.select(200, np.random.default_rng(0)).tolist()) == {0, 1, 2, 3}
    corpus.sensitivity[:] = [0, 3, 0, 1]
    chosen = corpus.select(4000, np.random.default_rng(0))
    assert np.bincount(chosen, minlength=4) / 4000 == pytest.approx([0, 0.75, 0, 0.25], abs=0.03)


def slow_corpus(run: Run, fresh: list[bool] | None = None) -> dict[int, tuple[Any, float]]:
    """Vector and outcome of everything that may be mutated, by id, as the published loop has it."""
    known: dict[int, tuple[Any, float]] = {}
    executed: dict[int, tuple[Any, float]] = {}
    told = iter(fresh or [])
    for number, (_, judged) in enumerate(run.batches):
        joining = []
        for row in range(len(judged)):
            index = judged.index[row]
            outcome = 1.0 if np.isnan(index) else float(index)
            name, start = int(judged.episodes.id[row]), judged.episodes.states[row, 0]
            executed[name] = Fated.task.start_vectors(start[None])[0], outcome
            parent = int(judged.episodes.parent[row])
            if number == 0:
                joining.append(name)
                continue
            assert parent in known, "its parent was not in the corpus"
            if number == 1:  # the mutants that sensitivities begin with
                continue
            new = next(told) if fresh is not None else False
            if not judged.unfair[row] and (outcome < known[parent][1] or new):
                joining.append(name)
        known |= {name: executed[name] for name in joining}
    return known


def test_the_plain_fuzzer_keeps_exactly_what_is_worse_than_its_parent_and_does_not_fail(plain: Run) -> None:
    assert plain.sizes[:2] == [("execution", BUDGET // 5), ("mutant", BUDGET // 5)]
    assert len(slow_corpus(plain)) == plain.context.notes["corpus"] > BUDGET // 5
    assert plain.context.notes["fresh"] == 0


def test_with_freshness_it_keeps_fresh_sequences_too(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[bool] = []
    original = Freshness.of

    def listening(self: Freshness, episodes: Any) -> Any:
        found = original(self, episodes)
        told.extend(found.tolist())
        return found

    monkeypatch.setattr(Freshness, "of", listening)
    run = fuzzed(threshold=1.0)
    assert len(slow_corpus(run, told)) == run.context.notes["corpus"]
    assert 0 < run.context.notes["fresh"] == sum(told) < len(told)


def test_all_executions_are_charged(plain: Run) -> None:
    assert plain.ledger.charged("strict") == plain.ledger.charged("paper") == BUDGET
    assert sum(size for _, size in plain.sizes) == BUDGET


# --- small and odd searches ---------------------------------------------------------------------------


def all_to_one(starts: Any) -> Any:
    return np.tile([1.0, 0.0, 0.0], (len(starts), 1))


def the_same_for_all(starts: Any) -> Any:
    return np.ones((len(starts), 3))


@pytest.mark.parametrize("method", ["mdpfuzz", "map_elites"])
@pytest.mark.parametrize("budget", [1, 2, 10, 60])
@pytest.mark.parametrize("receives", [all_to_one, the_same_for_all, nothing])
def test_every_budget_and_every_team_comes_to_an_end(method: str, budget: int, receives: Any) -> None:
    if strategy_of(configure({"method": method})).missing:
        pytest.skip("ribs is not installed")
    run = search(method, Fated(receives), Fated.task, budget=budget)
    assert run.ledger.charged("strict") == budget
    assert run.tally.failures == (budget if receives is all_to_one else 0)


@pytest.mark.parametrize("method", ["mdpfuzz", "map_elites"])
def test_a_task_without_states_is_refused_and_random_is_named(method: str) -> None:
    chosen = configure({"method": method})
    if strategy_of(chosen).missing:
        pytest.skip("ribs is not installed")
    with pytest.raises(FairTestError, match=r"needs initial states that can be proposed.*'generic'.*method=random"):
        strategy_of(chosen).check_settings(chosen, GenericTask(environment("spread")))


class Line(SpreadTask):
    """Only where the first agent stands along one axis can be chosen."""

    def start_vectors(self, states: Any) -> Any:
        return states[..., :1].copy()

    def starts_from(self, vectors: Any) -> Any:
        states = np.zeros((len(vectors), self.state_size))
        states[:, :1] = vectors
        return states, np.abs(vectors[:, 0]) <= 1


class OnALine(Fated):
    task = Line(environment("spread"))

    def initial_states(self, seeds: Any) -> Any:
        return self.task.starts_from(super().initial_states(seeds)[:, :1])[0]


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("mdpfuzz", {}),
        ("map_elites", {}),
        pytest.param("map_elites", {"emitter": "improvement"}, marks=pytest.mark.slow),
    ],
    ids=["mdpfuzz", "gaussian", "improvement"],
)
def test_a_start_of_one_number_is_enough(method: str, options: dict[str, Any]) -> None:
    if strategy_of(configure({"method": method})).missing:
        pytest.skip("ribs is not installed")
    run = search(method, OnALine(uneven_on_the_left), OnALine.task, budget=120, initial=30, **options)
    assert run.ledger.charged("strict") == 120
    assert run.tally.failures > 0
