"""The fairness predictor: abstraction and Algorithm 2 against plain Python, and a forest that judges itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse

from epymarl_fairtest.core.episodes import empty_episodes, random_tests
from epymarl_fairtest.core.indices import INDICES
from epymarl_fairtest.core.judged import Judge
from epymarl_fairtest.predictor.abstraction import FEWEST, MOST, abstraction, candidate_levels, joint_states
from epymarl_fairtest.predictor.features import features, scaling
from epymarl_fairtest.predictor.forest import Predictor, cross_validated_auc, fit_predictor
from epymarl_fairtest.predictor.traces import Traces, traces_of, traces_of_sample
from epymarl_fairtest.team.sample import joined

Floats = NDArray[np.float64]


def traces(
    episodes: int, seed: int = 0, *, agents: int = 3, actions: int = 4, steps: int = 8, sign: str = "mixed"
) -> Traces:
    """Random episodes of 1 to `steps` steps whose joint states repeat."""
    generator = np.random.default_rng(seed)
    length = generator.integers(1, steps + 1, episodes)
    q = generator.integers(-3, 4, (int(length.sum()), agents, actions)).astype(np.float32) * 0.5
    q[generator.random(len(q)) < 0.7] *= 0.2
    received = generator.choice([0.0, 0.0, 0.5, 1.0, 2.75, 7.3], (episodes, agents))
    if sign == "negative":
        received = -received
    if sign == "mixed":
        received *= generator.choice([-1.0, 1.0], received.shape)
    return Traces(q, np.repeat(np.arange(episodes), length), received)


# --- the definitions, slowly --------------------------------------------------------------------------


def slow_state(q: Any, d: float) -> tuple[tuple[int, ...], ...]:
    """Eq. abs: per agent, the Q-values rounded up to multiples of d."""
    return tuple(tuple(math.ceil(float(value) / d) for value in agent) for agent in q)


def slow_bucket(value: float, number: int) -> list[int]:
    vector = [0] * number
    vector[min(int(value * number), number - 1)] = 1
    return vector


def clip(value: float) -> float:
    return min(max(value, 0.0), 1.0)


def slow_cv(x: Sequence[float]) -> float:
    mean = sum(x) / len(x)
    spread = math.sqrt(sum((v - mean) ** 2 for v in x) / len(x))
    if spread == 0:
        return 0.0
    return 1.0 if mean == 0 else clip(spread / abs(mean) / math.sqrt(len(x) - 1))


def slow_gini(x: Sequence[float]) -> float:
    size = sum(abs(v) for v in x)
    return 0.0 if size == 0 else clip(sum(abs(a - b) for a in x for b in x) / (2 * (len(x) - 1) * size))


class SlowFeatures:
    """Algorithm 2 with dictionaries and loops; everything it knows it learned from the training data."""

    def __init__(self, training: Traces, d: float, number: int) -> None:
        self.d, self.number = d, number
        self.known = {slow_state(q, d) for q in training.q}
        rows = training.received.tolist()
        self.low = [min(column) for column in zip(*rows, strict=True)]
        self.high = [max(column) for column in zip(*rows, strict=True)]
        self.gap = max(abs(a - b) for row in rows for a, b in combinations(row, 2))

    def states(self, steps: Any) -> set[tuple[tuple[int, ...], ...]]:
        return {state for state in (slow_state(q, self.d) for q in steps) if state in self.known}

    def buckets(self, x: Sequence[float]) -> list[int]:
        size = sum(abs(v) for v in x)
        values = [
            clip((v - low) / (high - low)) if high > low else clip(v - low)
            for v, low, high in zip(x, self.low, self.high, strict=True)
        ]
        values += [abs(v) / size if size else 1 / len(x) for v in x]
        values += [slow_cv(x), slow_gini(x)]
        values += [clip(abs(a - b) / (self.gap or 1.0)) for a, b in combinations(x, 2)]
        return [bit for value in values for bit in slow_bucket(value, self.number)]


# --- abstraction --------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [0.07, 0.5, 1.0, 3.0, 1e-3])
def test_two_steps_have_the_same_name_if_and_only_if_their_rounded_q_values_are_equal(d: float) -> None:
    q = traces(600, seed=1, agents=2, actions=3).q
    q[::7] = q[0]  # some certainly repeat
    names, states = joint_states(q, d), [slow_state(step, d) for step in q]
    pairs = set(zip(names.tolist(), states, strict=True))
    assert len(pairs) == len(set(names.tolist())) == len(set(states))
    assert 1 < len(pairs) < len(q)


def test_a_joint_state_is_ordered_by_agent_and_action() -> None:
    q = np.zeros((4, 2, 2), np.float32)
    q[0, 0, 0], q[1, 0, 1], q[2, 1, 0], q[3, 1, 1] = 5, 5, 5, 5
    assert len(set(joint_states(q, 1.0).tolist())) == 4


def test_q_values_are_rounded_up() -> None:
    def alike(a: float, b: float) -> bool:
        first, second = joint_states(np.array([[[a]], [[b]]], np.float32), 1.0)
        return bool(first == second)

    assert alike(0.25, 1.0)
    assert not alike(1.0, 1.25)
    assert alike(-0.75, 0.0)
    assert not alike(-0.75, 0.25)


def test_names_do_not_depend_on_the_other_steps() -> None:
    q = traces(50, seed=2).q
    assert joint_states(q[10:20], 0.3).tolist() == joint_states(q, 0.3)[10:20].tolist()
    assert joint_states(q[:0], 0.3).shape == (0,)


def test_states_that_were_never_observed_have_no_column() -> None:
    q = traces(50, seed=3).q
    known = abstraction(q[:100], 0.5)
    columns, seen = known.columns(q), {slow_state(step, 0.5) for step in q[:100]}
    assert [column >= 0 for column in columns.tolist()] == [slow_state(step, 0.5) in seen for step in q]
    assert len(known) == len(seen)
    assert (columns < 0).any()
    assert columns.max() == len(seen) - 1


@pytest.mark.parametrize("scale", [1e-4, 1.0, 5e3])
@pytest.mark.parametrize("offset", [0.0, -40.0])
@pytest.mark.parametrize("steps", [25_000, 60_000])
def test_the_levels_give_1500_to_10000_joint_states_on_data_that_allows_it(
    scale: float, offset: float, steps: int
) -> None:
    generator = np.random.default_rng(4)
    hidden = generator.normal(size=(steps, 2))  # few dimensions: Q-values of a team hang together
    q = np.tanh(hidden @ generator.normal(size=(2, 15))).reshape(steps, 3, 5)
    q = ((q + 0.05 * generator.normal(size=q.shape) + offset) * scale).astype(np.float32)
    levels = candidate_levels(q)
    assert levels == sorted(levels, reverse=True)
    assert levels[1] == math.sqrt(levels[0] * levels[2])  # the same on every processor, unlike numpy's powers
    for d in levels:
        assert FEWEST <= len(abstraction(q, d)) <= MOST, d


def test_little_data_gets_fewer_states_than_steps() -> None:
    generator = np.random.default_rng(5)
    q = (generator.normal(size=(400, 1)) @ generator.normal(size=(1, 15))).reshape(400, 3, 5).astype(np.float32)
    sizes = [len(abstraction(q, d)) for d in candidate_levels(q)]
    assert sizes == sorted(sizes)
    assert 50 <= sizes[0] < sizes[-1] <= 200


@pytest.mark.parametrize("value", [0.0, 3.7, -2.2])
def test_constant_q_values_give_one_joint_state(value: float) -> None:
    q = np.full((200, 3, 5), value, np.float32)
    (level,) = candidate_levels(q)
    assert len(abstraction(q, level)) == 1


# --- Algorithm 2 --------------------------------------------------------------------------------------


@pytest.mark.parametrize("sign", ["positive", "negative", "mixed"])
@pytest.mark.parametrize("agents", [2, 3, 4])
@pytest.mark.parametrize("number", [2, 10])
def test_features_are_those_of_algorithm_2(sign: str, agents: int, number: int) -> None:
    training = traces(150, seed=agents, agents=agents, sign=sign)
    new = traces(120, seed=agents + 50, agents=agents, sign=sign)
    d = 0.35
    slow, known = SlowFeatures(training, d, number), abstraction(training.q, d)
    column_of = {slow_state(q, d): int(known.columns(q[None])[0]) for q in training.q}
    for data in (training, new):
        matrix = features(data, known, scaling(training.received), number)
        assert sparse.issparse(matrix)
        dense = matrix.toarray()
        assert dense.shape == (len(data), len(slow.known) + number * (2 * agents + 2 + agents * (agents - 1) // 2))
        for row in range(len(data)):
            present = np.zeros(len(known))
            present[[column_of[state] for state in slow.states(data.q[data.episode == row])]] = 1
            assert dense[row, : len(known)].tolist() == present.tolist()
            assert dense[row, len(known) :].tolist() == slow.buckets(data.received[row].tolist())
    assert any(slow_state(q, d) not in slow.known for q in new.q), "no unseen state was tried"


def test_every_feature_sets_one_bucket_whatever_the_rewards() -> None:
    training = traces(40, seed=7)
    extreme = np.array([[0, 0, 0], [1e9, 0, 0], [-1e9, 1e9, 0], [1, -1, 0], [-5, -5, -5], [1e-300, 0, 0]], np.float64)
    data = Traces(training.q[:6], np.arange(6), extreme)
    known = abstraction(training.q, 0.5)
    fairness = features(data, known, scaling(training.received), 10)[:, len(known) :].toarray()
    assert (fairness.reshape(6, -1, 10).sum(axis=2) == 1).all()


def test_without_scaling_the_features_are_the_abstract_states_alone() -> None:
    data = traces(40, seed=8)
    known = abstraction(data.q, 0.5)
    assert features(data, known, None, 10).shape == (40, len(known))


def test_equal_rewards_in_all_training_data_are_no_division_by_zero() -> None:
    data = traces(30, seed=9)
    alike = Traces(data.q, data.episode, np.full((30, 3), 2.0))
    known = abstraction(data.q, 0.5)
    slow = SlowFeatures(alike, 0.5, 4)
    dense = features(alike, known, scaling(alike.received), 4).toarray()
    assert dense[0, len(known) :].tolist() == slow.buckets([2.0, 2.0, 2.0])


def test_features_stay_sparse() -> None:
    data = traces(500, seed=10, agents=3)
    known = abstraction(data.q, 0.1)
    matrix = features(data, known, scaling(data.received), 10)
    assert matrix.nnz <= len(data.q) + 500 * 11
    assert matrix.nnz < 0.2 * np.prod(matrix.shape)


def test_a_training_sample_and_taken_traces_keep_their_episodes() -> None:
    data = traces(20, seed=11)
    own = [data.q[data.episode == i] for i in range(20)]
    found = traces_of_sample(joined({i + 1: (q, np.full((len(q), 3), float(i))) for i, q in enumerate(own)}))
    assert found.q.tobytes() == data.q.tobytes()
    assert found.episode.tolist() == data.episode.tolist()
    assert found.received[:, 0].tolist() == [float(i * (data.episode == i).sum()) for i in range(20)]
    rows = np.array([2, 5, 11])
    taken = data.take(rows)
    for place, row in enumerate(rows):
        assert taken.q[taken.episode == place].tobytes() == data.q[data.episode == row].tobytes()
    both = Traces.concatenate([taken, data])
    assert both.q[both.episode == 3].tobytes() == data.q[data.episode == 0].tobytes()


@pytest.mark.parametrize("shortest", [0, 4])
def test_traces_hold_the_steps_that_were_played(shortest: int) -> None:
    generator = np.random.default_rng(3)
    tests = random_tests(30, 2, generator)
    episodes = empty_episodes(tests, limit=4, agents=3, actions=5, state_size=2, obs_size=0)
    episodes.q[:] = generator.normal(size=episodes.q.shape)
    episodes.length[:] = generator.integers(shortest, 5, 30)
    found = traces_of(Judge(INDICES["jfi"], 0.8)(episodes))
    assert found.episode.tolist() == np.nonzero(episodes.running)[0].tolist()
    assert found.q.tobytes() == episodes.q[episodes.running].tobytes()
    assert len(found) == 30


# --- the forest ---------------------------------------------------------------------------------------


def learnable(episodes: int, unfair: float, seed: int = 0) -> tuple[Traces, NDArray[np.bool_]]:
    """Episodes whose rewards say, with noise, whether they are unfair; so do their Q-values."""
    generator = np.random.default_rng(seed)
    fair = generator.random(episodes) >= unfair
    length = 6
    hidden = generator.normal(size=(episodes, length, 2)) + np.where(fair, 0.0, 0.7)[:, None, None]
    q = np.tanh(hidden @ generator.normal(size=(2, 15))).reshape(-1, 3, 5).astype(np.float32)
    received = generator.uniform(2, 4, (episodes, 3))
    received[:, 0] -= np.where(fair, 0, 1.2) * generator.random(episodes)
    return Traces(q, np.repeat(np.arange(episodes), length), received), fair


def fitted(data: Traces, fair: NDArray[np.bool_], **changes: Any) -> Predictor:
    return fit_predictor(data, fair, **{"buckets": 10, "seed": 0, **changes})


@pytest.mark.slow
@pytest.mark.usefixtures("as_shipped")
def test_out_of_bag_agrees_with_cross_validation_where_unfair_episodes_are_rare() -> None:
    """scikit-learn draws the bootstrap by class weight: a full bag would hold every rare episode."""
    data, fair = learnable(2500, 0.05)
    predictor = fitted(data, fair)
    for full, out_of_bag in ((True, predictor.auc_full), (False, predictor.auc_abstract)):
        folds = cross_validated_auc(data, fair, predictor, full=full, seed=0)
        assert len(folds) == 5
        assert out_of_bag == pytest.approx(float(np.mean(folds)), abs=0.05)
    assert predictor.auc_full is not None
    assert 0.6 < predictor.auc_full < 0.97, "too easy or too hard to tell anything"


@pytest.mark.parametrize("unfair", [0.05, 0.5])
def test_random_labels_cannot_be_predicted(unfair: float) -> None:
    data, _ = learnable(2000, 0.3, seed=1)
    fair = np.random.default_rng(2).random(2000) >= unfair
    predictor = fitted(data, fair)
    assert predictor.auc_full == pytest.approx(0.5, abs=0.1)
    assert predictor.auc_abstract == pytest.approx(0.5, abs=0.1)


def test_the_fair_class_is_the_one_whose_probability_is_given() -> None:
    data, fair = learnable(800, 0.3)
    probability = fitted(data, fair).fair_probability(data)
    assert ((probability >= 0) & (probability <= 1)).all()
    assert probability[fair].mean() > 0.5 > probability[~fair].mean()


def test_the_votes_are_those_of_the_forest_to_the_last_bit() -> None:
    data, fair = learnable(400, 0.2)
    predictor = fitted(data, fair)
    assert predictor.forest is not None
    matrix = features(data, predictor.abstraction, predictor.scale, predictor.buckets)[:, predictor.columns]
    assert (predictor.fair_probability(data) == predictor.forest.predict_proba(matrix)[:, 1]).all()


def test_the_forest_is_that_of_scikit_learn_to_the_last_bit() -> None:
    """Its trees remember what they are asked for; nothing else is theirs."""
    from sklearn.tree import DecisionTreeClassifier

    from epymarl_fairtest.predictor.forest import _forest

    rng = np.random.default_rng(3)
    matrix = sparse.csc_matrix(rng.random((300, 12)) < 0.3, dtype=np.float64)
    fair = np.asarray(matrix[:, 0].todense()).ravel() + rng.random(300) < 0.8
    ours, theirs = (_forest(fair, 5, 1).set_params(oob_score=True) for _ in range(2))
    theirs.estimator = DecisionTreeClassifier()
    ours.fit(matrix, fair), theirs.fit(matrix, fair)
    assert [tree.get_params() for tree in ours.estimators_] == [tree.get_params() for tree in theirs.estimators_]
    assert ours.oob_decision_function_.tobytes() == theirs.oob_decision_function_.tobytes()
    assert ours.predict_proba(matrix).tobytes() == theirs.predict_proba(matrix).tobytes()


def test_the_predictor_reports_what_it_is() -> None:
    data, fair = learnable(500, 0.3)
    summary = fitted(data, fair, d=0.4).summary()
    assert summary["d"] == 0.4
    assert summary["joint_states"] == len(abstraction(data.q, 0.4))
    assert set(summary) == {"auc_abstract", "auc_full", "d", "joint_states"}


@pytest.mark.parametrize("fair", [True, False])
def test_labels_of_a_single_class_give_a_constant_prediction(fair: bool) -> None:
    data, _ = learnable(200, 0.3)
    predictor = fitted(data, np.full(200, fair))
    assert predictor.forest is None
    assert predictor.auc_full is None
    assert predictor.auc_abstract is None
    assert set(predictor.fair_probability(data).tolist()) == {float(fair)}


def test_constant_q_values_leave_the_fairness_features_to_predict() -> None:
    data, fair = learnable(400, 0.3)
    blind = Traces(np.zeros_like(data.q), data.episode, data.received)
    predictor = fitted(blind, fair)
    assert len(predictor.abstraction) == 1
    assert predictor.auc_abstract == 0.5
    assert predictor.auc_full is not None
    assert predictor.auc_full > 0.6


@pytest.mark.parametrize("episodes", [2, 3, 5, 16])
def test_a_handful_of_episodes_is_enough_to_fit(episodes: int) -> None:
    data, _ = learnable(episodes, 0.3)
    for seed in range(2):
        fair = np.random.default_rng(seed).permutation(np.arange(episodes)) > 0
        predictor = fitted(data, fair, seed=seed, d=0.4)
        probability = predictor.fair_probability(data)
        assert ((probability >= 0) & (probability <= 1)).all()
        for auc in (predictor.auc_full, predictor.auc_abstract):
            assert auc is not None
            assert 0 <= auc <= 1


def test_no_episodes_have_no_probabilities() -> None:
    data, fair = learnable(100, 0.3)
    assert fitted(data, fair).fair_probability(data.take(np.empty(0, np.int64))).shape == (0,)


def test_nothing_depends_on_the_number_of_workers() -> None:
    data, fair = learnable(1500, 0.2)
    new, _ = learnable(3000, 0.2, seed=5)
    one, two = fitted(data, fair, workers=1), fitted(data, fair, workers=2)
    assert one.summary() == two.summary()
    expected = one.fair_probability(new).tobytes()
    for _ in range(10):  # threads that finish in another order would show
        assert two.fair_probability(new).tobytes() == expected


def test_a_prediction_does_not_depend_on_the_other_episodes() -> None:
    data, fair = learnable(600, 0.3)
    predictor = fitted(data, fair)
    together = predictor.fair_probability(data)
    rows = np.array([3, 77, 401])
    assert predictor.fair_probability(data.take(rows)).tobytes() == together[rows].tobytes()


def test_labels_are_those_of_the_oracle() -> None:
    """What the search labels unfair is what the campaign would call a failure; undefined is not unfair."""
    received = np.array([[1.0, 1.0], [1.0, 0.0], [0.0, 0.0]])
    fair = ~Judge(INDICES["jfi"], 0.5).unfair(received)
    assert fair.tolist() == [True, False, True]
