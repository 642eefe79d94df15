"""MASTest against slow plain references: diversities, energies, gains, critical cells; and whole small searches."""

from __future__ import annotations

import math
import sys
from collections import Counter
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import ot
import pytest
import support
from scipy.optimize import linear_sum_assignment
from support import AGENTS, assert_identical, digest_of, environment, most_tasks, some_tests
from test_operators import drifting

from epymarl_fairtest.campaign.loop import Campaign
from epymarl_fairtest.campaign.tally import Tally
from epymarl_fairtest.core.episodes import Episodes, Tests, operator_code, replay_tests
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.indices import INDICES
from epymarl_fairtest.core.indices.jain import jfi
from epymarl_fairtest.core.judged import Judge, Judged, totals
from epymarl_fairtest.core.ledger import Ledger
from epymarl_fairtest.settings import options_of
from epymarl_fairtest.strategies import STRATEGIES, configure
from epymarl_fairtest.strategies.contract import Context, Request
from epymarl_fairtest.strategies.genetic.operators import mutate
from epymarl_fairtest.strategies.mastest import diversity
from epymarl_fairtest.strategies.mastest.diversity import Diversity, graphs, wasserstein, weisfeiler_lehman
from epymarl_fairtest.strategies.mastest.search import Cells, Corpus, MASTestOptions, mastest, outcome, perturb, thinned
from epymarl_fairtest.tasks import task_for
from epymarl_fairtest.tasks.contract import Task

pytestmark = pytest.mark.slow  # an opponent changes rarely; `make test` has its contract (test_contracts.py)

ACTION, SEED = operator_code("action"), operator_code("seed")
engine_of = cache(support.engine_of)  # worlds are made once


def context_of(task: Task, actions: int = 5, *, theta: float = 0.9, seed: int = 3, **options: Any) -> Context:
    given = configure({"method": "mastest", "budget": 1000})
    available = np.ones((task.n_agents, actions), bool)
    judge = Judge(INDICES["jfi"], theta)
    return Context(task, given, seed, judge, available, options=MASTestOptions(**options))


class Search:
    """A search by hand: what the strategy asked for, what it received, and its variables after every iteration."""

    def __init__(self, context: Context, engine: Any) -> None:
        self.context, self._engine, self._strategy = context, engine, mastest(context)
        self.asked: list[Tests] = []
        self.received: list[Episodes] = []
        self._request: Request = next(self._strategy)

    def iterate(self, batch: int | None = None) -> Episodes:
        assert self._request.purpose == "execution"
        tests = self._request.tests
        assert tests is not None
        tests = tests.take(slice(batch))
        episodes = self._engine.execute(tests)
        episodes.id = sum(map(len, self.received)) + np.arange(len(episodes), dtype=np.int64)
        self.asked.append(tests)
        self.received.append(episodes)
        self._request = self._strategy.send(self.context.judge(episodes))
        return episodes

    def __getattr__(self, name: str) -> Any:
        return self._strategy.gi_frame.f_locals[name]


@cache
def searched(task: str, agent: str = "mlp") -> Search:
    """A few iterations with a team that explores a lot."""
    known = task_for(environment(task))
    context = context_of(
        known, engine_of(task)._policy.n_actions, theta=0.99, batch=12, seeds=6, critical=150, overrides=None
    )
    search = Search(context, engine_of(task, agent))
    for _ in range(4):
        search.iterate()
    return search


def uneven(task: str, count: int, seed: int) -> Episodes:
    """Episodes that end at different steps; what lies behind the end is not cleared."""
    episodes = engine_of(task).execute(some_tests(task, count, seed))
    episodes.length = np.random.default_rng(seed).integers(1, episodes.length + 1).astype(np.int32)
    return episodes


# --- diversities --------------------------------------------------------------------------------------


def slow_individual(task: Task, new: Episodes, initial: Episodes) -> list[float]:
    def sequence(episodes: Episodes, row: int, agent: int) -> list[tuple[float, ...]]:
        steps = [task.motion(episodes.states[row, t + 1])[agent] for t in range(episodes.length[row])]
        return [tuple(round(float(number), 2) for number in step) for step in steps]

    def distance(a: list[Any], b: list[Any]) -> float:
        differing = sum(x != y for x, y in zip(a, b, strict=False))
        return (abs(len(a) - len(b)) + differing) / max(len(a), len(b))

    found = []
    for row in range(len(new)):
        nearest = []
        for agent in range(task.n_agents):
            own = sequence(new, row, agent)
            nearest.append(min(distance(own, sequence(initial, k, agent)) for k in range(len(initial))))
        found.append(sum(nearest) / len(nearest))
    return found


def slow_update(nodes: list[list[float]]) -> list[list[float]]:
    updated = []
    for i, node in enumerate(nodes):
        label = list(node)
        for j, other in enumerate(nodes):
            if i != j:
                apart = max(math.hypot(node[0] - other[0], node[1] - other[1]), diversity.NEAREST)
                label = [a + b / apart for a, b in zip(label, other, strict=True)]
        updated.append(label)
    return updated


def slow_graphs(task: Task, episodes: Episodes, row: int) -> list[np.ndarray]:
    length = int(episodes.length[row])
    paid = [sum(episodes.rewards[row, t].tolist()) for t in range(length)]
    best = paid.index(max(paid))
    steps = [min(max(best + offset, 0), length - 1) for offset in (-4, -2, 0, 2, 4)]
    return [np.array(slow_update(task.motion(episodes.states[row, step + 1]).tolist())) for step in steps]


def slow_team(task: Task, new: Episodes, initial: Episodes) -> list[float]:
    def distance(a: list[np.ndarray], b: list[np.ndarray]) -> list[float]:
        return [float(ot.emd2([], [], ot.dist(x, y, metric="euclidean"))) for x, y in zip(a, b, strict=True)]

    known = [slow_graphs(task, initial, k) for k in range(len(initial))]
    among = [d for i in range(len(known)) for j in range(i + 1, len(known)) for d in distance(known[i], known[j])]
    found = []
    for row in range(len(new)):
        own = slow_graphs(task, new, row)
        apart = [d for other in known for d in distance(own, other)]
        found.append((sum(apart) / len(apart)) / (sum(among) / len(among)))
    return found


@most_tasks
def test_individual_diversity_is_the_hamming_distance_to_the_nearest_initial_episode(task: str) -> None:
    known, initial, new = task_for(environment(task)), uneven(task, 4, 1), uneven(task, 5, 2)
    new = Episodes.concatenate([new, initial.take([2])])
    new.states[1] = initial.states[0]  # the same way, but for another number of steps
    found = Diversity(known, initial).individual(new)
    assert found == pytest.approx(slow_individual(known, new, initial), abs=1e-12)
    assert found[-1] == 0
    assert 0 < found[1] < 1
    assert found[0] > 0


def test_differences_below_the_second_decimal_are_none() -> None:
    known, initial = task_for(environment("spread")), uneven("spread", 3, 1)
    initial.states = np.round(initial.states, 2)
    near, far = initial.take([0]), initial.take([0])
    near.states = near.states + 0.004
    far.states = far.states + 0.006
    measure = Diversity(known, initial)
    assert measure.individual(near) == 0
    assert measure.individual(far) == 1


@pytest.mark.parametrize("agents", [2, 3, 5])
def test_the_graph_update_adds_every_neighbour_over_its_distance(agents: int) -> None:
    nodes = np.random.default_rng(4).normal(size=(7, 2, agents, 4))
    nodes[0, 0, 1, :2] = nodes[0, 0, 0, :2]  # on one spot
    expected = [[slow_update(graph.tolist()) for graph in row] for row in nodes]
    assert weisfeiler_lehman(nodes) == pytest.approx(np.array(expected), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("agents", range(1, 8))
def test_the_wasserstein_distance_is_exact_for_any_number_of_agents(agents: int) -> None:
    generator = np.random.default_rng(agents)
    a, b = generator.normal(size=(6, 1, agents, 4)), generator.normal(size=(3, agents, 4))
    found = wasserstein(a, b)
    assert found.shape == (6, 3)
    for i in range(6):
        for j in range(3):
            cost = ot.dist(a[i, 0], b[j], metric="euclidean")
            assert found[i, j] == pytest.approx(float(ot.emd2([], [], cost)), abs=1e-9)
            assert found[i, j] == pytest.approx(cost[linear_sum_assignment(cost)].sum() / agents, abs=1e-9)
    assert wasserstein(a, a[..., ::-1, :]) == pytest.approx(0, abs=1e-12)


def test_large_teams_without_pot_are_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ot", None)
    wasserstein(np.zeros((5, 4)), np.ones((5, 4)))
    with pytest.raises(FairTestError, match=r"POT for a team of 6 agents.*pip install pot"):
        wasserstein(np.zeros((6, 4)), np.ones((6, 4)))


@most_tasks
def test_team_diversity_is_the_distance_of_the_graphs_around_the_best_step(task: str) -> None:
    known, initial, new = task_for(environment(task)), uneven(task, 4, 1), uneven(task, 5, 2)
    found = Diversity(known, initial).team(new)
    assert found == pytest.approx(slow_team(known, new, initial), rel=1e-9)
    assert len(set(found.tolist())) == len(found)
    for row in range(len(new)):
        assert graphs(known, new)[row] == pytest.approx(np.array(slow_graphs(known, new, row)), rel=1e-9)


def test_initial_episodes_that_are_all_alike_or_alone_leave_finite_diversities() -> None:
    known, initial, new = task_for(environment("spread")), uneven("spread", 1, 1), uneven("spread", 5, 2)
    for known_ones in (initial, initial.take([0, 0, 0])):
        measure = Diversity(known, known_ones)
        assert (measure.team(new) > 0).all()
        assert np.isfinite(measure.team(new)).all()
        assert measure.team(initial) == measure.individual(initial) == 0


# --- energies, gains and the corpus -------------------------------------------------------------------


class SlowMASTest:
    """Energies, gains and retention case by case, in dictionaries."""

    def __init__(self, search: Search) -> None:
        self.task, self.theta = search.context.task, search.context.theta
        self.initial = search.received[0]
        self.energy = dict.fromkeys(range(len(self.initial)), 1.0)
        self.runs = {seed: [0, 0] for seed in self.energy}
        self.result = {seed: self.outcome(self.initial, seed) for seed in self.energy}
        self.id = {seed: int(self.initial.id[seed]) for seed in self.energy}
        self.gain: dict[int, float] = {}
        self.cell_runs: dict[int, list[int]] = {}

    @staticmethod
    def outcome(episodes: Episodes, row: int) -> float:
        agents = episodes.rewards.shape[-1]
        x = [sum(episodes.rewards[row, :, agent].tolist()) for agent in range(agents)]
        if not any(x):
            return 1.0
        return (sum(x) ** 2 / (agents * sum(number**2 for number in x)) - 1 / agents) / (1 - 1 / agents)

    @staticmethod
    def change(runs: list[int], fails: bool, e_v: float) -> float:
        runs[0 if fails else 1] += 1
        failures, benign = runs
        e_f = failures / (failures + benign) if fails else -0.1 * benign / (failures + benign)
        return 0.5 * e_f + 0.5 * math.tanh(e_v) - 0.05

    def iterate(self, chosen: list[int], tests: Tests, episodes: Episodes, cells: Any) -> None:
        individual = slow_individual(self.task, episodes, self.initial)
        team = slow_team(self.task, episodes, self.initial)
        kept = []
        for row, seed in enumerate(chosen):
            value, fails = self.outcome(episodes, row), bool(jfi(totals(episodes.rewards[row])) <= self.theta)
            diverse = (individual[row] + team[row]) / 2
            e_v = abs(self.result[seed] - value) / max(1 - diverse + 1e-5, 1e-5)
            self.energy[seed] += self.change(self.runs[seed], fails, e_v)
            assert tests.forced is not None
            steps = range(episodes.length[row])
            perturbed = {int(cells[row, t, i]) for t in steps for i in range(3) if tests.forced[row, t, i] >= 0}
            for cell in perturbed:
                change = self.change(self.cell_runs.setdefault(cell, [0, 0]), fails, e_v)
                self.gain[cell] = self.gain.get(cell, 0.0) + change
            if fails and diverse > 0.5:
                kept.append((1 + 0.5 * math.tanh(e_v), value, int(episodes.id[row])))
        for energy, value, number in kept:
            seed = len(self.energy)
            self.energy[seed], self.runs[seed], self.result[seed], self.id[seed] = energy, [0, 0], value, number


def row_of(search: Search, ids: np.ndarray) -> list[int]:
    """The corpus' rows that recorded the episodes with these ids."""
    return [search.corpus.id.tolist().index(number) for number in ids]


@most_tasks
@pytest.mark.parametrize("batch", [1, 7])
def test_energies_gains_and_retention_follow_a_plain_account(task: str, batch: int) -> None:
    known = task_for(environment(task))
    theta = {"spread": 0.93, "tag": 0.97, "foraging": 0.99}[task]
    context = context_of(known, engine_of(task)._policy.n_actions, theta=theta, batch=batch, seeds=4, critical=400)
    search = Search(context, engine_of(task, epsilon=0.9 if task == "foraging" else 0.3))
    search.iterate()
    slow = SlowMASTest(search)
    for _ in range(14 // batch):
        episodes = search.iterate()
        tests = search.asked[-1]
        slow.iterate(row_of(search, tests.parent), tests, episodes, search.cells.of(episodes))
        corpus, cells = search.corpus, search.cells
        assert corpus.id.tolist() == list(slow.id.values())
        assert corpus.energy == pytest.approx(np.array(list(slow.energy.values())), rel=1e-7, abs=1e-7)
        assert corpus.runs[:, ::-1].tolist() == list(slow.runs.values())
        assert np.flatnonzero(cells.runs.any(axis=1)).tolist() == sorted(slow.gain)
        for cell, gain in slow.gain.items():
            assert cells.gain[cell] == pytest.approx(gain, rel=1e-7, abs=1e-7)
            assert cells.runs[cell, ::-1].tolist() == slow.cell_runs[cell]
    runs = np.array(list(slow.runs.values())).sum(axis=0)
    assert runs.sum() == 14
    assert runs.all(), runs
    assert len(slow.gain) > 9
    assert len(slow.energy) > 4, "no failure was retained: the account says nothing about retention"


def corpus_of(energy: list[float], **changes: Any) -> Corpus:
    count = len(energy)
    none, cells = np.full((count, 4, 2), -1, np.int16), np.zeros((count, 4, 2), np.int16)
    values: dict[str, Any] = {
        "root_seed": np.arange(count),
        "stream": np.arange(count, dtype=np.uint64),
        "forced": none,
        "id": np.arange(count),
        "cells": cells,
        "outcome": np.zeros(count),
        "energy": np.array(energy),
        "runs": np.zeros((count, 2), np.int64),
    }
    return Corpus(**{**values, **changes})


def test_cases_are_selected_in_proportion_to_energies_above_zero() -> None:
    corpus = corpus_of([1.0, -2.0, 3.0, 0.0])
    assert corpus.probabilities().tolist() == [0.25, 0, 0.75, 0]
    drawn = Counter(corpus.select(4000, np.random.default_rng(1)).tolist())
    assert set(drawn) == {0, 2}
    assert drawn[2] / 4000 == pytest.approx(0.75, abs=0.03)


def test_cases_without_any_energy_left_are_selected_evenly() -> None:
    corpus = corpus_of([-1.0, 0.0, -0.5, -3.0])
    assert corpus.probabilities().tolist() == [0.25] * 4
    assert len(set(corpus.select(100, np.random.default_rng(1)).tolist())) == 4


def test_the_outcome_is_the_index_from_0_to_1_and_nothing_received_is_even() -> None:
    context = context_of(task_for(environment("spread")))
    rewards = np.zeros((3, 2, 3))
    rewards[0, 0] = [1, 0, 0]
    rewards[1, 1] = [2, 2, 2]
    episodes: Any = SimpleNamespace(rewards=rewards)
    assert outcome(context.judge(episodes), context) == pytest.approx([0, 1, 1])
    settings = configure({"method": "mastest", "index": "min_max", "theta": 0.5})
    other = replace(context, settings=settings, judge=Judge(INDICES["min_max"], 0.5))
    rewards[0, 1] = [0, 0.5, 0.5]
    assert outcome(other.judge(episodes), other) == pytest.approx([0.5, 1, 1])


# --- critical states ----------------------------------------------------------------------------------


@most_tasks
def test_cells_are_projected_observations_in_five_bins_per_dimension(task: str) -> None:
    initial, new = uneven(task, 4, 1), uneven(task, 6, 2)
    cells = Cells(initial, np.random.default_rng(7))
    projection = np.random.default_rng(7).uniform(0, 0.1, (initial.obs.shape[-1], 5))

    def projected(obs: np.ndarray) -> list[float]:
        return [sum(float(o) * p for o, p in zip(obs, column, strict=True)) for column in projection.T]

    seen = [
        projected(obs)
        for row in range(4)
        for obs in initial.obs[row, : initial.length[row]].reshape(-1, obs_size(initial))
    ]
    low, high = [min(column) for column in zip(*seen, strict=True)], [max(column) for column in zip(*seen, strict=True)]
    found = cells.of(new)
    for row in range(len(new)):
        assert (found[row, new.length[row] :] == -1).all()
        for step in range(new.length[row]):
            for agent in range(3):
                values = projected(new.obs[row, step, agent])
                digits = [min(max(int((v - a) / (b - a) * 5), 0), 4) for v, a, b in zip(values, low, high, strict=True)]
                assert found[row, step, agent] == sum(digit * 5**k for k, digit in enumerate(digits))
    assert len(np.unique(found)) > 5


def obs_size(episodes: Episodes) -> int:
    return episodes.obs.shape[-1]


def test_observations_that_never_change_lie_in_one_cell() -> None:
    initial = uneven("spread", 3, 1)
    initial.obs[:] = 0.5
    found = Cells(initial, np.random.default_rng(7)).of(initial)
    assert set(np.unique(found).tolist()) == {-1, 0}


def test_the_cells_with_the_highest_gain_are_critical_and_ties_are_shuffled() -> None:
    cells = Cells(uneven("spread", 3, 1), np.random.default_rng(7))
    cells.gain[:] = -1
    cells.gain[[5, 900, 3124]] = [0.1, 7, 3]
    tied = list(range(100, 108))
    cells.gain[tied] = 0
    generator, drawn = np.random.default_rng(2), Counter[int]()
    for _ in range(800):
        critical = cells.critical(7, generator).tolist()
        assert critical[:3] == [900, 3124, 5]
        assert len(set(critical)) == 7
        drawn.update(critical[3:])
    assert set(drawn) == set(tied)
    assert all(abs(count / 800 - 0.5) < 0.07 for count in drawn.values())
    assert cells.critical(0, generator).tolist() == []
    assert len(cells.critical(10**6, generator)) == 5**5


def perturbed(corpus: Corpus, **options: Any) -> tuple[Context, Tests]:
    """A world of two agents in which only cell 9 is critical; the second agent lacks actions 0 and 2."""
    context = context_of(task_for(environment("spread")), **{"critical": 1, **options})
    context = replace(context, available=np.array([[1, 1, 1, 1, 1], [0, 1, 0, 1, 1]], bool))
    cells: Any = SimpleNamespace(critical=lambda count, generator: np.array([9, 30])[:count])
    tests, forced = perturb(corpus, cells, context, np.random.default_rng(1))
    assert tests.forced is forced
    return context, tests


def test_agents_take_random_available_actions_where_a_cell_is_critical_and_nowhere_else() -> None:
    count = 300
    cells = np.random.default_rng(3).integers(5, 10, (count, 4, 2)).astype(np.int16)
    cells[:, 3] = -1  # over
    inherited = np.full((count, 4, 2), -1, np.int16)
    inherited[:, 1, 0] = 2
    _, tests = perturbed(corpus_of([1.0] * count, cells=cells, forced=inherited))
    assert tests.forced is not None
    critical = cells == 9
    assert (tests.forced[~critical] == inherited[~critical]).all()
    for agent, allowed in ((0, [0, 1, 2, 3, 4]), (1, [1, 3, 4])):
        drawn = Counter(tests.forced[..., agent][critical[..., agent]].tolist())
        assert sorted(drawn) == allowed
        assert min(drawn.values()) > 0.6 * max(drawn.values())
    assert tests.root_seed.tolist() == tests.parent.tolist() == list(range(count))
    assert tests.from_seed.all()


@pytest.mark.parametrize(("exploration", "kept"), [("new", [False] * 3), ("recorded", [False, True, False])])
def test_children_explore_anew_unless_the_recorded_exploration_is_asked_for_and_something_is_changed(
    exploration: str, kept: list[bool]
) -> None:
    cells = np.zeros((3, 4, 2), np.int16)
    cells[1, 2, 1] = 9
    forced = np.full((3, 4, 2), -1, np.int16)
    forced[2, 0, 0] = 1
    context, tests = perturbed(corpus_of([1.0] * 3, cells=cells, forced=forced), exploration=exploration)
    assert (tests.stream == np.arange(3)).tolist() == kept
    assert tests.operator.tolist() == [SEED, ACTION, ACTION]
    assert context.notes["unchanged_cases"] == 2


def test_more_overrides_than_allowed_are_thinned_at_random() -> None:
    forced = np.full((400, 4, 2), -1, np.int16)
    forced[:, :3] = np.arange(6).reshape(3, 2)
    found = thinned(forced, 2, np.random.default_rng(1))
    assert ((found >= 0).sum(axis=(1, 2)) == 2).all()
    assert ((found == forced) | (found == -1)).all()
    kept = (found >= 0).mean(axis=0)[:3]
    assert (np.abs(kept - 1 / 3) < 0.08).all()
    assert (thinned(forced, 6, np.random.default_rng(1)) == forced).all()
    _, tests = perturbed(corpus_of([1.0] * 9, cells=np.full((9, 4, 2), 9, np.int16)), overrides=3)
    assert tests.forced is not None
    assert ((tests.forced >= 0).sum(axis=(1, 2)) == 3).all()


# --- whole searches -----------------------------------------------------------------------------------


def run(budget: int, *, task: str = "spread", engine: Any = None, **options: Any) -> tuple[Campaign, list[Episodes]]:
    known, batches = task_for(environment(task)), []  # type: ignore[var-annotated]
    context = context_of(known, engine_of(task)._policy.n_actions, **options)
    context = replace(context, settings=replace(context.settings, budget=budget, accounting="strict"))

    def save_batch(number: int, purpose: str, judged: Judged) -> None:
        batches.append(judged.episodes)

    store: Any = SimpleNamespace(load_batch=lambda number: None, save_batch=save_batch)
    tally = Tally(known, context.judge, bins=4, distinct_distance=0.1)
    campaign = Campaign(STRATEGIES["mastest"], context, engine or engine_of(task), store, tally, Ledger())
    campaign.run()
    return campaign, batches


@pytest.mark.parametrize(("budget", "sizes"), [(1, [1]), (6, [6]), (13, [10, 3]), (100, [10, 32, 32, 26])])
def test_the_budget_is_used_to_the_last_episode(budget: int, sizes: list[int]) -> None:
    campaign, batches = run(budget, batch=32)
    assert [len(batch) for batch in batches] == sizes
    assert campaign.ledger.charged("strict") == campaign.ledger.charged("paper") == budget


def test_one_case_per_iteration_works_as_well() -> None:
    _, batches = run(20, batch=1, seeds=3)
    assert [len(batch) for batch in batches] == [3] + [1] * 17


@most_tasks
def test_forced_actions_are_executed_and_all_others_are_the_teams_own(task: str) -> None:
    search = searched(task)
    overridden = 0
    for tests, episodes in zip(search.asked[1:], search.received[1:], strict=True):
        assert tests.forced is not None
        running = np.arange(episodes.limit) < episodes.length[:, None]
        executed = (tests.forced >= 0) & running[..., None]
        assert (episodes.actions[executed] == tests.forced[executed]).all()
        assert ((tests.operator == ACTION) == (tests.forced >= 0).any(axis=(1, 2))).all()
        overridden += int(executed.sum())
        free = replace(tests, forced=None)
        alone = engine_of(task).execute(free)
        first = np.where(executed.any(axis=2), np.arange(episodes.limit), episodes.limit).min(axis=1)
        for row in range(len(tests)):
            assert (alone.actions[row, : first[row]] == episodes.actions[row, : first[row]]).all()
    assert search.context.notes["forced_actions"] == overridden > 20
    assert search.context.notes["actions"] == 3 * sum(int(batch.length.sum()) for batch in search.received[1:])


def test_children_of_retained_cases_keep_their_forced_actions() -> None:
    search = searched("spread")
    recorded = Episodes.concatenate(search.received)
    none = np.full_like(search.received[0].actions, -1)
    forced = np.concatenate([none, *(tests.forced for tests in search.asked[1:])])
    kept = 0
    for tests in search.asked[1:]:
        assert tests.forced is not None
        assert (tests.root_seed == recorded.root_seed[tests.parent]).all()
        assert (tests.forced >= 0)[forced[tests.parent] >= 0].all()
        kept += int((tests.forced == forced[tests.parent])[forced[tests.parent] >= 0].sum())
    assert kept > 0


@most_tasks
@pytest.mark.parametrize("agent", AGENTS)
def test_cases_with_forced_actions_replay_exactly(task: str, agent: str) -> None:
    search = searched(task, agent)
    found = Episodes.concatenate(search.received)
    assert 10 < (found.operator == ACTION).sum() < len(found)
    again = engine_of(task, agent).execute(replay_tests(found))
    again.id = found.id
    assert_identical(again, found)


@pytest.mark.slow
def test_a_mixture_of_seeds_mutants_and_forced_actions_replays_exactly() -> None:
    engine, known = engine_of("tag", "gru"), task_for(environment("tag"))
    forced = Episodes.concatenate(searched("tag", "gru").received)
    generator = np.random.default_rng(3)
    tests, _ = mutate(forced, lambda count: generator.integers(0, len(forced), count), 20, known, generator)
    found = Episodes.concatenate([forced, engine.execute(tests)])
    assert {ACTION, SEED, operator_code("mutation")} == set(found.operator.tolist())
    again = engine.execute(replay_tests(found))
    again.id = found.id
    assert_identical(again, found)


def test_a_replay_without_forced_actions_forces_none() -> None:
    assert replay_tests(engine_of("spread").execute(some_tests("spread", 3))).forced is None


def test_a_task_that_cannot_be_restored_is_searched_and_replayed_too() -> None:
    task, engine = drifting()
    search = Search(context_of(task, 3, batch=12, seeds=6, critical=500), engine)
    for _ in range(4):
        search.iterate()
    found = Episodes.concatenate(search.received)
    assert (found.operator == ACTION).sum() > 10
    again = engine.execute(replay_tests(found, restorable=False))
    again.id = found.id
    assert_identical(again, found)


def test_failures_of_the_search_are_found_around_few_roots() -> None:
    campaign, batches = run(120, batch=32, seeds=4)
    summary = campaign.tally.summary()
    assert summary["failures"] > 20
    assert len({seed for batch in batches for seed in batch.root_seed.tolist()}) == 4
    assert summary["roots"] <= 4


def test_another_seed_gives_another_search() -> None:
    """The same seed gives the same in any process: test_contracts.py asks every strategy for that."""
    one, other = (digest_of(Episodes.concatenate(run(60, batch=16, seeds=4, seed=seed)[1])) for seed in (3, 4))
    assert one != other


@pytest.mark.parametrize(
    "given", [{"batch": 0}, {"seeds": 0}, {"critical": -1}, {"overrides": 0}, {"exploration": "old"}, {"energy": 2}]
)
def test_options_are_checked(given: dict[str, Any]) -> None:
    with pytest.raises(FairTestError, match=f"options.{next(iter(given))}"):
        options_of(MASTestOptions, given, "mastest")


def test_the_defaults_are_those_of_the_released_code_but_for_the_batch_and_the_few_overrides() -> None:
    assert options_of(MASTestOptions, {}, "mastest") == MASTestOptions(10, 10, 10, "new", 64)
