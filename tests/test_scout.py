"""Scout: its parts against slow plain ones, what it asks for, what it finds, and bad input."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support import TESTS
from test_search import walkers

from epymarl_fairtest.core.episodes import OPERATORS, Episodes, random_tests
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.indices.jain import jfi
from epymarl_fairtest.core.judged import Judge, Judged
from epymarl_fairtest.core.shipped import shipped
from epymarl_fairtest.strategies import configure, strategy_of
from epymarl_fairtest.strategies.scout import proposals
from epymarl_fairtest.strategies.scout.lookout import most_promising, new_cells, widened
from epymarl_fairtest.strategies.scout.options import ScoutOptions
from epymarl_fairtest.strategies.scout.proposals import Parents, breed
from epymarl_fairtest.strategies.scout.spacing import Starts, classes, compared_with_none, on_a_line, take_apart
from epymarl_fairtest.strategies.scout.surrogate import Surrogate
from epymarl_fairtest.tasks.generic.rules import Unplaced
from epymarl_fairtest.team.contract import Team
from epymarl_fairtest.team.saved import saved_team
from epymarl_fairtest.testing import engine_of, random_team
from epymarl_fairtest.testing.running import Searched, searched

KEYS = {"spread": "epymarl_fairtest:mpe-spread-v0", "foraging": "epymarl_fairtest:lbforaging-v0"}
FEW_LOOKS = {"initial": 40, "batch": 20, "least_looks": 300}


@cache
def team(task: str = "spread") -> Team:
    """Nobody trained it."""
    return random_team(KEYS[task])


@cache
def trained(name: str) -> Team:
    return saved_team(shipped("policies") / name, "env")


def scouted(subject: Team, warn: Callable[[str], None] = lambda message: None, seed: int = 3, **given: Any) -> Searched:
    engine = "auto" if subject.environment is None else "twin"
    options = {**FEW_LOOKS, **given.pop("options", {})}
    chosen = configure({"method": "scout", "budget": 120, "engine": engine, "workers": 1, "options": options, **given})
    strategy_of(chosen).check_settings(chosen, subject.task)
    return searched(subject, chosen, seed, warn)


def executed(run: Searched, purpose: str | None = None) -> Judged:
    return Judged.concatenate([batch.judged for batch in run.batches if purpose in (None, batch.purpose)])


# --- spacing ------------------------------------------------------------------------------------------

SEEDS = pytest.mark.parametrize("seed", range(4))


def slow_distance(a: NDArray[Any], b: NDArray[Any]) -> float:
    """The mean distance of the bodies."""
    return sum(((p[0] - q[0]) ** 2 + (p[1] - q[1]) ** 2) ** 0.5 for p, q in zip(a, b, strict=True)) / len(a)


def some_places(count: int, generator: np.random.Generator) -> NDArray[Any]:
    """Starts in a few bundles, some of them twice."""
    bundles = generator.normal(size=(6, 3, 2))
    places = bundles[generator.integers(6, size=count)] + 0.3 * generator.normal(size=(count, 3, 2))
    places[1::9] = places[::9][: len(places[1::9])]
    return places


def slowly_taken(
    places: Any, known: Any, kind: Any, quota: dict[int, int], distance: float, taken: list[int], wanted: int
) -> list[int]:
    """From the first to the last, those that are far enough from everything known and taken."""
    taken = list(taken)
    for row in range(len(places)):
        if len(taken) >= wanted:
            break
        if row in taken or quota[int(kind[row])] <= 0:
            continue
        others = [*known, *(places[other] for other in taken)]
        if all(slow_distance(places[row], other) >= distance for other in others):
            taken.append(row)
            quota[int(kind[row])] -= 1
    return taken


def to_compare(places: NDArray[Any], known: NDArray[Any]) -> tuple[Starts, NDArray[Any], NDArray[Any]]:
    """Starts, and the known ones on a line with their centres."""
    known, line = on_a_line(known)
    return compared_with_none(places, line), known, line


@SEEDS
@pytest.mark.parametrize("others", [0, 1, 10, 40])
def test_starts_are_taken_apart_as_slowly_counted_also_when_the_distance_shrinks(seed: int, others: int) -> None:
    generator = np.random.default_rng(seed)
    places, known, wanted = some_places(120, generator), some_places(40, generator)[:others], 40
    kind = generator.integers(3, size=len(places))
    compared = to_compare(places, known)
    taken, expected = np.arange(wanted), [0, 1, 2]  # three are given
    count, found = 3, []
    for distance in (1.2, 0.8, 0.5, 0.3, 0.05):
        quota = np.array([9, 5, 2])
        expected = slowly_taken(places, known, kind, dict(enumerate(quota.tolist())), distance, expected, wanted)
        count = take_apart(*compared, kind, quota, distance, taken, count, wanted)
        assert taken[:count].tolist() == expected
        assert (quota >= 0).all()
        found.append(count)
    assert 3 <= found[0] < found[2] <= wanted
    assert len(set(taken[:count].tolist())) == count


@SEEDS
def test_no_two_starts_are_taken_closer_than_the_distance_asked_for(seed: int) -> None:
    generator = np.random.default_rng(seed)
    places, known = some_places(200, generator), some_places(20, generator)
    compared, taken = to_compare(places, known), np.arange(200)
    count = take_apart(*compared, np.zeros(200, np.int64), np.array([200]), 0.6, taken, 0, 200)
    chosen = places[taken[:count]]
    apart = [slow_distance(a, b) for n, a in enumerate(chosen) for b in [*known, *chosen[:n]]]
    assert 5 < count < 200
    assert min(apart) >= 0.6 - 1e-12


@SEEDS
@pytest.mark.parametrize("radius", [0.0, 0.3, 1.0, 100.0])
def test_a_class_is_that_of_the_first_middle_within_the_radius(seed: int, radius: float) -> None:
    places = some_places(80, np.random.default_rng(seed))
    middles: list[Any] = []
    expected = []
    for place in places:
        near = [n for n, middle in enumerate(middles) if slow_distance(place, middle) < radius]
        expected.append(near[0] if near else len(middles))
        middles += [] if near else [place]
    assert classes(places, radius).tolist() == expected


# --- what is chosen -----------------------------------------------------------------------------------


@SEEDS
def test_the_most_promising_starts_are_the_least_fair_ones_of_each_agent_that_may_come_off_worst(seed: int) -> None:
    generator = np.random.default_rng(seed)
    index, worst = np.round(generator.random(300), 2), (generator.random(300) < 0.1).astype(np.int64)
    found = most_promising(index, worst, 0.34, 10)
    assert (np.diff(index[found]) >= 0).all()
    for agent in (0, 1):
        rows = np.flatnonzero(worst == agent)
        kept = found[worst[found] == agent]
        assert len(kept) == pytest.approx(0.34 * len(rows), abs=2)
        assert set(kept) == set(rows[np.argsort(index[rows], kind="stable")][: len(kept)])


@pytest.mark.parametrize(("rate", "expected"), [(0.0, 0.2), (0.25, 0.4), (1.0, 1.0), (1.6, 1.0)])
def test_the_more_starts_are_unfair_the_less_picky_scout_is(rate: float, expected: float) -> None:
    assert widened(0.2, rate) == pytest.approx(expected)


def test_where_too_few_starts_are_promising_all_of_them_are() -> None:
    index = np.array([0.5, 0.1, 0.9, 0.3])
    assert most_promising(index, np.zeros(4, np.int64), 0.25, 1).tolist() == [1]
    assert most_promising(index, np.zeros(4, np.int64), 0.25, 2).tolist() == [1, 3, 0, 2]


@SEEDS
def test_of_every_cell_that_is_not_covered_the_least_fair_start_comes_first(seed: int) -> None:
    generator = np.random.default_rng(seed)
    cells, index, covered = generator.integers(12, size=100), generator.random(100), np.array([2, 3, 7])
    best = {cell: min(np.flatnonzero(cells == cell), key=lambda row: index[row]) for cell in set(cells.tolist())}
    expected = sorted((best[cell] for cell in best if cell not in covered), key=lambda row: index[row])
    assert new_cells(cells, covered, index).tolist() == expected
    assert new_cells(cells, np.arange(12), index).tolist() == []


# --- proposals ----------------------------------------------------------------------------------------


class Anything:
    """A task whose starts are vectors, and that accepts those that `holds`."""

    def __init__(self, size: int = 6, holds: Callable[[Any], Any] = lambda vectors: np.ones(len(vectors), bool)):
        self.state_size, self.holds = size, holds

    def start_vectors(self, states: Any) -> Any:
        return states

    def starts_from(self, vectors: Any) -> Any:
        return vectors, self.holds(vectors)

    def bodies_of_starts(self, size: int) -> Any:
        return np.arange(size) // 2


def some_parents(states: Any, worst: Any = None, radius: float = 0.5) -> Parents:
    places = np.concatenate([states, np.zeros((len(states), states.shape[1] % 2))], axis=1)
    worst = np.zeros(len(states), np.int64) if worst is None else worst
    return Parents(states, np.ascontiguousarray(places.reshape(len(states), -1, 2)), worst, radius)


@SEEDS
@pytest.mark.parametrize("size", [1, 2, 6])
def test_bred_starts_stay_where_starts_can_be_drawn(seed: int, size: int) -> None:
    generator = np.random.default_rng(seed)
    states, fresh = generator.uniform(-1, 1, (30, size)), generator.uniform(-1, 1, (10, size))
    task: Any = Anything(size)
    bred, parent, tried = breed(some_parents(states), fresh, 500, task, generator)
    assert (bred.shape, parent.shape, tried) == ((500, size), (500,), 500)
    assert (np.abs(bred) <= 1).all()
    assert len(np.unique(bred[:, 0])) > 250, "they are piled up"


def test_a_cross_and_a_resampled_body_are_taken_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proposals, "NOISE", 0.0)
    generator, body = np.random.default_rng(0), np.array([0, 0, 1, 1, 1, 2])
    one, two, fresh = (generator.normal(size=(200, 6)) for _ in range(3))
    crossed = proposals.cross(one, two, fresh, body, generator)
    resampled = proposals.resample(one, two, fresh, body, generator)
    moved = proposals.move(one, two, fresh, body, generator)
    for number in range(3):
        columns = body == number
        mine, theirs = ((crossed == source)[:, columns].all(axis=1) for source in (one, two))
        assert (mine ^ theirs).all()
        assert 50 < mine.sum() < 150
    from_fresh = np.stack([(resampled == fresh)[:, body == number].all(axis=1) for number in range(3)], axis=1)
    kept = np.stack([(resampled == one)[:, body == number].all(axis=1) for number in range(3)], axis=1)
    assert (from_fresh.sum(axis=1) == 1).all()
    assert (kept == ~from_fresh).all()
    assert (moved != one).all()


def test_every_agent_and_every_class_of_its_starts_is_bred_from_equally_often() -> None:
    """Agent 0 came off worst in one start; agent 1 in nine that are nearly the same, and in one that is far away."""
    states = np.concatenate([np.zeros((1, 2)), np.full((9, 2), 0.9), np.full((1, 2), -0.9)])
    parents = some_parents(states, np.array([0, *[1] * 10]), 0.1)
    one, two = parents.draw(4000, np.random.default_rng(0))
    assert (one == 0).mean() == pytest.approx(0.5, abs=0.04)
    assert (one == 10).mean() == pytest.approx(0.25, abs=0.04)
    assert ((one == 0) == (two == 0)).all(), "a partner is one that the same agent came off worst in"


def test_refused_starts_are_drawn_again_and_given_up_in_the_end() -> None:
    generator = np.random.default_rng(0)
    states = generator.uniform(-1, 1, (30, 4))
    half: Any = Anything(4, lambda vectors: vectors[:, 0] > 0)
    bred, parent, tried = breed(some_parents(states), states, 200, half, generator)
    assert len(bred) == len(parent) == 200 < tried
    assert (bred[:, 0] > 0).all()
    nothing: Any = Anything(4, lambda vectors: np.zeros(len(vectors), bool))
    bred, parent, tried = breed(some_parents(states), states, 20, nothing, generator)
    assert (len(bred), len(parent), tried) == (0, 0, 20 * proposals.TRIES)


@pytest.mark.parametrize("task", KEYS)
def test_what_is_executed_keeps_the_rules_of_the_task(task: str) -> None:
    run = scouted(team(task), theta=0.9)
    known, episodes = team(task).task, executed(run, "execution").episodes
    bred = episodes.take(episodes.operator == OPERATORS.index("state"))
    assert len(bred) > 5
    vectors = known.start_vectors(bred.states[:, 0])
    again, kept = known.starts_from(vectors)
    assert kept.all()
    assert np.array_equal(again, bred.states[:, 0])
    assert (np.abs(vectors) <= 1).all()
    earlier = [number for number, parent in zip(bred.id, bred.parent, strict=True) if 0 <= parent < number]
    assert len(earlier) == len(bred), "each descends from an executed start"
    drawn = episodes.take(episodes.operator == OPERATORS.index("seed"))
    assert (drawn.parent == -1).all()


# --- the surrogate ------------------------------------------------------------------------------------


def all_kinds_of_features(rows: int, seed: int) -> NDArray[np.float64]:
    rng = np.random.default_rng(seed)
    plain = rng.normal(size=rows)
    features = {
        "plain": plain,
        "few values": rng.integers(0, 5, rows).astype(float),
        "one value": np.ones(rows),
        "as many as bins": np.arange(rows) % 64.0,
        "one more than bins": np.arange(rows) % 65.0,
        "many equal ones": np.where(rng.random(rows) < 0.6, 0.5, plain),
        "zeros of both signs": np.where(rng.random(rows) < 0.5, rng.choice([-0.0, 0.0], rows), plain),
        "missing ones": np.where(rng.random(rows) < 0.1, np.nan, plain),
        "huge": plain * 1e307,
        "next to each other": 1 + np.arange(rows) * 2.0**-52,
        "another": rng.exponential(size=rows),
    }
    return np.stack(list(features.values()), axis=1)


def scikit_learns(rows: NDArray[np.float64], target: NDArray[np.float64], options: ScoutOptions, least: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingRegressor

    model = HistGradientBoostingRegressor(
        max_iter=options.rounds, learning_rate=options.rate, max_leaf_nodes=options.leaves, min_samples_leaf=least,
        max_bins=64, early_stopping=False, random_state=0,
    )  # fmt: skip
    return model.fit(rows, target)


@pytest.fixture(scope="module")
def same_edges() -> None:
    """Other versions of scikit-learn put the edges of bins elsewhere; ours stay where they are."""
    from epymarl_fairtest.strategies.scout.boosting import edges_of

    rows = np.random.default_rng(0).exponential(size=(1001, 1))
    model = scikit_learns(rows, rows[:, 0], ScoutOptions(rounds=1), 5)
    if not np.array_equal(model._bin_mapper.bin_thresholds_[0], edges_of(rows)[0]):
        pytest.skip("this version of scikit-learn has other bins")


PLAIN = [0, 1, 2, 3, 4, 5, 6, 9, 10]  # of all kinds of features


@pytest.mark.usefixtures("same_edges")
@pytest.mark.parametrize("target", ["sum", "few values", "one value"])
@pytest.mark.parametrize(("leaves", "least"), [(2, 5), (7, 1), (15, 5), (31, 10)])
@pytest.mark.parametrize("rows", [1, 2, 40, 65, 128, 271, 2000])
def test_boosting_is_that_of_scikit_learn_to_the_last_bit(rows: int, leaves: int, least: int, target: str) -> None:
    """A target of few values gives leaves that gain alike: the heap decides."""
    from epymarl_fairtest.strategies.scout.boosting import Boosting, edges_of

    features = all_kinds_of_features(rows, seed=rows)[:, PLAIN]
    received = features[:, [0, 1, 5, 8]].sum(axis=1) + np.random.default_rng(1).normal(size=rows)
    received = {"sum": received, "few values": np.round(received / 3), "one value": np.full(rows, 0.3)}[target]
    options = ScoutOptions(rounds=9, leaves=leaves)
    ours = Boosting(features, received, rounds=9, rate=options.rate, leaves=leaves, least=least)
    theirs = scikit_learns(features, received, options, least)
    for one, two in zip(edges_of(features), theirs._bin_mapper.bin_thresholds_, strict=True):
        np.testing.assert_array_equal(one, two)
    asked = np.concatenate([all_kinds_of_features(500, seed=7)[:, PLAIN], features])
    assert ours.predict(asked).tobytes() == theirs.predict(asked).tobytes()


@pytest.mark.usefixtures("same_edges")
def test_leaves_that_gain_alike_are_parted_in_the_order_of_scikit_learn() -> None:
    """Copies of a feature and of rows: nearly every gain has its equal."""
    from epymarl_fairtest.strategies.scout.boosting import Boosting

    rng = np.random.default_rng(5)
    for _ in range(20):
        rows = np.tile(rng.integers(0, 4, (30, 3)).astype(float), (4, 2))
        target = np.tile(rng.integers(0, 2, 60).astype(float), 2)
        options = ScoutOptions(rounds=6, leaves=int(rng.integers(3, 14)))
        ours = Boosting(rows, target, rounds=6, rate=options.rate, leaves=options.leaves, least=2)
        assert ours.predict(rows).tobytes() == scikit_learns(rows, target, options, 2).predict(rows).tobytes()


@pytest.mark.usefixtures("same_edges")
@pytest.mark.parametrize("name", ["mpe-qmix", "pp-iql", "lbf-qmix"])
def test_the_surrogate_of_every_task_has_the_bits_of_scikit_learn(name: str) -> None:
    subject, judged = sample(name)
    features = subject.task.features(judged.episodes.states[:, 0])
    for count, least in ((100, 5), (400, 10)):
        ours = Surrogate(features[:count], judged.received[:count], ScoutOptions())
        rows = features.reshape(-1, features.shape[-1])
        agents = features.shape[1]
        theirs = scikit_learns(rows[: count * agents], judged.received[:count].ravel(), ScoutOptions(), least)
        assert ours.received(features).tobytes() == theirs.predict(rows).tobytes()
        assert "_theirs" not in vars(ours)


@pytest.mark.usefixtures("same_edges")
@pytest.mark.parametrize("missing", ["learned", "asked", "none"])
def test_what_ours_cannot_do_is_left_to_scikit_learn(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    """Missing and infinite numbers, huge ones, and more rows than it looks at for its bins."""
    from epymarl_fairtest.strategies.scout import surrogate

    monkeypatch.setattr(surrogate, "SAMPLED", 200 if missing == "none" else 10_000)
    features = all_kinds_of_features(900, seed=3).reshape(300, 3, -1)
    plain = features[..., PLAIN]
    learned, asked = (features if missing == kind else plain for kind in ("learned", "asked"))
    learned, asked = (given[..., : min(learned.shape[-1], asked.shape[-1])] for given in (learned, asked))
    asked = np.where(asked > 2, np.inf, asked) if missing == "asked" else asked
    ours = Surrogate(learned, plain.sum(axis=-1), ScoutOptions(rounds=5))
    rows = [np.where(np.isinf(given), np.nan, given).reshape(900, -1) for given in (learned, asked)]
    theirs = scikit_learns(rows[0], plain.sum(axis=-1).ravel(), ScoutOptions(rounds=5), 5)
    assert ours.received(asked).tobytes() == theirs.predict(rows[1]).tobytes()
    assert "_ours" not in vars(ours)


@cache
def sample(name: str, count: int = 400) -> tuple[Team, Judged]:
    subject = trained(name)
    tests = random_tests(count, subject.task.state_size, np.random.default_rng(8))
    return subject, Judge(jfi, 0.8)(engine_of(subject, "twin", epsilon=0.05).execute(tests))


@pytest.mark.parametrize("name", ["mpe-qmix", "pp-iql"])
def test_the_surrogate_predicts_what_agents_receive_better_than_the_mean_does(name: str) -> None:
    subject, judged = sample(name)
    features, received = subject.task.features(judged.episodes.states[:, 0]), judged.received
    known, unknown = slice(300), slice(300, None)
    expected = Surrogate(features[known], received[known], ScoutOptions()).received(features[unknown])
    error = ((expected - received[unknown]) ** 2).mean()
    assert error < 0.7 * ((received[known].mean(axis=0) - received[unknown]) ** 2).mean()


def digests() -> Iterator[str]:
    """Of a surrogate's predictions, and of everything that a scout executed."""
    subject, judged = sample("pp-iql")
    features = subject.task.features(judged.episodes.states[:, 0])
    expected = Surrogate(features[:300], judged.received[:300], ScoutOptions()).received(features)
    yield hashlib.sha256(expected.tobytes()).hexdigest()
    found = executed(scouted(team(), theta=0.9)).episodes
    yield hashlib.sha256(found.states.tobytes() + found.root_seed.tobytes() + found.rewards.tobytes()).hexdigest()


@pytest.mark.fresh
def test_the_same_bits_come_out_of_a_fresh_process_with_any_number_of_threads() -> None:
    program = "import test_scout; print(*test_scout.digests())"
    path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    other = {"PYTHONHASHSEED": "random", "PYTHONPATH": path, "OMP_NUM_THREADS": "3"}  # here as many as cores
    command = [sys.executable, "-W", "ignore", "-c", program]
    done = subprocess.run(command, env={**os.environ, **other}, check=True, capture_output=True, text=True)
    assert done.stdout.split() == list(digests())


# --- whole searches -----------------------------------------------------------------------------------


def test_scout_finds_at_least_twice_the_different_failures_of_random() -> None:
    found = {}
    for method in ("random", "scout"):
        given = configure({"method": method, "budget": 400, "engine": "twin", "workers": 1})
        found[method] = searched(trained("mpe-qmix"), given, 1).run.tally.summary()["distinct_failures"]
    assert found["scout"] >= 2 * found["random"] > 0


def test_the_unguided_executions_give_the_natural_rate() -> None:
    run = scouted(team(), budget=300, theta=0.9, options={"unguided": 0.2})
    unguided = executed(run, "unguided")
    assert run.run.tally.random() == (int(unguided.unfair.sum()), len(unguided))
    assert len(unguided) == pytest.approx(40 + 0.2 * 260, abs=5)
    assert (unguided.episodes.operator == OPERATORS.index("seed")).all()
    assert len(executed(run)) == 300
    assert executed(run, "execution").unfair.mean() > unguided.unfair.mean()


def test_batches_grow_with_what_is_known() -> None:
    run = scouted(team(), budget=300, options={"growth": 0.5, "unguided": 0.0})
    assert [len(batch.judged) for batch in run.batches] == [40, 20, 30, 45, 67, 98]


def test_only_the_judged_agents_count() -> None:
    """Two of three: what the third one receives is neither learned nor judged."""
    run = scouted(team(), agents=[1, 3], theta=0.9)
    assert executed(run).received.shape == (120, 2)


def test_distances_are_kept_from_failures_and_among_those_that_are_executed() -> None:
    """Where nothing has failed yet, and a start may be anywhere: all of a batch lie apart."""
    given = {"growth": 0.0, "unguided": 0.0, "frontier": 0.0, "near": 4.0, "far": 4.0, "batch": 10}
    run = scouted(team(), budget=60, theta=0.05, options=given)
    known = team().task
    for batch in run.executed("execution"):
        places = known.start_places(batch.judged.episodes.states[:, 0])
        apart = [slow_distance(a, b) for n, a in enumerate(places) for b in places[:n]]
        assert min(apart) >= 4 * known.distinct_distance - 1e-9


# --- bad input ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [1, 2, 10, 41, 42, 60])
def test_any_budget_is_spent_to_the_last_episode(budget: int) -> None:
    run = scouted(team(), budget=budget)
    assert len(executed(run)) == budget == run.ledger.charged("strict") == run.ledger.charged("paper")


@pytest.mark.parametrize(("theta", "failing"), [(1e-9, 0.0), (1.0, 1.0)])
@pytest.mark.parametrize("task", KEYS)
def test_a_team_without_a_failure_and_one_that_always_fails_are_searched_to_the_end(
    task: str, theta: float, failing: float
) -> None:
    run = scouted(team(task), theta=theta)
    judged = executed(run)
    assert len(judged) == 120
    assert judged.unfair.mean() == failing or judged.undefined.any()
    assert run.run.tally.random()[1] >= 40, "the natural rate has its bound"


def changed(monkeypatch: pytest.MonkeyPatch, **methods: Any) -> Team:
    """A team in a task with other methods."""
    subject = random_team(KEYS["spread"])
    for name, method in methods.items():
        monkeypatch.setattr(subject.task, name, method)
    return subject


@pytest.mark.parametrize("refused", [0.95, 1.0])
def test_rules_that_refuse_most_bred_starts_are_told_once_with_numbers(
    refused: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, generator = team().task.starts_from, np.random.default_rng(0)

    def starts_from(vectors: Any) -> Any:
        states, kept = real(vectors)
        return states, kept & (generator.random(len(kept)) >= refused)

    said: list[str] = []
    run = scouted(changed(monkeypatch, starts_from=starts_from), said.append)
    assert len(executed(run)) == 120
    (told,) = [message for message in said if "bred starts" in message]
    notes = run.run.context.notes
    assert notes["bred_refused"] > 0.9 * notes["bred"] > 0
    assert all(word.isdigit() for word in told.split(" refused ")[1].split(" bred starts")[0].split(" of "))
    assert "fresh seeds" in told


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_features_and_places_that_are_no_numbers_do_not_stop_a_search(
    value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = team().task
    features, places = task.features, task.start_places

    def some_lost(values: Any) -> Any:
        return np.where(np.arange(values.size).reshape(values.shape) % 7 == 0, value, values)

    subject = changed(
        monkeypatch,
        features=lambda starts: some_lost(features(starts)),
        start_places=lambda starts: some_lost(places(starts)),
    )
    assert len(executed(scouted(subject, theta=0.9))) == 120


def test_starts_that_are_all_the_same_end_in_a_summary(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every start is a failing one again, and none is far from any: a distance would leave nothing to execute."""
    subject = changed(monkeypatch, start_places=lambda starts: np.zeros((len(starts), 1, 2)))
    given = {"frontier": 0.0, "unguided": 0.0}
    assert len(executed(scouted(subject, theta=1.0, options=given))) == 120


def test_a_distance_of_0_takes_the_most_promising_starts() -> None:
    assert len(executed(scouted(team(), theta=0.9, distinct_distance=0.0))) == 120


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"initial": 1},
        {"batch": 1, "growth": 0.0, "initial": 110},
        {"looks": 1, "least_looks": 1},
        {"fresh": 1.0},
        {"best": 0.001},
        {"frontier": 1.0},
        {"unguided": 1.0},
        {"near": 1000.0, "far": 1000.0},
        {"near": 0.0, "far": 0.0, "radius": 0.0},
        {"rows": 10},
        {"least_share": 0.5, "least_quota": 1.0},
    ],
    ids=str,
)
def test_any_options_end_with_the_whole_budget_spent(options: dict[str, Any]) -> None:
    assert len(executed(scouted(team(), theta=0.9, options=options))) == 120


def test_a_task_that_only_resets_is_scouted_by_fresh_seeds() -> None:
    run = scouted(walkers(), theta=0.9)
    episodes = executed(run).episodes
    assert len(episodes) == 120
    assert (episodes.operator == OPERATORS.index("seed")).all()
    assert "bred" not in run.run.context.notes


def test_a_task_without_a_state_is_refused_with_the_name_of_another_method() -> None:
    subject = walkers()
    subject.task.state_size = 0
    with pytest.raises(FairTestError, match=r"does not show its states here\. Choose method=random"):
        scouted(subject)


def test_starts_of_one_number_are_scouted() -> None:
    """One agent on a line, as a generic environment shows it."""
    lone: Any = Unplaced(1, 1)
    starts = np.linspace(-1, 1, 50)[:, None]
    assert lone.features(starts).shape == (50, 1, 4)
    assert lone.start_places(starts).shape == (50, 1, 2)
    assert lone.bodies_of_starts(1).tolist() == [0]
    model = Surrogate(lone.features(starts), starts**2, ScoutOptions())
    assert np.abs(model.received(lone.features(starts)) - starts**2).max() < 0.2
    places = lone.start_places(starts)
    apart = np.array([slow_distance(place, places[0]) for place in places])
    assert apart == pytest.approx((starts + 1)[:, 0], abs=1e-12)


def test_no_start_is_taken_for_another_by_its_number() -> None:
    """Ids, parents and reasons stay in step although fresh and bred starts are chosen from one list."""
    run = scouted(team(), theta=0.9)
    for batch in run.executed("execution"):
        bred = batch.tests.operator == OPERATORS.index("state")
        assert (np.diff(bred.astype(int)) >= 0).all(), "fresh seeds before bred starts"
        found: Episodes = batch.judged.episodes
        assert np.array_equal(found.states[bred, 0], batch.tests.start_state[bred])
