"""How scores are read: probabilities, f3 and its temperature against plain Python, over the actions an agent has."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from epymarl_fairtest.core.scores import (
    READINGS,
    across,
    greedy,
    probabilities,
    ranges,
    recorded,
    scaled_temperature,
    weights,
)
from epymarl_fairtest.predictor import Traces
from epymarl_fairtest.strategies.fairtest.fitness import decision_certainty

AVAILABLE = np.array([[True, True, True, True], [True, False, True, False], [False, False, False, True]])
every_temperature = pytest.mark.parametrize("temperature", [1.0, 0.05, 30.0])


def some_scores(steps: int, seed: int = 0) -> NDArray[np.float32]:
    """Scores of three agents; the actions that an agent does not have are valued most, and least."""
    q = np.random.default_rng(seed).normal(size=(steps, 3, 4)).astype(np.float32)
    q[::2, ~AVAILABLE] += 50
    q[1::2, ~AVAILABLE] -= 50
    return q


def slow_probabilities(values: Any, there: Any, temperature: float) -> list[float]:
    """The softmax of one agent's scores over the actions it has; 0 for the others."""
    own = [float(value) / temperature for value, has in zip(values, there, strict=True) if has]
    weight = [math.exp(value - max(own)) for value in own]
    shares = iter([value / sum(weight) for value in weight])
    return [next(shares) if has else 0.0 for has in there]


def slow_range(values: Any, there: Any) -> float:
    own = [float(value) for value, has in zip(values, there, strict=True) if has]
    return max(own) - min(own)


@every_temperature
def test_an_action_that_an_agent_does_not_have_has_no_probability(temperature: float) -> None:
    q = some_scores(20)
    found = probabilities(q, AVAILABLE, "q", temperature)
    for step, values in zip(found, q, strict=True):
        for agent, there in enumerate(AVAILABLE):
            assert step[agent] == pytest.approx(slow_probabilities(values[agent], there, temperature), abs=1e-12)
    assert (found[:, ~AVAILABLE] == 0).all()
    assert found.sum(axis=-1) == pytest.approx(np.ones((20, 3)))


def test_a_temperature_may_be_one_per_agent_and_step() -> None:
    q = some_scores(6)
    temperature = np.random.default_rng(1).uniform(0.1, 3, (6, 3, 1))
    found = probabilities(q, AVAILABLE, "q", temperature)
    for step in range(6):
        for agent in range(3):
            expected = slow_probabilities(q[step, agent], AVAILABLE[agent], float(temperature[step, agent, 0]))
            assert found[step, agent] == pytest.approx(expected, abs=1e-12)


@every_temperature
def test_weights_are_probabilities_before_their_sum_is_1(temperature: float) -> None:
    q = some_scores(20)
    weight = weights(q, AVAILABLE, "q", temperature)
    assert weight.max(axis=-1) == pytest.approx(np.ones((20, 3)))
    assert probabilities(q, AVAILABLE, "q", temperature).tobytes() == (weight / weight.sum(-1, keepdims=True)).tobytes()


@pytest.mark.parametrize("operation", [np.add, np.maximum])
@pytest.mark.parametrize("actions", range(1, 12))
def test_what_is_computed_across_actions_has_the_bits_of_numpy(operation: np.ufunc, actions: int) -> None:
    values = np.exp(np.random.default_rng(actions).normal(0, 10, (500, 3, actions)))
    assert across(operation, values).tobytes() == operation.reduce(values, axis=-1, keepdims=True).tobytes()


def test_a_range_is_that_of_the_actions_an_agent_has() -> None:
    q = some_scores(20)
    expected = [[slow_range(step[agent], AVAILABLE[agent]) for agent in range(3)] for step in q]
    assert ranges(q, AVAILABLE) == pytest.approx(np.array(expected), rel=1e-6)
    assert (ranges(q, AVAILABLE)[:, 2] == 0).all(), "the third agent has a single action"


def test_the_scaled_temperature_is_the_median_range_of_the_actions_there_are() -> None:
    q = some_scores(21)
    everything = sorted(slow_range(step[agent], AVAILABLE[agent]) for step in q for agent in range(3))
    assert scaled_temperature(q, AVAILABLE) == pytest.approx(everything[len(everything) // 2], rel=1e-6)
    assert scaled_temperature(q, AVAILABLE) < 10 < scaled_temperature(q, np.ones_like(AVAILABLE))


def test_a_team_that_values_everything_alike_has_temperature_1() -> None:
    assert scaled_temperature(np.zeros((5, 3, 4), np.float32), AVAILABLE) == 1
    assert scaled_temperature(np.empty((0, 3, 4), np.float32), AVAILABLE) == 1


# --- f3 -----------------------------------------------------------------------------------------------


def slow_certainty(episode: Any, temperature: float) -> float:
    """Eq. f3: the mean over steps and agents of the sum of squared probabilities."""
    squares = [
        sum(p * p for p in slow_probabilities(step[agent], AVAILABLE[agent], temperature))
        for step in episode
        for agent in range(3)
    ]
    return sum(squares) / len(squares)


def some_traces(episodes: int = 20, seed: int = 2) -> Traces:
    length = np.random.default_rng(seed).integers(1, 7, episodes)
    q = some_scores(int(length.sum()), seed)
    return Traces(q, np.repeat(np.arange(episodes), length), np.zeros((episodes, 3)))


@every_temperature
def test_f3_counts_only_the_actions_that_an_agent_has(temperature: float) -> None:
    traces = some_traces()
    found = decision_certainty(traces, AVAILABLE, "q", temperature)
    for episode in range(len(traces)):
        expected = slow_certainty(traces.q[traces.episode == episode], temperature)
        assert found[episode] == pytest.approx(expected, abs=1e-12)


def test_f3_does_not_depend_on_how_missing_actions_are_valued() -> None:
    traces = some_traces()
    other = Traces(np.where(AVAILABLE, traces.q, np.float32(-7)), traces.episode, traces.received)
    one, two = (decision_certainty(t, AVAILABLE, "q", 0.5) for t in (traces, other))
    assert one.tobytes() == two.tobytes()
    everything = np.ones_like(AVAILABLE)
    one, two = (decision_certainty(t, everything, "q", 0.5) for t in (traces, other))
    assert (one != two).any()


def test_f3_of_a_team_that_has_every_action_keeps_its_bits() -> None:
    """As it was computed before it knew which actions there are."""
    traces, everything = some_traces(), np.ones_like(AVAILABLE)
    q = traces.q.astype(np.float64) / 0.7
    weight = np.exp(q - q.max(axis=-1, keepdims=True))
    p = weight / weight.sum(axis=-1, keepdims=True)
    per_step = (p * p).sum(axis=-1).mean(axis=-1)
    steps = np.bincount(traces.episode, minlength=len(traces))
    expected = np.bincount(traces.episode, per_step, minlength=len(traces)) / np.maximum(steps, 1)
    assert decision_certainty(traces, everything, "q", 0.7).tobytes() == expected.tobytes()
    assert scaled_temperature(traces.q, everything) == float(np.median(np.ptp(traces.q, axis=-1)))


@pytest.mark.parametrize(("agents", "actions"), [(1, 1), (3, 5), (9, 5), (3, 7), (3, 8), (12, 11)])
def test_f3_has_the_bits_of_numpy_however_many_act(agents: int, actions: int) -> None:
    """It adds up eight and more in another order, which depends on how they lie in memory."""
    generator = np.random.default_rng(agents)
    q = generator.normal(0, 5, (5000, agents, actions)).astype(np.float32)
    there = np.ones((agents, actions), bool)
    scaled = q.astype(np.float64) / 0.7
    weight = np.exp(scaled - scaled.max(axis=-1, keepdims=True))
    p = weight / weight.sum(axis=-1, keepdims=True)
    traces = Traces(q, np.arange(len(q)), np.zeros((len(q), agents)))
    expected = (p * p).sum(axis=-1).mean(axis=-1)
    assert decision_certainty(traces, there, "q", 0.7).tobytes() == expected.tobytes()
    shares = p.astype(np.float32).astype(np.float64)
    again = Traces(p.astype(np.float32), traces.episode, traces.received)
    normed = shares / shares.sum(axis=-1, keepdims=True)
    expected = (normed * normed).sum(axis=-1).mean(axis=-1)
    assert decision_certainty(again, there, "logits", 1.0).tobytes() == expected.tobytes()


# --- logits -------------------------------------------------------------------------------------------


def test_episodes_keep_q_values_as_they_are_and_the_probabilities_of_logits() -> None:
    scores = some_scores(12)
    assert READINGS == ("q", "logits")
    assert recorded(scores, AVAILABLE, "q") is scores
    kept = recorded(scores, AVAILABLE, "logits")
    assert kept.dtype == np.float32
    for step, values in zip(kept, scores, strict=True):
        for agent, there in enumerate(AVAILABLE):
            assert step[agent] == pytest.approx(slow_probabilities(values[agent], there, 1.0), abs=1e-6)
    assert (kept[:, ~AVAILABLE] == 0).all()


@every_temperature
def test_recorded_probabilities_are_read_as_they_are_whatever_the_temperature(temperature: float) -> None:
    kept = recorded(some_scores(12), AVAILABLE, "logits")
    assert probabilities(kept, AVAILABLE, "logits", temperature) == pytest.approx(kept.astype(np.float64), abs=1e-6)
    traces = Traces(kept, np.zeros(12, np.int64), np.zeros((1, 3)))
    expected = np.mean([sum(float(p) ** 2 for p in values) for step in kept for values in step])
    assert decision_certainty(traces, AVAILABLE, "logits", temperature) == pytest.approx([expected], abs=1e-6)


@pytest.mark.parametrize("reading", READINGS)
def test_the_best_action_is_one_that_the_agent_has_and_the_first_of_equal_ones(reading: str) -> None:
    scores = some_scores(12)
    scores[0] = 1.0
    best = greedy(recorded(scores, AVAILABLE, reading), AVAILABLE)
    for step, values in zip(best, scores, strict=True):
        for agent, there in enumerate(AVAILABLE):
            own = [action for action in range(4) if there[action]]
            assert step[agent] == max(own, key=lambda action, row=values[agent]: (row[action], -action))  # type: ignore[misc]
    assert best[0].tolist() == [0, 0, 3]
