"""Crossover and mutation on recorded episodes of real environments, and what their tests execute."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, Tuple
from numpy.typing import NDArray
from support import KEYS, engine_of, environment, some_tests
from test_predictor import slow_state

from epymarl_fairtest.core import rng as streams
from epymarl_fairtest.core.episodes import OPERATORS, Episodes, operator_code, random_tests
from epymarl_fairtest.core.indices import INDICES
from epymarl_fairtest.core.judged import Judge
from epymarl_fairtest.engine.action_rules import choose
from epymarl_fairtest.engine.contract import ActionRule
from epymarl_fairtest.engine.lockstep import Lockstep
from epymarl_fairtest.predictor import traces_of
from epymarl_fairtest.predictor.abstraction import candidate_levels
from epymarl_fairtest.strategies.genetic.operators import RESTARTS, Splices, crossover, mutate, random_step
from epymarl_fairtest.tasks import task_for
from epymarl_fairtest.tasks.contract import env_reward
from epymarl_fairtest.tasks.generic.rules import GenericTask
from epymarl_fairtest.tasks.world import World

every_task = pytest.mark.parametrize("task", KEYS)
RECORDED = ("states", "obs", "actions", "rewards", "q")
EPSILON = 0.3  # of engine_of
JUDGE = Judge(INDICES["jfi"], 0.8)


@cache
def population(task: str) -> Episodes:
    """Episodes of a team with memory; their numbers are not their rows."""
    episodes = engine_of(task, "gru").execute(some_tests(task, 30))
    episodes.id = 1000 + 7 * np.arange(len(episodes))
    return episodes


@cache
def engine(task: str) -> Lockstep:
    return engine_of(task, "gru")


def anyone(episodes: Episodes, generator: np.random.Generator) -> Callable[[int], NDArray[np.int64]]:
    return lambda count: generator.integers(0, len(episodes), count)


def row_of(episodes: Episodes, number: int) -> int:
    (row,) = np.flatnonzero(episodes.id == number)
    return int(row)


# --- mutation -----------------------------------------------------------------------------------------


@cache
def mutants(task: str) -> tuple[Any, Episodes]:
    generator = np.random.default_rng(1)
    parents = population(task)
    tests, refused = mutate(parents, anyone(parents, generator), 60, task_for(environment(task)), generator)
    assert refused == 0
    assert len(tests) == 60
    return tests, engine(task).execute(tests)


@every_task
def test_a_mutant_keeps_the_prefix_of_its_parent_bit_for_bit(task: str) -> None:
    parents, (_, children) = population(task), mutants(task)
    for child in range(len(children)):
        parent, step = row_of(parents, children.parent[child]), children.start_step[child]
        assert 0 <= step < parents.length[parent]
        for name in RECORDED:
            assert getattr(children, name)[child, :step].tobytes() == getattr(parents, name)[parent, :step].tobytes()
    assert len(set(children.start_step.tolist())) > 10


@every_task
def test_a_mutant_starts_at_the_perturbed_state_and_only_agents_under_test_differ_in_it(task: str) -> None:
    parents, (tests, children) = population(task), mutants(task)
    known: Any = task_for(environment(task))
    for child in range(len(children)):
        parent, step = row_of(parents, children.parent[child]), children.start_step[child]
        before, after = parents.states[parent, step], children.states[child, step]
        assert after.tobytes() == tests.start_state[child].tobytes()
        assert (after != before).any()
        if task == "foraging":
            assert known.players(after)[:, 2].tolist() == known.players(before)[:, 2].tolist()
            assert known.food(after).tolist() == known.food(before).tolist()
            assert after[-1] == before[-1]
        else:
            assert after[4 * known.n_agents :].tobytes() == before[4 * known.n_agents :].tobytes()
            assert (after[: 4 * known.n_agents] != before[: 4 * known.n_agents]).any()


@every_task
def test_the_executed_part_of_a_mutant_is_new_and_no_longer_than_the_limit(task: str) -> None:
    parents, (_, children) = population(task), mutants(task)
    different = 0
    for child in range(len(children)):
        parent, step = row_of(parents, children.parent[child]), children.start_step[child]
        assert step < children.length[child] <= children.limit
        assert children.states[child, step:].tobytes() != parents.states[parent, step:].tobytes()
        different += children.actions[child, step:].tobytes() != parents.actions[parent, step:].tobytes()
    assert different > 45
    assert children.executed_steps() == int((children.length - children.start_step).sum())


@every_task
def test_a_mutants_lineage_names_parent_root_operator_and_step(task: str) -> None:
    parents, (tests, children) = population(task), mutants(task)
    for child in range(len(children)):
        assert children.root_seed[child] == parents.root_seed[row_of(parents, children.parent[child])]
    assert {OPERATORS[code] for code in children.operator} == {"mutation"}
    assert children.start_step.tolist() == tests.start_step.tolist()
    assert not children.shift.any()
    assert len(set(children.stream.tolist()) | set(parents.stream.tolist())) == len(children) + len(parents)


def test_a_mutation_point_is_every_step_with_equal_probability() -> None:
    steps = random_step(np.full(30_000, 5, np.int32), np.random.default_rng(0), first=0)
    assert np.bincount(steps) / 30_000 == pytest.approx(np.full(5, 0.2), abs=0.01)
    later = random_step(np.full(30_000, 5, np.int32), np.random.default_rng(0), first=1)
    assert np.bincount(later, minlength=5) / 30_000 == pytest.approx(np.array([0, 0.25, 0.25, 0.25, 0.25]), abs=0.01)


class Refusing:
    """A task whose environment accepts every `often`-th perturbation, or none."""

    restorable = True

    def __init__(self, task: Any, often: int | None) -> None:
        self._task, self._often, self.asked = task, often, 0

    def perturb(self, states: Any, generator: np.random.Generator) -> Any:
        new, fine = self._task.perturb(states, generator)
        number = self.asked + np.arange(len(states))
        self.asked += len(states)
        return new, fine & (number % self._often == 0 if self._often else np.zeros(len(states), bool))


def test_perturbations_that_are_always_refused_are_given_up_and_counted() -> None:
    parents, generator = population("spread"), np.random.default_rng(2)
    task = Refusing(task_for(environment("spread")), None)
    tests, refused = mutate(parents, anyone(parents, generator), 12, task, generator)  # type: ignore[arg-type]
    assert (len(tests), refused) == (0, 12)
    assert task.asked == 12 * RESTARTS
    assert len(engine("spread").execute(tests)) == 0


def test_a_refused_perturbation_is_drawn_again() -> None:
    parents, generator = population("spread"), np.random.default_rng(3)
    task = Refusing(task_for(environment("spread")), 4)
    tests, refused = mutate(parents, anyone(parents, generator), 12, task, generator)  # type: ignore[arg-type]
    assert (len(tests), refused) == (12, 0)
    assert task.asked > 12


def test_a_foraging_team_in_the_corner_cannot_be_perturbed() -> None:
    parents, generator = population("foraging").take([0, 1]), np.random.default_rng(4)
    task: Any = task_for(environment("foraging"))
    task.players(parents.states)[..., :2] = [[0, 0], [0, 1], [1, 0]]
    tests, refused = mutate(parents, anyone(parents, generator), 5, task, generator)
    assert (len(tests), refused) == (0, 5)


# --- crossover ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Crossed:
    splices: Splices
    d: float
    pairs: int

    def joint(self, parents: Episodes, child: int) -> tuple[int, int, int, int]:
        """Rows of both parents of a child, and their steps at the joint."""
        tests = self.splices.tests
        one, at_one = row_of(parents, tests.parent[child]), int(tests.start_step[child])
        (two,) = np.flatnonzero(parents.stream == tests.stream[child])
        return one, at_one, int(two), int(tests.shift[child] + at_one - parents.shift[two])


@cache
def crossed(task: str) -> Crossed:
    parents, generator = population(task), np.random.default_rng(5)
    d = candidate_levels(traces_of(JUDGE(parents)).q)[0]
    splices, alone = crossover(parents, anyone(parents, generator), 40, d, task_for(environment(task)), generator)
    assert alone < 20
    return Crossed(splices, d, 40 - alone)


@every_task
def test_children_are_joined_where_both_parents_are_in_the_same_joint_abstract_state(task: str) -> None:
    parents, made = population(task), crossed(task)
    for child in range(len(made.splices.tests)):
        one, at_one, two, at_two = made.joint(parents, child)
        assert one != two
        assert 0 <= at_two < parents.length[two]
        assert 0 <= at_one < parents.length[one]
        assert slow_state(parents.q[one, at_one], made.d) == slow_state(parents.q[two, at_two], made.d)
    assert any(made.joint(parents, c)[1] != made.joint(parents, c)[3] for c in range(made.pairs))


@every_task
def test_both_children_of_a_pair_are_made(task: str) -> None:
    parents, made = population(task), crossed(task)
    assert len(made.splices.tests) == len(made.splices.episodes) == 2 * made.pairs
    for child in range(made.pairs):
        one, at_one, two, at_two = made.joint(parents, child)
        assert made.joint(parents, child + made.pairs) == (two, at_two, one, at_one)
        assert at_one >= 1


@every_task
def test_a_child_is_the_recorded_prefix_of_one_parent_and_the_recorded_suffix_of_the_other(task: str) -> None:
    parents, made = population(task), crossed(task)
    children, cut = made.splices.episodes, 0
    for child in range(len(children)):
        one, at_one, two, at_two = made.joint(parents, child)
        transitions = [(one, t) for t in range(at_one)] + [(two, t) for t in range(at_two, parents.length[two])]
        cut += len(transitions) > parents.limit
        transitions = transitions[: parents.limit]
        assert children.length[child] == len(transitions)
        for t, (row, step) in enumerate(transitions):
            for name in RECORDED:
                assert getattr(children, name)[child, t].tobytes() == getattr(parents, name)[row, step].tobytes()
        last_row, last_step = transitions[-1]
        end = len(transitions)
        assert children.states[child, end].tobytes() == parents.states[last_row, last_step + 1].tobytes()
        assert not children.states[child, end + 1 :].any()
        assert (children.actions[child, end:] == -1).all()
        for name in ("obs", "rewards", "q"):
            assert not getattr(children, name)[child, end:].any()
    assert cut > 0, "no child had to be truncated"


@every_task
def test_a_childs_lineage_is_that_of_the_parent_whose_prefix_it_has(task: str) -> None:
    parents, made = population(task), crossed(task)
    for part in (made.splices.episodes, made.splices.tests):
        for child in range(len(part)):
            one, at_one, _, _ = made.joint(parents, child)
            assert part.parent[child] == parents.id[one]
            assert part.root_seed[child] == parents.root_seed[one]
            assert part.start_step[child] == at_one
            assert part.operator[child] == operator_code("crossover")
    assert (made.splices.episodes.id == -1).all(), "a splice was never executed and has no number"


@every_task
def test_an_executed_splice_restores_one_parent_at_the_joint_and_draws_the_stream_of_the_other(task: str) -> None:
    parents, made = population(task), crossed(task)
    executed = engine(task).execute(made.splices.tests)
    how = ActionRule("epsilon_greedy", EPSILON, 1.0, np.ones(parents.q.shape[2:], bool))
    explored = 0
    for child in range(len(executed)):
        one, at_one, two, at_two = made.joint(parents, child)
        for name in RECORDED:
            assert getattr(executed, name)[child, :at_one].tobytes() == getattr(parents, name)[one, :at_one].tobytes()
        assert executed.states[child, at_one].tobytes() == parents.states[one, at_one].tobytes()
        # What the team remembers at the joint is what it remembered there: the same Q-values.
        assert executed.q[child, at_one].tobytes() == parents.q[one, at_one].tobytes()
        steps = np.arange(at_one, executed.length[child])
        stream = np.full(len(steps), parents.stream[two])
        drawn = choose(executed.q[child, steps], stream, steps - at_one + at_two, how)
        assert executed.actions[child, steps].tobytes() == drawn.tobytes()
        # The k-th draw is the second parent's own: both explore at the same steps after the joint.
        both = min(len(steps), parents.length[two] - at_two)
        agents = parents.actions.shape[2]
        counter = 2 * ((at_two + np.arange(both))[:, None] * agents + np.arange(agents))
        free = streams.uniform(np.full((both, 1), parents.stream[two]), counter) >= EPSILON
        for recorded, first in ((executed.take([child]), at_one), (parents.take([two]), at_two)):
            greedy = recorded.q[0, first : first + both].argmax(-1)
            assert (recorded.actions[0, first : first + both][free] == greedy[free]).all()
        explored += int((~free).sum())
    assert explored > 50


def test_without_a_partner_the_search_for_one_ends_and_is_counted() -> None:
    parents, generator = population("spread"), np.random.default_rng(6)
    drawn = []

    def draw(count: int) -> NDArray[np.int64]:
        drawn.append(count)
        return generator.integers(0, len(parents), count)

    splices, alone = crossover(parents, draw, 9, 1e-6, task_for(environment("spread")), generator)
    assert (len(splices.tests), len(splices.episodes), alone) == (0, 0, 9)
    assert drawn == [9] * RESTARTS
    assert traces_of(JUDGE(splices.episodes)).q.shape[0] == 0


def test_an_episode_is_not_its_own_partner() -> None:
    alone = population("spread").take([3])
    generator = np.random.default_rng(7)
    splices, missing = crossover(alone, anyone(alone, generator), 5, 1e6, task_for(environment("spread")), generator)
    assert (len(splices.tests), missing) == (0, 5)


def test_episodes_of_one_step_are_never_cut() -> None:
    parents = population("spread").take(np.arange(12))
    parents.length[::2] = 1
    for name, nothing in (("q", 0), ("rewards", 0), ("obs", 0), ("actions", -1)):
        getattr(parents, name)[::2, 1:] = nothing
    for seed in range(10):
        generator = np.random.default_rng(seed)
        splices, _ = crossover(parents, anyone(parents, generator), 20, 1e6, task_for(environment("spread")), generator)
        made = Crossed(splices, 1e6, len(splices.tests) // 2)
        for child in range(made.pairs):
            one, at_one, two, at_two = made.joint(parents, child)
            assert parents.length[one] > 1
            assert 1 <= at_one < parents.length[one]
            assert at_two < parents.length[two]
            assert slow_state(parents.q[one, at_one], 1e6) == slow_state(parents.q[two, at_two], 1e6)
    only = parents.take(np.arange(0, 12, 2))
    splices, missing = crossover(only, anyone(only, generator), 3, 1e6, task_for(environment("spread")), generator)
    assert (len(splices.tests), missing) == (0, 3)


# --- a task that cannot be restored -------------------------------------------------------------------


class Drift(gymnasium.Env):
    """Two agents walk on a line; each is paid for its own place. Nobody can put them back."""

    action_space = Tuple([Discrete(3)] * 2)
    observation_space = Tuple([Box(-100, 100, (2,), np.float32)] * 2)

    def __init__(self) -> None:
        self._obs: Any = None  # remembered, as hosts' wrappers do: what a generic state is made of

    def _see(self) -> Any:
        self._obs = tuple(np.array([self._at[i], self._at[1 - i]], np.float32) for i in range(2))
        return self._obs

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._at = np.random.default_rng(seed).uniform(-1, 1, 2)
        return self._see(), {}

    def step(self, action: Any) -> Any:
        self._at = self._at * 0.9 + 0.5 * (np.asarray(action) - 1)
        return self._see(), np.abs(self._at).tolist(), False, False, {}


class Wanderers:
    """A team without weights: its Q-values are waves of where it is."""

    n_agents, n_actions, obs_size, hidden_size, reading, thread_safe = 2, 3, 2, 0, "q", True

    def forward(self, obs: Any, last: Any, hidden: Any) -> Any:
        waves = [np.sin(obs.sum(-1)), np.cos(2 * obs[..., 0]), np.sin(3 * obs[..., 1])]
        return np.stack(waves, -1).astype(np.float32), np.zeros((len(obs), 2, 0), np.float32)


def drifting(limit: int = 10, epsilon: float = 0.4) -> tuple[GenericTask, Lockstep]:
    task = GenericTask(Drift())
    assert task.state_size == 4
    how = ActionRule("epsilon_greedy", epsilon, 1.0, np.ones((2, 3), bool))
    return task, Lockstep(
        lambda: World(Drift(), task, env_reward, limit=limit, obs_size=2),
        Wanderers(),
        how,
        limit=limit,
        state_size=task.state_size,
    )


def test_mutants_of_a_task_that_cannot_be_restored_replay_the_actions_before_the_step() -> None:
    task, engine = drifting()
    parents = engine.execute(random_tests(20, task.state_size, np.random.default_rng(0)))
    parents.id = np.arange(20) + 50
    generator = np.random.default_rng(1)
    tests, refused = mutate(parents, anyone(parents, generator), 30, task, generator)
    assert (len(tests), refused) == (30, 0)
    assert tests.from_seed.all()
    assert tests.forced is not None
    assert tests.prefix is None
    assert not tests.start_step.any()
    children, fresh = engine.execute(tests), 0
    assert children.executed_steps() == 300, "the prefix is executed again, and so it is charged"
    for child in range(30):
        parent = row_of(parents, tests.parent[child])
        step = int((tests.forced[child, :, 0] >= 0).sum())
        assert tests.forced[child, :step].tobytes() == parents.actions[parent, :step].tobytes()
        assert (tests.forced[child, step:] == -1).all()
        assert children.states[child, : step + 1].tobytes() == parents.states[parent, : step + 1].tobytes()
        assert children.actions[child, :step].tobytes() == parents.actions[parent, :step].tobytes()
        assert children.root_seed[child] == parents.root_seed[parent]
        fresh += children.actions[child, step:].tobytes() != parents.actions[parent, step:].tobytes()
    assert fresh > 15


def test_executed_splices_of_a_task_that_cannot_be_restored_draw_the_second_stream_after_the_joint() -> None:
    task, engine = drifting()
    parents = engine.execute(random_tests(20, task.state_size, np.random.default_rng(0)))
    parents.id = np.arange(20) + 50
    generator = np.random.default_rng(2)
    splices, _ = crossover(parents, anyone(parents, generator), 15, 0.7, task, generator)
    assert len(splices.tests) > 10
    assert splices.tests.forced is not None
    executed = engine.execute(splices.tests)
    how = ActionRule("epsilon_greedy", 0.4, 1.0, np.ones((2, 3), bool))
    for child in range(len(executed)):
        one = row_of(parents, splices.tests.parent[child])
        joint = int(splices.episodes.start_step[child])
        assert executed.states[child, : joint + 1].tobytes() == parents.states[one, : joint + 1].tobytes()
        steps = np.arange(joint, 10)
        shifted = steps + splices.tests.shift[child]
        drawn = choose(executed.q[child, steps], np.full(len(steps), splices.tests.stream[child]), shifted, how)
        assert executed.actions[child, steps].tobytes() == drawn.tobytes()
