"""What a start means for each agent, and where everything is in it: for any number of agents and things."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support import environment

from epymarl_fairtest.tasks import task_for
from epymarl_fairtest.tasks.foraging.features import features as foraging_features
from epymarl_fairtest.tasks.spread.features import features as spread_features
from epymarl_fairtest.tasks.tag.features import features as tag_features


def crowd(agents: int, things: int, seed: int = 0) -> Any:
    """Positions of agents and of things in 5 starts."""
    generator = np.random.default_rng(seed)
    return generator.uniform(-1, 1, (5, agents, 2)), generator.uniform(-1, 1, (5, things, 2))


def levelled(at: Any, seed: int = 0) -> Any:
    return np.concatenate([np.rint(4 + 4 * at), np.random.default_rng(seed).integers(1, 3, (*at.shape[:2], 1))], axis=2)


def features_of(name: str, agents: int, things: int) -> Any:
    at, others = crowd(agents, things)
    if name == "spread":
        return spread_features(at, others)
    if name == "tag":
        return tag_features(at, np.zeros((5, 2)), others)
    return foraging_features(levelled(at), levelled(others))


@pytest.mark.parametrize("name", ["spread", "tag", "foraging"])
@pytest.mark.parametrize(("agents", "things"), [(1, 1), (1, 3), (2, 1), (3, 3), (3, 10), (20, 20)])
def test_features_of_any_number_of_agents_and_things_are_finite_numbers_per_agent(
    name: str, agents: int, things: int
) -> None:
    found = features_of(name, agents, things)
    assert found.shape[:2] == (5, agents)
    assert np.isfinite(found).all()
    assert found.shape == features_of(name, agents, things + 5).shape or things < 5
    assert found.shape[2] == features_of(name, 40, 40).shape[2] or agents < 4 or things < 4, "the width is bounded"


@pytest.mark.parametrize("name", ["spread", "tag"])
def test_features_do_without_landmarks_and_obstacles(name: str) -> None:
    found = features_of(name, 3, 0)
    assert found.shape[:2] == (5, 3)
    assert np.isfinite(found).all()


def test_food_that_is_not_there_is_far_away() -> None:
    at, others = crowd(2, 3)
    players, food = levelled(at), levelled(others)
    food[:, 1:] = [-1, -1, 0]
    found = foraging_features(players, food)
    assert np.isfinite(found).all()
    one = foraging_features(players, food[:, :1])
    assert np.isfinite(one).all()
    assert found.shape[2] > one.shape[2]


def test_features_do_not_depend_on_the_order_of_others_and_things() -> None:
    """What matters to an agent stands in the same column, whoever it is: only its number tells agents apart."""
    at, others = crowd(4, 5)
    swapped = [1, 0, 3, 2]
    for make in (lambda a, o: spread_features(a, o), lambda a, o: tag_features(a, np.zeros((5, 2)), o)):
        found, other = make(at, others), make(at[:, swapped], others[:, ::-1])
        assert found[..., :-1] == pytest.approx(other[:, swapped, :-1], abs=1e-12)
        assert found[0, :, -1].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("name", ["spread", "tag", "foraging"])
def test_places_of_starts_hold_everything_that_a_reset_places(name: str) -> None:
    known = task_for(environment(name))
    starts = np.stack([first_state(name, seed) for seed in range(4)])
    at, vectors = known.start_places(starts), known.start_vectors(starts)
    bodies = known.bodies_of_starts(vectors.shape[1])
    assert at.shape == (4, bodies.max() + 1, 2)
    assert np.array_equal(np.unique(bodies), np.arange(at.shape[1]))
    assert np.array_equal(at[:, : known.n_agents], known.positions(starts))
    assert (at != at[:1]).any(axis=2)[1:].any(axis=0).all(), "a body that is never anywhere else"


def first_state(name: str, seed: int) -> Any:
    env = environment(name)
    task_for(env).reset(env, seed)
    return task_for(env).read(env)
