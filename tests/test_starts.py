"""Initial states as vectors: real resets come back bit for bit, and only what a reset could draw is accepted."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import permutations
from typing import Any

import gymnasium
import numpy as np
import pytest
from support import KEYS, assert_identical, engine_of, environment, random_policy, record_of

from epymarl_fairtest.core.episodes import replay_tests
from epymarl_fairtest.engine.contract import ActionRule
from epymarl_fairtest.engine.twin import Twin
from epymarl_fairtest.strategies.starts import starting_from
from epymarl_fairtest.tasks import TASKS, task_for
from epymarl_fairtest.tasks.contract import Task
from epymarl_fairtest.tasks.foraging.environment import make_foraging_env
from epymarl_fairtest.tasks.spread.environment import SpreadEnv
from epymarl_fairtest.tasks.tag.environment import TagEnv


def stock(name: str) -> Any:
    return gymnasium.make(f"lbforaging:Foraging-{name}-v3", disable_env_checker=True)


PARTICLES: dict[str, Callable[[], Any]] = {"spread": SpreadEnv, "spread of five": lambda: SpreadEnv(N=5), "tag": TagEnv}
FIELDS: dict[str, Callable[[], Any]] = {
    "foraging": make_foraging_env,
    "any levels": lambda: stock("8x8-3p-3f"),
    "forced cooperation": lambda: stock("8x8-3p-2f-coop"),
    "levels of their own": lambda: make_foraging_env(
        min_player_level=[1, 2, 2], max_player_level=[3, 2, 4], min_food_level=[1, 2, 3], max_food_level=[2, 2, 5]
    ),
    "too small for its food": lambda: stock("5x5-2p-4f"),
    "no square": lambda: make_foraging_env(field_size=(5, 9), max_num_food=2, sight=9),
}
every_field = pytest.mark.parametrize("name", FIELDS)


@cache
def resets(name: str) -> tuple[Any, Task, np.ndarray]:
    """The environment, its task and the initial states of many seeds."""
    count = 60 if name == "too small for its food" else 400  # upstream tries a thousand times before it gives up
    env = {**PARTICLES, **FIELDS}[name]()
    task = task_for(env)
    states = []
    for seed in range(count):
        task.reset(env, seed)
        states.append(task.read(env))
    return env, task, np.array(states)


# --- what comes back ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*PARTICLES, *FIELDS])
def test_real_resets_are_valid_starts_and_come_back_bit_for_bit(name: str) -> None:
    _, task, states = resets(name)
    assert task.proposable
    vectors = task.start_vectors(states)
    assert np.abs(vectors).max() <= 1
    assert np.abs(vectors).max() > 0.85
    again, valid = task.starts_from(vectors)
    assert valid.all()
    assert again.dtype == states.dtype
    assert again.tobytes() == states.tobytes()


def test_some_resets_leave_food_slots_empty() -> None:
    """Otherwise the test above would not show that they come back."""
    _, task, states = resets("too small for its food")
    assert (task.food(states)[..., 2] == 0).any()


def test_a_single_state_has_the_vector_that_it_has_in_a_batch() -> None:
    for name in ("tag", "too small for its food"):
        _, task, states = resets(name)
        assert task.start_vectors(states[3]).tobytes() == task.start_vectors(states)[3].tobytes()


def test_a_task_without_states_proposes_nothing() -> None:
    assert [name for name, task in TASKS.items() if not task.proposable] == ["matrix", "vmas", "generic"]


# --- particles ----------------------------------------------------------------------------------------


def test_a_vector_of_particles_is_their_positions_and_everybody_is_at_rest() -> None:
    _, task, _ = resets("tag")
    states, valid = task.starts_from(np.arange(12)[None] / 20)
    assert valid.tolist() == [True]
    bodies = [[8 * i / 80, (8 * i + 4) / 80, 0, 0] for i in range(4)]
    assert states[0].tolist() == pytest.approx([*np.ravel(bodies), 0.4, 0.45, 0.5, 0.55])


@pytest.mark.parametrize(("name", "at", "limit"), [("spread", 5, 1), ("spread", 11, 1), ("tag", 7, 1), ("tag", 8, 0.9)])
def test_places_beyond_the_range_of_a_reset_are_refused(name: str, at: int, limit: float) -> None:
    _, task, states = resets(name)
    vectors = np.repeat(task.start_vectors(states[:1]), 5, axis=0)
    vectors[:, at] = [limit, -limit, np.nextafter(limit, 2), -np.nextafter(limit, 2), np.nan]
    assert task.starts_from(vectors)[1].tolist() == [True, True, False, False, False]


def test_bodies_on_one_spot_are_refused() -> None:
    _, task, states = resets("spread")
    vectors = np.repeat(task.start_vectors(states[:1]), 3, axis=0)
    vectors[1, 2:4] = vectors[1, 0:2]  # an agent on an agent
    vectors[2, 6:8] = vectors[2, 0:2]  # on a landmark, with which agents of spread do not collide
    assert task.starts_from(vectors)[1].tolist() == [True, False, True]
    _, task, states = resets("tag")
    vectors = np.repeat(task.start_vectors(states[:1]), 2, axis=0)
    vectors[:, 0:2] = vectors[:, 8:10]  # a predator on an obstacle
    vectors[1, 0] += 1e-3
    assert task.starts_from(vectors)[1].tolist() == [False, True]


# --- foraging: the environment's own rules as the reference -------------------------------------------


def could_be_reset(env: Any, state: np.ndarray) -> bool:
    """Set the scene as lbforaging does, one thing after the other, asking its own functions."""
    inner = env.unwrapped
    count = len(inner.players)
    things = state[:-1].reshape(-1, 3).astype(int).tolist()
    players, food = things[:count], [one for one in things[count:] if one[2] != 0]
    inner.field = np.zeros(inner.field_size, np.int32)
    for player in inner.players:
        player.position = None

    def inside(row: int, col: int, margin: int) -> bool:
        return margin <= row < inner.rows - margin and margin <= col < inner.cols - margin

    def fits(row: int, col: int) -> bool:
        near = inner.neighborhood(row, col).sum() + inner.neighborhood(row, col, distance=2, ignore_diag=True)
        return near == 0 and inner._is_empty_location(row, col)

    for player, (row, col, _) in zip(inner.players, players, strict=True):
        if not inside(row, col, 0) or not inner._is_empty_location(row, col):
            return False
        player.position = (row, col)
    for row, col, level in food:
        if not inside(row, col, 1) or not fits(row, col):
            return False
        inner.field[row, col] = level
    cells = [(row, col) for row in range(1, inner.rows - 1) for col in range(1, inner.cols - 1)]
    if len(food) < inner.max_num_food and any(fits(*cell) for cell in cells):
        return False
    levels = [level for _, _, level in players]
    strongest = inner.max_food_level
    if strongest is None:
        strongest = [sum(sorted(levels)[:3])] * inner.max_num_food
    weakest = strongest if inner.force_coop else inner.min_food_level
    player_ranges = list(zip(inner.min_player_level, inner.max_player_level, strict=True))
    food_ranges = list(zip(weakest, strongest, strict=True))
    return dealt(levels, player_ranges) and dealt([level for _, _, level in food], food_ranges)


def dealt(levels: list[int], ranges: list[tuple[int, int]]) -> bool:
    """In any of the orders in which a reset may use the ranges?"""
    return any(
        all(low <= level <= high for level, (low, high) in zip(levels, order, strict=False))
        for order in permutations(ranges)
    )


@every_field
def test_foraging_accepts_exactly_what_the_environment_could_have_spawned(name: str) -> None:
    env, task, states = resets(name)
    vectors = task.start_vectors(states)
    generator = np.random.default_rng(1)
    changed = generator.random(vectors.shape) < 0.08  # a little: most of what is all new breaks some rule
    vectors[changed] = generator.uniform(-1.2, 1.2, changed.sum())
    proposed, valid = task.starts_from(vectors)
    assert valid.tolist() == [could_be_reset(env, state) for state in proposed]
    assert 0.05 < valid.mean() < 0.95


@every_field
def test_a_valid_foraging_start_is_read_back_as_it_was_written(name: str) -> None:
    """Food in the order of the field, its sum, and no negative zero."""
    env, task, states = resets(name)
    vectors = task.start_vectors(states)
    things = vectors.reshape(len(vectors), -1, 3)
    things[:, task.n_agents :] = np.random.default_rng(2).permuted(things[:, task.n_agents :], axis=1)
    things[:, : task.n_agents] -= 1e-3
    proposed, valid = task.starts_from(vectors)
    assert valid.mean() > 0.1
    for state in proposed[valid]:
        task.write(env, state, 0)
        assert task.read(env).tobytes() == state.tobytes()


def test_nonsense_is_refused_in_foraging() -> None:
    _, task, states = resets("foraging")
    vectors = np.repeat(task.start_vectors(states[:1]), 18, axis=0)
    vectors[np.arange(18), np.arange(18)] = np.nan
    assert not task.starts_from(vectors)[1].any()


# --- proposed starts are executed ---------------------------------------------------------------------


def proposed(name: str, count: int) -> np.ndarray:
    """Valid starts that no seed gave."""
    task = task_for(environment(name))
    env, generator, found = environment(name), np.random.default_rng(7), 0
    vectors, states = [], []
    for seed in range(40):
        task.reset(env, seed)
        vectors.append(task.start_vectors(task.read(env)))
    while found < count:
        near = np.array(vectors)[generator.integers(0, 40, 200)] + generator.normal(0, 0.2, (200, len(vectors[0])))
        drawn, valid = task.starts_from(near)
        states.append(drawn[valid])
        found += int(valid.sum())
    return np.concatenate(states)[:count]


@pytest.mark.parametrize("name", KEYS)
def test_both_engines_execute_a_proposed_start_alike_and_it_replays_bit_for_bit(name: str) -> None:
    tests = starting_from(proposed(name, 60), np.random.default_rng(3))
    assert not tests.from_seed.any()
    real = engine_of(name, "gru")
    executed = real.execute(tests)
    assert executed.states[:, 0].tobytes() == tests.start_state.tobytes()
    assert (executed.start_step == 0).all()
    assert executed.executed_steps() == executed.length.sum()
    record, task = record_of(name, "gru"), task_for(environment(name))
    kernel = task.twin(environment(name), "env")
    assert kernel is not None
    how = ActionRule("epsilon_greedy", 0.3, 1.0, np.ones((record.n_agents, record.n_actions), bool))
    twin = Twin(kernel, random_policy(record), how, limit=record.time_limit, state_size=task.state_size)
    assert_identical(twin.execute(tests), executed)
    some = executed.take(np.arange(3, 60, 7))
    assert_identical(real.execute(replay_tests(some)), some)
