"""STARLA: its operators and objectives against plain Python, and whole searches with small teams."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support import TESTS, engine_of, in_small, most_tasks, some_tests, training_sample
from test_operators import row_of
from test_predictor import slow_state
from test_search import Brief, Result, assert_same_run, chosen, search, team, walkers

from epymarl_fairtest.core.episodes import OPERATORS, Episodes, Tests, replay_tests
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.indices.jain import jfi
from epymarl_fairtest.core.judged import Judge, totals
from epymarl_fairtest.core.ledger import ACCOUNTINGS
from epymarl_fairtest.core.scores import weights
from epymarl_fairtest.engine.contract import ActionRule
from epymarl_fairtest.engine.lockstep import Lockstep, q_if_seen
from epymarl_fairtest.predictor import Traces, traces_of
from epymarl_fairtest.predictor.abstraction import candidate_levels
from epymarl_fairtest.settings import options_of
from epymarl_fairtest.store.failures import load_failures
from epymarl_fairtest.strategies.contract import Context
from epymarl_fairtest.strategies.genetic.operators import RESTARTS
from epymarl_fairtest.strategies.starla import operators
from epymarl_fairtest.strategies.starla.operators import (
    SHORTEST,
    Population,
    crossover,
    excused_in,
    explorations,
    forced_actions,
    is_mutated,
    mutate,
    point,
    tournament,
)
from epymarl_fairtest.strategies.starla.search import (
    CROSSOVER,
    GOALS,
    Archive,
    Objectives,
    Round,
    StarlaOptions,
    margin,
    shares,
)

pytestmark = pytest.mark.slow  # an opponent changes rarely; `make test` has its contract (test_contracts.py)

AVAILABLE = np.ones((3, 5), bool)
JUDGE = Judge(jfi, 0.8)  # the threshold of `chosen`
RECORDED = ("obs", "actions", "rewards", "q")


# --- objectives ---------------------------------------------------------------------------------------


def slow_margin(episode: Any, temperature: float, available: Any) -> float:
    """The mean over steps and agents of the largest minus the second largest probability."""
    gaps = []
    for step in episode:
        for q, allowed in zip(step, available, strict=True):
            own = [math.exp(float(v) / temperature) for v, there in zip(q, allowed, strict=True) if there]
            ordered = sorted((w / sum(own) for w in own), reverse=True)
            gaps.append(ordered[0] - (ordered[1] if len(ordered) > 1 else 0.0))
    return sum(gaps) / len(gaps)


@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_the_margin_is_the_mean_gap_between_the_two_most_probable_actions(temperature: float) -> None:
    generator = np.random.default_rng(0)
    available = generator.random((3, 4)) < 0.7
    available[:, 0] = True
    available[1] = [True, False, False, False]
    length = generator.integers(1, 7, 20)
    q = generator.normal(size=(int(length.sum()), 3, 4)).astype(np.float32)
    traces = Traces(q, np.repeat(np.arange(20), length), np.zeros((20, 3)))
    found = margin(traces, weights(q, available, "q", temperature))
    ends = np.cumsum(length)
    for row, (end, steps) in enumerate(zip(ends, length, strict=True)):
        assert found[row] == pytest.approx(slow_margin(q[end - steps : end], temperature, available), abs=1e-12)


def a_context(options: dict[str, Any] | None = None, **changes: Any) -> Context:
    subject = team()
    given = chosen(method="starla", **changes)
    made = options_of(StarlaOptions, options or {}, "starla")
    return Context(
        subject.task, given, 5, JUDGE, AVAILABLE, options=made,
        ask=lambda episodes, steps, obs: q_if_seen(policy_of("spread"), episodes, steps, obs),
    )  # fmt: skip


def test_the_objectives_are_return_margin_and_the_forests_no_fault_and_jfi_takes_the_place_of_the_return() -> None:
    episodes = population("spread").episodes
    judged = JUDGE(episodes)
    reward, index = (Objectives(a_context({"objective": name}), traces_of(judged)) for name in ("reward", "jfi"))
    scores = reward(judged)
    assert scores[:, 0] == pytest.approx([sum(sum(step) for step in rows) for rows in episodes.rewards.tolist()])
    assert index(judged)[:, 0].tolist() == jfi(totals(episodes.rewards)).tolist()
    assert index(judged)[:, 1:].tolist() == scores[:, 1:].tolist()
    assert ((scores[:, 2] >= 0) & (scores[:, 2] <= 1)).all()
    assert len(set(scores[:, 2].tolist())) > 2
    nothing = JUDGE(replace(episodes, rewards=0 * episodes.rewards))
    assert np.isposinf(index(nothing)[:, 0]).all(), "an undefined index is never best"


def test_the_forest_knows_nothing_but_abstract_states() -> None:
    episodes = population("spread").episodes
    judged = JUDGE(episodes)
    objectives = Objectives(a_context(), traces_of(judged))
    other = JUDGE(replace(episodes, rewards=episodes.rewards * np.array([1.0, 7.0, 0.1]) - 3))
    assert objectives(other)[:, 2].tolist() == objectives(judged)[:, 2].tolist()
    assert objectives(other)[:, 0].tolist() != objectives(judged)[:, 0].tolist()


# --- offspring ----------------------------------------------------------------------------------------


def slow_shares(crossing: list[bool], size: int) -> tuple[int, int]:
    """Until |Q| >= |P|: two offspring with the probability of crossover, one otherwise."""
    pairs = picks = offspring = 0
    while offspring < size:
        if crossing[pairs + picks]:
            pairs, offspring = pairs + 1, offspring + 2
        else:
            picks, offspring = picks + 1, offspring + 1
    return pairs, picks


def test_offspring_are_drawn_until_they_are_as_many_as_the_population() -> None:
    for seed in range(200):
        size = 1 + seed % 17
        crossing = (np.random.default_rng(seed).random(size) < CROSSOVER).tolist()
        assert shares(size, np.random.default_rng(seed)) == slow_shares(crossing, size)
    pairs, picks = shares(40_000, np.random.default_rng(0))
    assert pairs / (pairs + picks) == pytest.approx(0.75, abs=0.01)


def slow_dominates(a: list[float], b: list[float]) -> bool:
    return all(x <= y for x, y in zip(a, b, strict=True)) and any(x < y for x, y in zip(a, b, strict=True))


def test_a_tournament_is_won_by_the_first_drawn_that_nobody_in_it_dominates() -> None:
    generator = np.random.default_rng(1)
    decided = 0
    for _ in range(1000):
        members, count, size, columns = (int(n) for n in generator.integers(1, [9, 6, 12, 4]))
        scores = generator.choice([0.0, 0.25, 0.5, np.inf], (members, columns))
        seed = int(generator.integers(2**32))
        winners = tournament(scores, count, size, np.random.default_rng(seed)).tolist()
        groups = np.random.default_rng(seed).integers(0, members, (count, size)).tolist()
        for winner, group in zip(winners, groups, strict=True):
            unbeaten = [
                i for i in group if not any(slow_dominates(scores[j].tolist(), scores[i].tolist()) for j in group)
            ]
            assert winner == unbeaten[0]
            decided += winner != group[0]
    assert decided > 500


def test_points_are_drawn_evenly_between_their_ends() -> None:
    drawn = point(3, np.full(40_000, 6), np.random.default_rng(0))
    assert np.bincount(drawn)[3:] / 40_000 == pytest.approx(np.full(4, 0.25), abs=0.01)
    assert set(point(1, np.array([1] * 50), np.random.default_rng(1)).tolist()) == {1}


def test_an_episode_is_mutated_with_probability_one_over_its_entries() -> None:
    """The released episodes hold a closing entry beside their steps."""
    many, generator = population("spread").take(np.zeros(500, np.int64)), np.random.default_rng(0)
    many.episodes.length[:] = 9
    shares_of_mutants = [is_mutated(many, generator).mean() for _ in range(80)]
    assert np.mean(shares_of_mutants) == pytest.approx(0.1, abs=0.01)


# --- crossover ----------------------------------------------------------------------------------------


@cache
def policy_of(task: str) -> Any:
    return engine_of(task, "gru")._policy


@cache
def engine(task: str) -> Lockstep:
    return engine_of(task, "gru")


@cache
def population(task: str) -> Population:
    """Episodes of a team with memory; their numbers are not their rows."""
    episodes = engine(task).execute(some_tests(task, 40))
    episodes.id = 1000 + 7 * np.arange(len(episodes))
    available = np.ones(episodes.q.shape[2:], bool)
    scores = np.random.default_rng(9).random((len(episodes), 3))
    return Population(episodes, explorations(episodes, available), scores)


@dataclass(frozen=True)
class Crossed:
    children: Population
    alone: int
    pairs: list[tuple[int, int, int, int]]  # rows and steps of both parents of every child, short ones included


def cross(parents: Population, d: float, pairs: int, seed: int, monkeypatch: pytest.MonkeyPatch) -> Crossed:
    """Crossover with any parents, and where it cut them."""
    generator, joints = np.random.default_rng(seed), []
    splice = operators.splice

    def listen(episodes: Episodes, *joint: Any) -> Episodes:
        joints.extend(zip(*(column.tolist() for column in joint), strict=True))
        return splice(episodes, *joint)

    monkeypatch.setattr(operators, "splice", listen)
    children, alone = crossover(parents, lambda n: generator.integers(0, len(parents), n), pairs, d, generator)
    return Crossed(children, alone, [(one, two, at_one, at_two) for one, at_one, two, at_two in joints])


def level(parents: Population) -> float:
    return candidate_levels(traces_of(JUDGE(parents.episodes)).q)[0]


@most_tasks
def test_a_child_is_joined_at_equal_joint_states_within_the_ranges_of_the_released_code(
    task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    parents = population(task)
    d, length = level(parents), parents.episodes.length
    made = cross(parents, d, 60, 1, monkeypatch)
    half = len(made.pairs) // 2
    assert half == 60 - made.alone > 20
    for number, (one, two, at_one, at_two) in enumerate(made.pairs[:half]):
        assert one != two
        assert 1 <= at_one <= length[one] - 2
        assert 1 <= at_two <= length[two] - 3
        assert slow_state(parents.episodes.q[one, at_one], d) == slow_state(parents.episodes.q[two, at_two], d)
        assert made.pairs[half + number] == (two, one, at_two, at_one), "the second child is the other way round"


@most_tasks
def test_a_child_is_recorded_and_nothing_of_it_is_executed(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parents = population(task)
    source = parents.episodes
    made = cross(parents, level(parents), 60, 2, monkeypatch)
    children, row = made.children.episodes, 0
    for one, two, at_one, at_two in made.pairs:
        steps = [(one, t) for t in range(at_one)] + [(two, t) for t in range(at_two, source.length[two])]
        steps = steps[: source.limit]
        if len(steps) < SHORTEST:
            continue  # too short to go on from
        assert children.length[row] == len(steps)
        for t, (parent, step) in enumerate(steps):
            for name in RECORDED:
                assert getattr(children, name)[row, t].tobytes() == getattr(source, name)[parent, step].tobytes()
            assert made.children.excused[row, t].tolist() == parents.excused[parent, step].tolist()
        assert not made.children.excused[row, len(steps) :].any()
        assert children.id[row] == -1
        assert children.parent[row] == source.id[one]
        assert children.root_seed[row] == source.root_seed[one]
        assert children.stream[row] == source.stream[one]
        row += 1
    assert row == len(children)
    assert np.isnan(made.children.scores).all()


def test_children_of_children_name_an_executed_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    first = cross(population("spread"), level(population("spread")), 60, 3, monkeypatch).children
    second = cross(first, level(first), 60, 4, monkeypatch).children
    assert set(second.episodes.parent.tolist()) <= set(population("spread").episodes.id.tolist())
    for row in range(len(second)):
        ancestor = row_of(population("spread").episodes, second.episodes.parent[row])
        assert second.episodes.root_seed[row] == population("spread").episodes.root_seed[ancestor]


def test_short_children_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    parents = population("foraging").take(np.arange(20))
    parents.episodes.length[:] = 6
    made = cross(parents, 1e6, 40, 5, monkeypatch)
    lengths = [at_one + 6 - at_two for _, _, at_one, at_two in made.pairs]
    assert any(length < SHORTEST for length in lengths)
    assert made.children.episodes.length.tolist() == [length for length in lengths if length >= SHORTEST]


def test_the_search_for_a_partner_ends() -> None:
    parents, generator, drawn = population("spread"), np.random.default_rng(6), []

    def draw(count: int) -> NDArray[np.int64]:
        drawn.append(count)
        return generator.integers(0, len(parents), count)

    children, alone = crossover(parents, draw, 9, 1e-6, generator)
    assert (len(children), alone) == (0, 9)
    assert drawn == [9] * RESTARTS


# --- mutation -----------------------------------------------------------------------------------------


class Listening:
    """The team, and what it was asked."""

    def __init__(self, task: str, available: Any) -> None:
        self.policy, self.available = policy_of(task), available

    def ask(self, episodes: Episodes, steps: Any, obs: Any) -> Any:
        self.episodes, self.steps, self.obs = episodes, steps, obs.copy()
        self.q = q_if_seen(self.policy, episodes, steps, obs)
        return self.q


@dataclass(frozen=True)
class Mutated:
    parents: Population
    tests: Tests
    points: NDArray[np.int64]
    asked: Listening


def mutated(parents: Population, task: str, seed: int, available: Any = None) -> Mutated:
    there = np.ones(parents.episodes.q.shape[2:], bool) if available is None else available
    asked = Listening(task, there)
    tests, points = mutate(parents, asked, np.random.default_rng(seed))  # type: ignore[arg-type]
    return Mutated(parents, tests, points, asked)


@most_tasks
def test_a_mutation_changes_one_coordinate_of_the_joint_observation_by_at_most_five_percent(task: str) -> None:
    made = mutated(population(task), task, 1)
    source, coordinates = made.parents.episodes, set()
    for row, step in enumerate(made.points.tolist()):
        assert 3 <= step <= source.length[row] - 2
        seen, changed = source.obs[row, step].ravel(), made.asked.obs[row].ravel()
        (where,) = np.nonzero(seen != changed)
        assert len(where) <= 1
        if len(where):
            assert 0.95 - 1e-6 <= changed[where[0]] / seen[where[0]] <= 1.05 + 1e-6
            coordinates.add(int(where[0]))
    assert len(coordinates) > 8
    assert len(set(made.points.tolist())) > 3
    assert made.asked.steps.tolist() == made.points.tolist()


@most_tasks
def test_a_mutant_repeats_its_record_then_answers_the_changed_observation_then_is_free(task: str) -> None:
    available = np.ones(population(task).episodes.q.shape[2:], bool)
    available[0, :2] = False
    made = mutated(population(task), task, 2, available)
    source, forced = made.parents.episodes, made.tests.forced
    assert forced is not None
    for row, step in enumerate(made.points.tolist()):
        answers = [
            max((a for a in range(len(q)) if there[a]), key=lambda a, q=q: (q[a], -a))  # type: ignore[misc]
            for q, there in zip(made.asked.q[row].tolist(), available, strict=True)
        ]
        assert forced[row, step].tolist() == answers
        assert (forced[row, step + 1 :] == -1).all()
    again = mutated(population(task), task, 2)
    assert again.tests.forced is not None
    for row, step in enumerate(again.points.tolist()):
        assert again.tests.forced[row, :step].tobytes() == source.actions[row, :step].tobytes()


@most_tasks
def test_a_mutant_starts_from_its_root_and_really_goes_through_its_parents_prefix(task: str) -> None:
    made = mutated(population(task), task, 3)
    source, tests = made.parents.episodes, made.tests
    assert tests.from_seed.all()
    assert not tests.start_step.any()
    assert tests.prefix is None
    assert {OPERATORS[code] for code in tests.operator} == {"action"}
    assert tests.parent.tolist() == source.id.tolist()
    assert not set(tests.stream.tolist()) & set(source.stream.tolist())
    executed = engine(task).execute(tests)
    for row, step in enumerate(made.points.tolist()):
        assert executed.states[row, : step + 1].tobytes() == source.states[row, : step + 1].tobytes()
        assert executed.actions[row, : step + 1].tolist() == tests.forced[row, : step + 1].tolist()  # type: ignore[index]
    assert any(executed.actions[row].tobytes() != source.actions[row].tobytes() for row in range(len(executed)))


def test_a_splice_can_be_mutated_and_the_team_is_asked_with_the_memory_of_its_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    children = cross(population("spread"), level(population("spread")), 30, 7, monkeypatch).children
    made = mutated(children, "spread", 4)
    assert made.asked.episodes is children.episodes
    assert made.tests.root_seed.tolist() == children.episodes.root_seed.tolist()
    assert made.tests.parent.tolist() == children.episodes.parent.tolist()


# --- consistency --------------------------------------------------------------------------------------


def slow_greedy(q: Any) -> list[int]:
    return [max(range(len(values)), key=lambda a, v=values: (v[a], -a)) for values in q.tolist()]  # type: ignore[misc]


def slow_inconsistent(forced: Any, records: Population, row: int, executed: Episodes) -> list[tuple[int, int]]:
    """Forced (step, agent) whose action the team takes neither in the real situation nor in the recorded one."""
    found = []
    for t in range(min(executed.length[row], records.episodes.length[row])):
        real, recorded = slow_greedy(executed.q[row, t]), slow_greedy(records.episodes.q[row, t])
        for agent, action in enumerate(forced[row, t].tolist()):
            reasons = (action in (-1, real[agent], recorded[agent]), bool(records.excused[row, t, agent]))
            if not any(reasons):
                found.append((t, agent))
    return found


def mutants_of_splices(task: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Mutated, Population]:
    children = cross(population(task), level(population(task)), 60, 8, monkeypatch).children.take(np.arange(15))
    made = mutated(children, task, 5)
    executed = engine(task).execute(made.tests)
    executed.id = 9000 + np.arange(len(executed))
    excused = excused_in(executed, children, made.points, made.asked.available)
    return made, Population(executed, excused, np.full((len(executed), 3), np.nan))


@most_tasks
def test_an_action_is_excused_if_it_was_explored_or_answered_a_changed_observation(
    task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, mutants = mutants_of_splices(task, monkeypatch)
    executed, inherited = mutants.episodes, 0
    for row, at in enumerate(made.points.tolist()):
        for t in range(executed.limit):
            for agent in range(executed.actions.shape[2]):
                if t >= executed.length[row]:
                    expected = False
                elif t < at:
                    expected = bool(made.parents.excused[row, t, agent])
                    inherited += expected
                else:
                    expected = t == at or executed.actions[row, t, agent] != slow_greedy(executed.q[row, t])[agent]
                assert mutants.excused[row, t, agent] == expected
    assert inherited > 5


@most_tasks
def test_what_is_forced_is_consistent_and_all_that_was_recorded_is_forced_if_it_is(
    task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records of mutants of splices hold actions that the team would not take there: those are not forced."""
    available = np.ones(population(task).episodes.q.shape[2:], bool)
    _, mutants = mutants_of_splices(task, monkeypatch)
    for records in (population(task).take(np.arange(10)), mutants):
        forced = forced_actions(records, available)
        tests = operators.tests_of(records, records.episodes.stream, forced)
        executed = engine(task).execute(tests)
        everything = records.episodes.actions
        for row in range(len(records)):
            assert not slow_inconsistent(forced, records, row, executed)
            for t in range(records.episodes.length[row]):
                recorded = slow_greedy(records.episodes.q[row, t])
                for agent, action in enumerate(everything[row, t].tolist()):
                    own = action == recorded[agent] or records.excused[row, t, agent]
                    assert forced[row, t, agent] == (action if own else -1)
            assert (forced[row, records.episodes.length[row] :] == -1).all()
        freed = (forced == -1) & records.episodes.running[..., None]
        assert freed.any() == (records is mutants)
    would_be = engine(task).execute(operators.tests_of(mutants, mutants.episodes.stream, mutants.episodes.actions))
    assert any(slow_inconsistent(mutants.episodes.actions, mutants, row, would_be) for row in range(len(mutants)))


def test_a_freed_step_is_the_mutants_own(monkeypatch: pytest.MonkeyPatch) -> None:
    _, records = mutants_of_splices("spread", monkeypatch)
    made = mutated(records, "spread", 6)
    executed = engine("spread").execute(made.tests)
    excused = excused_in(executed, records, made.points, AVAILABLE)
    forced, freed = forced_actions(records, AVAILABLE), 0
    for row, at in enumerate(made.points.tolist()):
        for t in range(at):
            for agent in np.flatnonzero(forced[row, t] == -1):
                explored = executed.actions[row, t, agent] != slow_greedy(executed.q[row, t])[agent]
                assert excused[row, t, agent] == explored
                freed += 1
    assert freed > 20


# --- archive and selection ----------------------------------------------------------------------------


def with_scores(parents: Population, scores: Any) -> Population:
    return replace(parents.take(np.arange(len(scores))), scores=np.array(scores))


def test_the_archive_keeps_one_of_every_probably_faulty_child_and_gives_the_likeliest_first() -> None:
    parents = population("spread")
    archive = Archive(np.array([[1.0, 0.1, 0.2]]))
    archive.know(np.array([[2.0, 0.1, 0.2]]))
    first = [[1.0, 0.1, 0.2], [2.0, 0.1, 0.2], [3.0, 0.1, 0.5], [4.0, 0.1, 0.4], [4.0, 0.1, 0.4], [5.0, 0.1, 0.3]]
    second = [[5.0, 0.1, 0.3], [4.0, 0.2, 0.4], [6.0, 0.1, 0.1]]
    assert archive.add(with_scores(parents, first), AVAILABLE) == 2
    assert archive.add(with_scores(parents, second), AVAILABLE) == 2
    batches = list(archive.candidates(3))
    assert [len(batch) for batch in batches] == [3, 1]
    tests = Tests.concatenate(batches)
    rows = [2, 5, 3, 1]  # of the children with 0.1, 0.3 and twice 0.4, in the order in which they came
    assert tests.root_seed.tolist() == parents.episodes.root_seed[rows].tolist()
    assert tests.forced is not None
    assert tests.forced.tobytes() == parents.episodes.actions[rows].tobytes()
    assert {OPERATORS[code] for code in tests.operator} == {"action"}


def test_a_child_like_an_executed_mutant_is_not_executed() -> None:
    """A parent and its mutant share a prefix: joined there, they give the mutant again."""
    parents = with_scores(population("spread"), np.full((6, 3), 0.4))
    one = Round(a_context(), 0, JUDGE(parents.episodes), lambda e: np.full((len(e), 3), 0.7))  # type: ignore[arg-type]
    one._objectives = lambda e: np.full((len(e), 3), 0.4)  # type: ignore[assignment]
    mutants = one.mutants(JUDGE(parents.episodes.take(slice(4))), parents, np.full(6, 3))
    assert len(mutants) == 4, "the budget cut off two"
    assert one.archive.add(parents, AVAILABLE) == 0


def test_an_objective_that_was_covered_once_guides_no_more() -> None:
    initial = JUDGE(population("spread").episodes)
    context = a_context()
    one = Round(context, 0, initial, lambda e: np.tile([1.0, 0.5, 0.5], (len(e), 1)))  # type: ignore[arg-type]
    assert one.goals.tolist() == GOALS.tolist()
    size = len(one.population)
    one.select(with_scores(population("spread"), [[9.0, 0.03, 0.9]]))
    assert one.goals.tolist() == [-np.inf, np.inf, 0.05]
    one.select(with_scores(population("spread"), [[0.0, 0.5, 0.1]] * size))
    assert one.population.scores[:, 1].min() == 0.5, "nobody holds it any more"
    assert one.goals.tolist() == [-np.inf, np.inf, 0.05]
    assert len(one.population) == size


# --- whole searches -----------------------------------------------------------------------------------


def run_starla(path: Path, subject: Any = None, **changes: Any) -> Result:
    given = chosen(method="starla", **{"budget": 160, "options": {"population": 40}, **changes})
    return search(subject or team(), given, path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return run_starla(tmp_path_factory.mktemp("whole") / "run")


def test_a_search_has_rounds_of_random_executions_mutants_and_probably_faulty_children(whole: Result) -> None:
    kinds = [(purpose, OPERATORS[e.operator[0]], len(e)) for purpose, e in whole.folder.batches]
    assert kinds[0] == ("execution", "seed", 40)
    assert {kind[:2] for kind in kinds} == {("execution", "seed"), ("mutant", "action"), ("execution", "action")}
    finals = [number for number, kind in enumerate(kinds) if kind[:2] == ("execution", "action")]
    before = kinds[1 : finals[0]]
    assert all(kind[0] == "mutant" for kind in before)
    assert 0 < len(before) <= 10
    notes = whole.summary["notes"]
    assert notes["probably_faulty"] >= sum(kinds[number][2] for number in finals) > 0
    assert 0 < notes["final_actions_replaced"] < notes["final_actions"]
    assert notes["final_actions"] == 3 * sum(int(whole.folder.batches[n][1].length.sum()) for n in finals)


def test_parents_are_executed_episodes_of_the_same_root(whole: Result) -> None:
    root: dict[int, int] = {}
    for _, episodes in whole.folder.batches:
        for number, parent, seed in zip(episodes.id, episodes.parent, episodes.root_seed, strict=True):
            assert parent == -1 or root[int(parent)] == seed
            root[int(number)] = int(seed)
        assert (episodes.start_step == 0).all(), "everything is executed from its start, and charged"


@pytest.mark.parametrize(
    ("budget", "more"),
    [
        (1, {}),
        pytest.param(19, {}, marks=pytest.mark.slow),
        pytest.param(101, {"accounting": "paper"}, marks=pytest.mark.slow),
        (110, {"theta": "auto", "calibration_episodes": 40, "quantile": 0.2}),
        pytest.param(
            60,
            {"theta": "auto", "calibration_episodes": 40, "quantile": 0.2, "accounting": "paper"},
            marks=pytest.mark.slow,
        ),
        (80, {"theta": 0.001}),  # nobody is unfair: no forest, nobody is probably faulty
        (80, {"theta": 1.0}),  # everybody is
        pytest.param(80, {"execution": "greedy"}, marks=pytest.mark.slow),
        (80, {"execution": "softmax", "f3_temperature": 1.0}),
        pytest.param(80, {"options": {"objective": "jfi", "population": 30}}, marks=pytest.mark.slow),
        pytest.param(
            80,
            {"options": {"generations": 1, "population": 30, "tournament": 1, "reserve": 0.0}},
            marks=pytest.mark.slow,
        ),
        (80, {"options": {"generations": 1000, "population": 30, "reserve": 0.5}}),
        (60, {"d": 1e-7}),  # no two steps are in the same state
    ],
    ids=str,
)
def test_the_budget_is_used_exactly(budget: int, more: dict[str, Any], tmp_path: Path) -> None:
    result = run_starla(tmp_path / "run", budget=budget, **more)
    accounting = more.get("accounting", "strict")
    assert set(ACCOUNTINGS) == {"strict", "paper"}
    assert result.summary[f"charged_{accounting}"] == budget
    calibrated = 40 if "calibration_episodes" in more else 0
    assert result.summary["evaluated"] == budget - (calibrated if accounting == "strict" else 0)


@pytest.mark.slow
def test_a_round_keeps_its_reserve_for_children(tmp_path: Path) -> None:
    options = {"generations": 1000, "population": 40, "reserve": 0.5}
    result = run_starla(tmp_path / "run", budget=200, options=options)
    (first,) = result.folder.batches[0][1:]
    mutants = 0
    for purpose, episodes in result.folder.batches[1:]:
        if purpose != "mutant":
            break
        mutants += len(episodes)
    assert len(first) == 40
    assert 80 <= mutants <= 80 + 40, "half of the 160 that were left, and the rest of a generation"


def test_what_calibration_costs_is_not_planned_with(tmp_path: Path) -> None:
    more = {"theta": "auto", "calibration_episodes": 40, "quantile": 0.2, "options": {"population": 1500}}
    result = run_starla(tmp_path / "run", budget=200, **more)
    assert len(result.folder.batches[0][1]) == (200 - 40) // 4


def run_in(path: str, workers: int) -> None:
    """One search in a process of its own."""
    in_small()
    run_starla(Path(path), workers=workers)


@pytest.mark.fresh
def test_the_same_seed_gives_the_same_run_in_another_process_with_other_workers(whole: Result, tmp_path: Path) -> None:
    command = f"import test_starla; test_starla.run_in({str(tmp_path / 'run')!r}, 2)"
    path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONHASHSEED": "random", "PYTHONPATH": path}
    subprocess.run([sys.executable, "-W", "ignore", "-c", command], env=environment, check=True)
    assert_same_run(whole.folder.path, tmp_path / "run")


@most_tasks
def test_every_failure_replays_from_the_file(task: str, tmp_path: Path) -> None:
    subject, theta = team(task), {"spread": 0.8, "tag": 0.95, "foraging": 0.7}[task]
    result = run_starla(tmp_path / "run", subject, theta=theta, budget=120)
    failures = load_failures(tmp_path / "run" / "failures.npz")
    assert "action" in result.failures["operator"].tolist()
    how = ActionRule("epsilon_greedy", chosen().epsilon, 1.0, subject.available)
    real = Lockstep(subject.make_world, subject.policy, how, limit=subject.limit, state_size=subject.task.state_size)
    again = real.execute(replay_tests(failures))
    for name in ("states", "actions", "rewards", "q", "length"):
        assert getattr(again, name).tobytes() == result.failures[name].tobytes(), name


def test_a_task_that_cannot_be_restored_is_searched_too(tmp_path: Path) -> None:
    result = run_starla(tmp_path / "run", walkers(), theta=0.9, epsilon=0.3, budget=100)
    assert result.summary["executed_episodes"] == 100
    assert {"mutant", "execution"} <= set(result.summary["ledger"])


@pytest.mark.slow
def test_short_episodes_are_not_bred_from(tmp_path: Path) -> None:
    result = run_starla(tmp_path / "run", walkers(Brief), theta=0.9, epsilon=0.3, budget=200)
    assert result.summary["executed_episodes"] == 200
    length = {int(i): int(n) for _, e in result.folder.batches for i, n in zip(e.id, e.length, strict=True)}
    bred = {int(parent) for _, e in result.folder.batches for parent in e.parent if parent >= 0}
    assert bred
    assert all(length[parent] >= SHORTEST for parent in bred)
    assert min(length.values()) < SHORTEST


def test_without_long_episodes_the_rest_is_random(tmp_path: Path) -> None:
    result = run_starla(tmp_path / "run", team(limit=4), budget=80)
    assert "STARLA continues at random" in result.said
    assert result.summary["executed_episodes"] == 80
    assert all((episodes.parent == -1).all() for _, episodes in result.folder.batches)


def test_the_training_sample_teaches_the_forest(tmp_path: Path) -> None:
    result = run_starla(tmp_path / "run", replace(team(), sample=training_sample()), budget=120)
    predictor = result.summary["predictor"]
    rounds = [e for purpose, e in result.folder.batches if purpose == "execution" and (e.operator == 0).all()]
    assert predictor["episodes"] in (40 + sum(map(len, rounds)), 40 + sum(map(len, rounds[:-1])))
    assert predictor["auc_abstract"] is not None
    assert predictor["auc_full"] is None


@pytest.mark.parametrize(
    ("name", "value"), [("population", 1), ("reserve", 1.0), ("objective", "f1"), ("generation", 3)]
)
def test_options_that_make_no_sense_are_refused(name: str, value: Any) -> None:
    with pytest.raises(FairTestError, match=rf"options\.{name}"):
        options_of(StarlaOptions, {name: value}, "starla")
