"""What every task keeps to: `check_task(TASK, key)`, with the gymnasium id of an environment of its family."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core.episodes import Episodes, random_tests
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.registry import LATER
from epymarl_fairtest.engine.contract import Engine
from epymarl_fairtest.tasks import TASKS, task_for
from epymarl_fairtest.tasks.contract import Array, Competence, Task, complaint
from epymarl_fairtest.tasks.scene import Body, Field
from epymarl_fairtest.tasks.world import World, flat
from epymarl_fairtest.team.contract import Team
from epymarl_fairtest.testing.comparing import assert_same
from epymarl_fairtest.testing.engines import continues_its_own_episodes
from epymarl_fairtest.testing.teams import engine_of, random_team

STEPS = 12  # of an episode
EPISODES = 8
BINS = 4


@dataclass
class TaskCase:
    """A task and an environment of its family."""

    task: type[Task]
    key: str
    env_args: Mapping[str, Any] = field(default_factory=dict)

    def environment(self) -> Any:
        return gymnasium.make(self.key, disable_env_checker=True, **self.env_args)

    @cached_property
    def known(self) -> Task:
        """The task, sizes read from an environment."""
        return self.task(self.environment())

    @cached_property
    def team(self) -> Team:
        """A team that nobody trained, in this environment."""
        with TASKS.having(self.task):
            return random_team(self.key, time_limit=STEPS, env_args=self.env_args)

    @cached_property
    def real(self) -> Engine:
        return engine_of(self.team, "lockstep")

    @cached_property
    def episodes(self) -> Episodes:
        """Some of that team's."""
        return self.real.execute(random_tests(EPISODES, self.known.state_size, np.random.default_rng(0)))

    @property
    def states(self) -> Array:
        """All states of these episodes (…, state_size)."""
        running = np.arange(STEPS + 1) <= self.episodes.length[:, None]
        return self.episodes.states[running]

    @property
    def starts(self) -> Array:
        return self.episodes.states[:, 0]


def check_task(task: type[Task], key: str, **env_args: Any) -> None:
    """All of the contract; an AssertionError says what is not kept. `env_args` are the environment's own."""
    case = TaskCase(task, key, env_args)
    for contract in CONTRACTS:
        contract(case)


# --- the contracts ------------------------------------------------------------------------------------


def is_complete(case: TaskCase) -> None:
    """It has all its parts, and sizes that make sense."""
    lacking = complaint(case.task)
    assert lacking is None, f"the task {lacking}"
    known = case.known
    assert 0 < known.theta <= 1, f"theta is {known.theta}; it must be in (0, 1]"
    assert known.distinct_distance >= 0, f"distinct_distance is {known.distinct_distance}; it must be at least 0"
    assert known.low < known.high, f"positions lie between {known.low} and {known.high}: that is nowhere"
    agents = len(case.environment().action_space)
    assert known.n_agents == agents, f"n_agents is {known.n_agents}, and {agents} agents act in the environment"
    assert known.suggested_allocation in known.allocations, f"it has no allocation {known.suggested_allocation!r}"


def recognises_its_environment(case: TaskCase) -> None:
    """And no other: only a task that is asked after all others (`order`) may take what it does not know."""
    assert case.task.recognises(case.environment()), f"{case.task.name} does not recognise {case.key}"
    if case.task.order <= LATER:
        assert not case.task.recognises(Stranger()), f"{case.task.name} takes environments that are not of its family"
    with TASKS.having(case.task):
        first = task_for(case.environment()).name
    assert first == case.task.name, f"{case.key} is taken by the task {first}, which is asked before {case.task.name}"


class Stranger(gymnasium.Env[Any, Any]):
    """An environment that no task knows."""


def reads_states(case: TaskCase) -> None:
    """A state is a new float64 vector each time, the same from the environment and from its source."""
    env, known = case.environment(), case.known
    known.reset(env, 5)
    before = known.read(env)
    kept = before.copy()
    assert before.dtype == np.float64 and before.shape == (known.state_size,), (  # noqa: PT018
        f"a state is {before.dtype} {before.shape}; it must be float64 ({known.state_size},)"
    )
    assert np.isfinite(before).all(), "a state holds NaN or infinity"
    assert np.array_equal(before, known.read(known.source(env))), "source(env) reads another state than env"
    env.step([0] * known.n_agents)
    known.read(env)
    assert np.array_equal(before, kept), "a state that was read changes when the environment goes on: copy it"


def reset_forgets(case: TaskCase) -> None:
    """The episode of a seed does not depend on the one before."""
    fresh, used = _world(case), _world(case)
    for seed in (11, 12):
        _played(used, seed=99 + seed, moves=_moves(case, 3))
        moves = _moves(case, STEPS)
        unlike = _unlike(_played(fresh, seed=seed, moves=moves), _played(used, seed=seed, moves=moves))
        assert unlike is None, f"reset({seed}) gives other {unlike} after another episode"
        fresh = _world(case)


def written_states_continue(case: TaskCase) -> None:
    """What was read and is written into another environment continues bit for bit."""
    if not case.known.restorable:
        return
    world, other, middle = _world(case), _world(case), STEPS // 3
    for seed in range(EPISODES):
        moves = _moves(case, STEPS, seed)
        begun = _played(world, seed=seed, moves=moves[:middle])
        if world.done:
            continue
        state = world.state()
        other.restore(state, middle)
        assert np.array_equal(other.state(), state), "a state that is written is not the state that is read then"
        assert np.array_equal(other.obs, world.obs), "observe after write differs from what the agents saw there"
        unlike = _unlike(_played(world, moves=moves[middle:]), _played(other, moves=moves[middle:]))
        assert unlike is None, (
            f"an episode goes on with other {unlike} after its state was written ({len(begun)} steps in)"
        )


def perturbing_keeps_the_rules(case: TaskCase) -> None:
    """An accepted state is another one that can be written; a refused or unchanged one is marked."""
    if not case.known.restorable:
        return
    states, world, accepted = case.states, _world(case), 0
    for number in range(5):
        before = states.copy()
        new, kept = case.known.perturb(states, np.random.default_rng(number))
        again, _ = case.known.perturb(states, np.random.default_rng(number))
        assert np.array_equal(states, before), "perturb changes the states it is given"
        assert np.array_equal(new, again, equal_nan=True), "perturb draws from somewhere else than its generator"
        assert (new.shape, kept.shape, kept.dtype) == (states.shape, (len(states),), np.dtype(bool)), (
            f"perturb gives {new.shape} and {kept.dtype} {kept.shape} for {len(states)} states"
        )
        assert (new != states).any(axis=1)[kept].all(), "a state that did not change is not marked as refused"
        _can_be_written(case, world, new[kept][:10], "perturbed state")
        accepted += int(kept.sum())
    assert accepted, f"no state was perturbed in {5 * len(states)} tries"


def starts_can_be_proposed(case: TaskCase) -> None:
    """Initial states as vectors in [-1, 1] and back, bit for bit; what no reset would draw is refused."""
    if not case.known.proposable:
        return
    known, starts, generator = case.known, case.starts, np.random.default_rng(3)
    vectors = known.start_vectors(starts)
    assert vectors.ndim == 2 and len(vectors) == len(starts), f"{vectors.shape} vectors for {len(starts)} starts"  # noqa: PT018
    assert (np.abs(vectors) <= 1).all(), "the vector of an initial state leaves [-1, 1]"
    back, kept = known.starts_from(vectors)
    assert kept.all(), "starts_from refuses what start_vectors made of real initial states"
    assert np.array_equal(back, starts), "an initial state is not what it was after start_vectors and starts_from"
    beyond, kept = known.starts_from(np.full_like(vectors, 7.0))
    assert not kept.any(), "starts_from accepts vectors of sevens: they lie far outside [-1, 1]"
    assert beyond.shape == starts.shape, f"starts_from gives the shape {beyond.shape}, not {starts.shape}"
    bodies = known.bodies_of_starts(vectors.shape[1])
    assert bodies.shape == (vectors.shape[1],), f"bodies_of_starts gives {bodies.shape} for {vectors.shape[1]} numbers"
    assert bodies.dtype.kind == "i" and bodies.min() >= 0, "bodies_of_starts must be whole numbers from 0"  # noqa: PT018
    drawn, kept = known.starts_from(generator.uniform(-1, 1, (500, vectors.shape[1])))
    _can_be_written(case, _world(case), drawn[kept][:10], "proposed start")


def positions_are_in_range(case: TaskCase) -> None:
    """Positions of the agents under test, and the coverage cells they lie in."""
    known, states = case.known, case.states
    at, moving = known.positions(states), known.motion(states)
    assert at.shape == (len(states), known.n_agents, 2), f"positions of {len(states)} states are {at.shape}"
    assert np.isfinite(at).all(), "a position is NaN or infinite"
    assert np.array_equal(at[0], known.positions(states[0])), "positions of one state differ from those in a batch"
    assert moving.shape == (*at.shape[:2], 4), f"motion of {len(states)} states is {moving.shape}"
    assert np.array_equal(moving[..., :2], at), "motion does not begin with the positions"
    if known.placed:
        first = known.positions(case.starts)
        inside = (first >= known.low - 1e-9) & (first <= known.high + 1e-9)
        assert inside.all(), f"an episode begins at {first[~inside][0]}, outside of {known.low} to {known.high}"
    cells, count = known.cells(states, BINS), known.cell_count(BINS)
    assert (cells.shape, cells.dtype.kind) == ((len(states),), "i"), f"cells are {cells.dtype} {cells.shape}"
    assert ((cells >= 0) & (cells < count)).all(), f"a cell lies outside of 0 to {count - 1}"


def features_are_finite(case: TaskCase) -> None:
    """Finite numbers per start and agent, which do not depend on the other starts."""
    starts, known = case.starts, case.known
    features = known.features(starts)
    assert features.ndim == 3 and features.shape[:2] == (len(starts), known.n_agents), (  # noqa: PT018
        f"features of {len(starts)} starts are {features.shape}; they must be ({len(starts)}, {known.n_agents}, F)"
    )
    assert np.isfinite(features).all(), "a feature is NaN or infinite"
    alone = np.concatenate([known.features(starts[row : row + 1]) for row in range(len(starts))])
    assert np.allclose(features, alone, rtol=1e-12, atol=1e-12), (
        "the features of a start change with the starts beside it"
    )


def starts_have_places(case: TaskCase) -> None:
    """Where everything is that a reset places: finite, as many bodies in every start."""
    starts, known = case.starts, case.known
    at = known.start_places(starts)
    assert at.ndim == 3 and (len(at), at.shape[2]) == (len(starts), 2), (  # noqa: PT018
        f"start_places of {len(starts)} starts are {at.shape}; they must be ({len(starts)}, bodies, 2)"
    )
    assert at.shape[1] >= 1, "start_places hold no body: all starts would be the same"
    assert np.isfinite(at).all(), "a place of a start is NaN or infinite"
    assert np.array_equal(at[:1], known.start_places(starts[:1])), "places of one start differ from those in a batch"


def allocations_pay_everyone(case: TaskCase) -> None:
    """Every allocation gives one finite number per agent, the same for a state alone and in a batch."""
    generator, states = np.random.default_rng(4), case.states
    paid = generator.normal(size=(len(states), case.known.n_agents))
    for name, allocation in case.known.allocations.items():
        given = allocation(states, paid)
        assert given.shape == paid.shape, f"the allocation {name} gives {given.shape}; it must be {paid.shape}"
        assert np.isfinite(given).all(), f"the allocation {name} gives NaN or infinity"
        assert np.array_equal(given[0], allocation(states[0], paid[0])), f"{name} of a state changes with the batch"


def twin_equals_the_environment(case: TaskCase) -> None:
    """Where there is a twin it gives the same bits, from seeds and from recorded states in the middle."""
    for name in case.known.allocations:
        team = replace(case.team, allocation=name)
        try:
            kernel = case.known.twin(team.environment, name)
        except (ValueError, AttributeError):
            continue
        if kernel is None:
            continue
        with TASKS.having(case.task):
            allocated = random_team(case.key, time_limit=STEPS, allocation=name, env_args=case.env_args)
        twin, real = engine_of(allocated, "twin"), engine_of(allocated, "lockstep")
        tests = random_tests(3 * EPISODES, case.known.state_size, np.random.default_rng(5))
        assert_same(twin.execute(tests), real.execute(tests), f"the twin (allocation {name}) differs")
        continues_its_own_episodes(twin, allocated)


def field_can_be_drawn(case: TaskCase) -> None:
    """What is on the field, in a window that holds it; drawn as a still, and as what the page's player reads."""
    from epymarl_fairtest.report.drawing import png
    from epymarl_fairtest.report.scenes import scene_of

    episodes, known = case.episodes, case.known
    steps = int(episodes.length[0])
    drawn = known.field(episodes.states[0, : steps + 1])
    for body in drawn.bodies:
        shapes = (body.at.shape, body.present.shape)
        assert shapes == ((steps + 1, 2), (steps + 1,)), f"{body} has the shapes {shapes}, for {steps} steps"
        here = body.at[body.present]
        assert ((here >= drawn.low) & (here <= drawn.high)).all(), f"{body} leaves the window"
    scene = scene_of(known, episodes, 0)
    assert png(scene).startswith(b"\x89PNG"), "the still is not a picture"
    json.dumps(scene.as_json(), allow_nan=False)


def fields_at_once_are_fields_one_by_one(case: TaskCase) -> None:
    """Of episodes that end at different steps, as the page draws them all and as one of them is drawn alone."""
    from epymarl_fairtest.report.scenes import played

    episodes, known = case.episodes, case.known
    steps = np.minimum(episodes.length, np.arange(len(episodes), 0, -1))
    drawn = played(known, episodes.states, episodes.rewards, steps).fields
    assert len(drawn) == len(steps), f"{len(drawn)} fields of {len(steps)} episodes"
    for n, last in enumerate(steps.tolist()):
        alone = known.field(episodes.states[n, : last + 1])
        there, here = (json.dumps(_plain(field)) for field in (drawn[n], alone))
        assert there == here, f"fields draws\n{there}\nand field\n{here}"


def _plain(field: Field) -> Any:
    return [field.kind, field.low.tolist(), field.high.tolist(), [_body(body) for body in field.bodies]]


def _body(body: Body) -> Any:
    return [part.tolist() if isinstance(part, np.ndarray) else part for part in vars(body).values()]


def rebuilt_has_the_same_sizes(case: TaskCase) -> None:
    """Made again from what a run folder says, it reads states alike; None where it cannot be made again."""
    known, made_with = case.known, json.loads(json.dumps(dict(case.env_args)))
    again = case.task.rebuilt(known.n_agents, case.key, made_with)
    if again is None:
        return
    for name in ("n_agents", "state_size", "low", "high"):
        there, here = getattr(known, name), getattr(again, name)
        assert there == here, f"{name} is {there} in the environment and {here} in the task that is rebuilt"
    assert np.array_equal(known.positions(case.states), again.positions(case.states)), "it places the agents elsewhere"


def competence_can_be_told(case: TaskCase) -> None:
    """When a team is worth testing; an environment that does not let it be said is refused."""
    try:
        wanted = case.known.competence(case.environment())
    except FairTestError:
        return
    assert isinstance(wanted, Competence), f"competence gives {wanted!r}, not a Competence"


CONTRACTS: tuple[Callable[[TaskCase], None], ...] = (
    is_complete,
    recognises_its_environment,
    reads_states,
    reset_forgets,
    written_states_continue,
    perturbing_keeps_the_rules,
    starts_can_be_proposed,
    positions_are_in_range,
    features_are_finite,
    starts_have_places,
    allocations_pay_everyone,
    twin_equals_the_environment,
    field_can_be_drawn,
    fields_at_once_are_fields_one_by_one,
    rebuilt_has_the_same_sizes,
    competence_can_be_told,
)


# --- what they share ----------------------------------------------------------------------------------

Moves = NDArray[np.int16]
Played = list[tuple[Any, ...]]  # by step: PLAYED
PLAYED = ("states", "rewards", "observations", "ends")


def _world(case: TaskCase) -> World:
    size = max(gymnasium.spaces.flatdim(space) for space in case.environment().observation_space)
    return World(case.environment(), case.known, case.known.allocations["env"], obs_size=size)


def _moves(case: TaskCase, steps: int, seed: int = 0) -> Moves:
    """Random actions (steps, agents)."""
    spaces, generator = case.environment().action_space, np.random.default_rng(seed)
    return np.stack([generator.integers(0, space.n, steps) for space in spaces], axis=1).astype(np.int16)


def _played(world: World, moves: Moves, seed: int | None = None) -> Played:
    """Each step of an episode, from a reset or from where the world is."""
    if seed is not None:
        world.reset(seed)
    played: Played = [(world.state(), np.zeros(len(world.reward)), world.obs, world.done)]
    for actions in moves:
        if world.done:
            break
        world.step(actions)
        played.append((world.state(), world.reward, world.obs, world.done))
    return played


def _unlike(a: Played, b: Played) -> str | None:
    """What two episodes do not share, and from which step on."""
    for step, (left, right) in enumerate(zip(a, b, strict=False)):
        unlike = [name for name, *pair in zip(PLAYED, left, right, strict=True) if not np.array_equal(*pair)]
        if unlike:
            return f"{' and '.join(unlike)} from step {step} on"
    return None if len(a) == len(b) else f"ends: {len(a)} and {len(b)} steps"


def _can_be_written(case: TaskCase, world: World, states: Array, what: str) -> None:
    """Do these states come back as they were written, and can the environment go on from them?"""
    for state in states:
        assert np.isfinite(state).all(), f"a {what} holds NaN or infinity"
        world.restore(state, 0)
        assert np.array_equal(world.state(), state), f"a {what} is not what the environment holds after it is written"
        seen = flat(case.known.observe(world._env), world.obs.shape[1])
        assert np.array_equal(seen, world.obs), f"observe changes what the agents see in a {what}"
        world.step(_moves(case, 1)[0])
        assert np.isfinite(world.state()).all() and np.isfinite(world.reward).all(), f"a {what} leads to NaN"  # noqa: PT018
