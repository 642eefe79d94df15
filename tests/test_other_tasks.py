"""What is special about the tasks beside the three: goals and words, deliveries, games, and who is paid for what."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

import epymarl_fairtest  # noqa: F401  (registers the environments)
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.indices.jain import jfi
from epymarl_fairtest.tasks import task_for
from epymarl_fairtest.tasks.contract import env_reward
from epymarl_fairtest.tasks.layers import wrappers
from epymarl_fairtest.tasks.world import World

STEPS = 20


def played(key: str, judged: str, **settings: Any) -> tuple[Any, Any, Any]:
    """An environment, its task, and what each agent received in each step of a random episode."""
    env = gymnasium.make(key, disable_env_checker=True, **settings)
    task = task_for(env)
    size = max(gymnasium.spaces.flatdim(space) for space in env.observation_space)
    world, generator = World(env, task, task.allocations[judged], obs_size=size), np.random.default_rng(1)
    world.reset(3)
    counts, paid = [space.n for space in env.action_space], []
    for _ in range(STEPS):
        world.step(generator.integers(0, counts).astype(np.int16))
        paid.append(world.reward)
    return env, task, np.array(paid)


# --- particles with goals -----------------------------------------------------------------------------


def test_reference_pays_what_the_scenario_pays_before_it_mixes() -> None:
    key = "epymarl_fairtest:mpe-reference-v0"
    *_, ours = played(key, "env")
    *_, unmixed = played(key, "env", allocation="env", local_ratio=1.0)
    *_, mixed = played(key, "env", allocation="env")
    *_, allocated = played(key, "goal_distance", allocation="env")
    assert ours == pytest.approx(unmixed, abs=1e-12)
    assert allocated.tobytes() == ours.tobytes()
    assert jfi(mixed.sum(axis=0)[None])[0] > jfi(ours.sum(axis=0)[None])[0]


def test_the_adversarys_opponents_are_paid_alike_and_allocated_apart() -> None:
    key = "epymarl_fairtest:mpe-adversary-v0"
    *_, alike = played(key, "env", allocation="env", N=3)
    env, task, apart = played(key, "env", N=3)
    assert (alike[:, 1] == alike[:, 2]).all()
    assert (alike[:, 2] == alike[:, 3]).all()
    assert len(np.unique(apart[-1])) == task.n_agents == 4
    world = wrappers(env)[-1].world
    away = [np.linalg.norm(agent.state.p_pos - agent.goal_a.state.p_pos) for agent in world.agents]
    assert -apart[-1] == pytest.approx(away)


def test_another_goal_is_another_start_and_its_words_are_none() -> None:
    env = gymnasium.make("epymarl_fairtest:mpe-reference-v0")
    task = task_for(env)
    task.reset(env, 1)
    starts = np.repeat(task.read(env)[None], 3, axis=0)
    starts[1, task.placed_size] = (starts[1, task.placed_size] + 1) % 3
    starts[2, -1] = 4
    assert task.is_start(starts).tolist() == [True, True, False]
    places = task.start_places(starts)
    assert (places[0] != places[1]).any()
    assert "all have the same goal" in task.situation(starts)
    env.step([0, 5 * 6])  # the second one stays and says the seventh word
    assert task.read(env)[-2:].tolist() == [1, 7]
    assert task.action_name(5 * 6) == "stay, say G"


# --- the warehouse ------------------------------------------------------------------------------------

DOWN, FORWARD, LOAD = 1, 1, 4


def delivering(**settings: Any) -> tuple[Any, Any, Any]:
    """Robot 1 carries a requested shelf and stands before a goal; robot 2 is elsewhere, with nothing."""
    warehouse = pytest.importorskip("rware.warehouse")
    given = {name: getattr(warehouse.RewardType, value) for name, value in settings.items()}
    env = gymnasium.make("rware:rware-tiny-2ag-v2", disable_env_checker=True, **given)
    task = task_for(env)
    task.reset(env, 5)
    state, (goal_row, goal_col) = task.read(env), task._goals[0]
    shelf = int(task.wanted(state)[0])
    task.robots(state)[:] = [[goal_row - 1, goal_col, DOWN, shelf, 0, 0], [0, 0, DOWN, 0, 0, 0]]
    task._take_along(state[None])
    return env, task, state


def test_a_delivery_is_repeated_with_the_request_that_follows_it() -> None:
    env, task, state = delivering()
    went = []
    for _ in range(2):
        task.write(env, state, 7)
        assert task.read(env).tobytes() == state.tobytes()
        _, reward, *_ = env.step([FORWARD, 0])
        assert reward == [1, 0]
        went.append(task.read(env))
        env.reset(seed=99)
    assert went[0].tobytes() == went[1].tobytes()
    assert (task.wanted(went[0]) != task.wanted(state)).sum() == 1, "a new shelf is asked for"
    course = task.course(np.array([[state, went[0]]]), np.array([1], np.int32))
    assert course["the number of deliveries"].tolist() == [1]


@pytest.mark.parametrize(("paid", "reward"), [("INDIVIDUAL", [1, 0]), ("GLOBAL", [1, 1]), ("TWO_STAGE", [0.5, 0])])
def test_who_brings_a_shelf_is_known_whoever_is_paid(paid: str, reward: list[float]) -> None:
    env, task, state = delivering(reward_type=paid)
    task.write(env, state, 0)
    for actions, received in (([FORWARD, 0], [1, 0]), ([0, LOAD], [0, 0])):
        _, given, *_ = env.step(actions)
        assert (given == reward) == (received == [1, 0])
        assert task.allocations["deliveries"](task.read(env), np.array(given)).tolist() == received


def test_what_a_robot_carries_comes_along_when_it_is_moved() -> None:
    _, task, state = delivering()
    states = np.repeat(state[None], 200, axis=0)
    new, kept = task.perturb(states, np.random.default_rng(0))
    assert kept.sum() > 20
    shelf = int(task.robots(state)[0, 3])
    at = task.positions(new)[:, 0]
    assert (task.shelves(new)[:, shelf - 1] == at[:, 0] * task.cols + at[:, 1]).all()
    before_a_goal = (at[:, None] == task._goals).all(axis=-1).any(axis=1)
    assert before_a_goal.any()
    assert not kept[before_a_goal].any(), "a requested shelf is delivered as soon as it is there"


# --- games --------------------------------------------------------------------------------------------


def test_taking_turns_is_fair_and_staying_is_not() -> None:
    env = gymnasium.make("epymarl_fairtest:matrix-v0", disable_env_checker=True)
    env.reset(seed=0)
    turns = np.sum([env.step([turn % 2] * 2)[1] for turn in range(10)], axis=0)
    stays = np.sum([env.step([0, 0])[1] for _ in range(10)], axis=0)
    assert jfi(np.array([turns, stays], float)).tolist() == pytest.approx([1, 25 / 26])
    task = task_for(env)
    assert task.allocations["env"] is env_reward
    assert task.read(env).tolist() == [0, 0]


def test_payoffs_that_are_no_game_are_refused() -> None:
    with pytest.raises(FairTestError, match="one number for each agent and joint action"):
        gymnasium.make("epymarl_fairtest:matrix-v0", payoff=[[1, 2], [3, 4]])
