"""Tasks: restored episodes continue bit for bit, perturbed states keep the rules, allocations pay."""

import importlib
import inspect
import math
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import yaml
from gymnasium.spaces import Box, Discrete, Tuple
from gymnasium.wrappers import OrderEnforcing, TimeLimit
from support import few_and_many

import epymarl_fairtest  # noqa: F401  (registers the environments)
from epymarl_fairtest.core.checkout import known_checkout
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.tasks import TASKS, task_for
from epymarl_fairtest.tasks.allocation import resolve_allocation
from epymarl_fairtest.tasks.foraging.environment import make_foraging_env
from epymarl_fairtest.tasks.foraging.rules import ForagingTask
from epymarl_fairtest.tasks.generic.rules import GenericTask
from epymarl_fairtest.tasks.layers import wrappers
from epymarl_fairtest.tasks.mpe.rules import scenario_module
from epymarl_fairtest.tasks.spread.environment import SpreadEnv
from epymarl_fairtest.tasks.spread.rules import SpreadTask
from epymarl_fairtest.tasks.tag import environment as tag
from epymarl_fairtest.tasks.tag.environment import TagEnv
from epymarl_fairtest.tasks.tag.rules import TagTask

LIMITS = {"mpe-spread-v0": 25, "mpe-tag-v0": 50, "lbforaging-v0": 50}


def registered(name: str, **settings: Any) -> Any:
    """What a host builds around a registered environment."""
    made = gymnasium.make(f"epymarl_fairtest:{name}", **settings)
    return TimeLimit(made, max_episode_steps=LIMITS[name])


OURS: dict[str, Callable[[], Any]] = {
    "spread": lambda: registered("mpe-spread-v0"),
    "spread of five": lambda: registered("mpe-spread-v0", N=5),
    "spread, own reward": lambda: registered("mpe-spread-v0", allocation="env"),
    "tag": lambda: registered("mpe-tag-v0"),
    "tag, still prey": lambda: registered("mpe-tag-v0", prey="still"),
    "foraging": lambda: registered("lbforaging-v0"),
    "foraging, stock": lambda: gymnasium.make("lbforaging:Foraging-8x8-3p-3f-v3"),
    "foraging, partial": lambda: gymnasium.make("lbforaging:Foraging-2s-10x10-4p-2f-v3"),
    "spread, unwrapped": SpreadEnv,
    "foraging, unwrapped": make_foraging_env,
}
STOCK = {  # EPyMARL's own wrappers; max_cycles 25 is PettingZoo's, so that its agents are removed at the end
    "spread": ("simple_spread_v3", {}, None),
    "spread, long": ("simple_spread_v3", {"max_cycles": 100}, None),
    "tag": ("simple_tag_v3", {"max_cycles": 26}, "PretrainedTag"),
    "tag, to its end": ("simple_tag_v3", {}, "PretrainedTag"),
    "tag, frozen": ("simple_tag_v3", {}, "FrozenTag"),
    "reference": ("simple_reference_v3", {}, None),
    "speaker_listener": ("simple_speaker_listener_v4", {}, None),
    "adversary": ("simple_adversary_v3", {}, None),
}


@pytest.fixture(scope="module")
def epymarl() -> Iterator[Callable[..., Any]]:
    """EPyMARL's wrapper stack around PettingZoo's simulators, read from the known checkout."""
    checkout = known_checkout()
    if checkout is None:
        pytest.skip("no EPyMARL checkout is known: set EPYMARL_HOME or run `fairtest install`")
    with pytest.MonkeyPatch.context() as patch:
        package = types.ModuleType("envs")  # its __init__ wants smaclite, which nobody needs here
        package.__path__ = [str(checkout / "src" / "envs")]
        patch.setitem(sys.modules, "envs", package)
        for game in {game for game, _, _ in STOCK.values()}:
            simulator = scenario_module(game.rpartition("_")[0])
            patch.setitem(sys.modules, f"pettingzoo.mpe.{game}", simulator)
        wrapper = importlib.import_module("envs.pz_wrapper")
        flat = importlib.import_module("envs.wrappers")
        pretrained = importlib.import_module("envs.pretrained")

        def build(game: str, settings: dict[str, Any], prey: str | None) -> Any:
            env = OrderEnforcing(wrapper.PettingZooWrapper("mpe", game, **settings))
            env = flat.FlattenObservation(TimeLimit(env, max_episode_steps=25))
            return getattr(pretrained, prey)(env) if prey else env

        yield build
    for name in [name for name in sys.modules if name == "envs" or name.startswith("envs.")]:
        del sys.modules[name]


# Restoring


def play(env: Any, task: Any, actions: np.ndarray, start: int) -> list[tuple[Any, ...]]:
    """From step `start` on: (state, observations, rewards, terminated, truncated) of every step."""
    record = []
    for t in range(start, len(actions)):
        seen, reward, terminated, truncated, _ = env.step(actions[t].tolist())
        flat = np.concatenate([np.ravel(one) for one in seen])
        record.append((task.read(env), flat, np.array(reward), bool(terminated), bool(truncated)))
        if terminated or truncated:
            break
    return record


def same(one: list[tuple[Any, ...]], other: list[tuple[Any, ...]]) -> None:
    assert len(one) == len(other)
    for a, b in zip(one, other, strict=True):
        for x, y in zip(a[:3], b[:3], strict=True):
            assert x.dtype == y.dtype
            assert x.tobytes() == y.tobytes()
        assert a[3:] == b[3:]


def restored_continues_identically(make: Callable[[], Any], episodes: int) -> None:
    env, fresh_task = make(), task_for(make())
    rng = np.random.default_rng(0)
    for episode in range(episodes):
        seen, _ = env.reset(seed=episode)
        task = task_for(env)
        actions = rng.integers(0, [space.n for space in env.action_space], (50, task.n_agents))
        states = [task.read(env)]
        views = [np.concatenate([np.ravel(one) for one in seen])]
        record = play(env, task, actions, 0)
        states += [step[0] for step in record]
        views += [step[1] for step in record]
        last = len(record) - 1
        for step in sorted({0, last, *rng.integers(0, last + 1, 2).tolist()}):
            fresh = make() if episode % 4 == 0 else env  # never reset, or past the end of an episode
            fresh_task.write(fresh, states[step], step)
            assert fresh_task.read(fresh).tobytes() == states[step].tobytes()
            assert np.concatenate(fresh_task.observe(fresh)).tobytes() == views[step].tobytes()
            same(play(fresh, fresh_task, actions, step), record[step:])


@pytest.mark.parametrize("name", OURS)
@few_and_many("episodes", 4, 16)
def test_a_restored_episode_continues_bit_for_bit(name: str, episodes: int) -> None:
    restored_continues_identically(OURS[name], episodes=episodes)


@pytest.mark.parametrize("name", STOCK)
@few_and_many("episodes", 4, 12)
def test_a_restored_episode_of_the_hosts_wrappers_continues_bit_for_bit(name: str, epymarl: Any, episodes: int) -> None:
    restored_continues_identically(lambda: epymarl(*STOCK[name]), episodes=episodes)


@pytest.mark.parametrize("name", OURS)
def test_writing_leaves_the_next_seeded_episode_and_the_stream_alone(name: str) -> None:
    env, other = OURS[name](), OURS[name]()
    env.reset(seed=5), other.reset(seed=5)
    task = task_for(env)
    task.write(env, task.read(env), 3)
    for a, b in zip(env.reset()[0], other.reset()[0], strict=True):
        assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("name", OURS)
def test_the_episode_of_a_seed_does_not_depend_on_what_was_played_before(name: str) -> None:
    used = OURS[name]()
    task = task_for(used)
    for seed in range(40):
        fresh = OURS[name]()
        expected, _ = fresh.reset(seed=seed)
        for one, other in zip(task.reset(used, seed)[0], expected, strict=True):
            assert one.tobytes() == other.tobytes()
        assert task.read(used).tobytes() == task.read(fresh).tobytes()


def test_a_written_state_is_copied() -> None:
    env = SpreadEnv()
    env.reset(seed=0)
    state = env.task.read(env)
    before = state.copy()
    env.task.write(env, state, 0)
    env.step([1, 2, 3])
    assert (state == before).all()


# Perturbing


def some_states(make: Callable[[], Any], count: int) -> tuple[Any, Any, np.ndarray]:
    env = make()
    task = task_for(env)
    rng = np.random.default_rng(1)
    states: list[np.ndarray] = []
    while len(states) < count:
        env.reset(seed=len(states))
        actions = rng.integers(0, 5, (50, task.n_agents))
        states += [step[0] for step in play(env, task, actions, 0)[:-1]]
    return env, task, np.stack(states[:count])


@pytest.mark.parametrize(
    "name",
    [
        "spread",
        "foraging",
        pytest.param("tag", marks=pytest.mark.slow),
        pytest.param("foraging, partial", marks=pytest.mark.slow),
    ],
)
def test_ten_thousand_perturbations_keep_the_rules_and_can_be_stepped(name: str) -> None:
    env, task, states = some_states(OURS[name], 1000)
    old = np.repeat(states, 10, axis=0)
    new, kept = task.perturb(old, np.random.default_rng(2))
    again, kept_again = task.perturb(old, np.random.default_rng(2))
    assert (again == new).all()
    assert (kept == kept_again).all()
    assert 0.3 < kept.mean() <= 1
    assert np.isfinite(new).all()
    assert (new != old).any(axis=1)[kept].all()
    (check_foraging if task.name == "foraging" else check_particles)(task, old[kept], new[kept])
    for allocation in task.allocations.values():
        assert np.isfinite(allocation(new, np.zeros((len(new), task.n_agents)))).all()
    rng = np.random.default_rng(3)
    for row in np.flatnonzero(kept)[:: max(1, kept.sum() // 1200)]:
        task.write(env, new[row], 7)
        _, reward, *_ = env.step(rng.integers(0, 5, task.n_agents).tolist())
        assert np.isfinite(reward).all()
        assert np.isfinite(task.read(env)).all()


def check_particles(task: Any, old: np.ndarray, new: np.ndarray) -> None:
    tested = 4 * task.n_agents
    assert (new[:, tested:] == old[:, tested:]).all()
    before, after = old[:, :tested].reshape(-1, 4), new[:, :tested].reshape(-1, 4)
    limit = np.maximum([1, 1, task.speed, task.speed], np.abs(before))
    assert (np.abs(after) <= limit).all()
    assert (np.abs(after) <= 1.2 * np.abs(before) + 1e-15).all()
    assert (np.abs(after) >= 0.8 * np.abs(before) - 1e-15).all()
    assert (np.sign(after) == np.sign(before)).all()


def check_foraging(task: Any, old: np.ndarray, new: np.ndarray) -> None:
    assert (task.players(new)[..., 2] == task.players(old)[..., 2]).all()
    assert (new[:, 3 * task.n_agents :] == old[:, 3 * task.n_agents :]).all()
    for was, now in zip(old, new, strict=True):
        places = [tuple(place) for place in task.positions(now).tolist()]
        food = {tuple(place) for place in task.food(now)[:, :2].tolist()}
        assert len(set(places)) == len(places)
        assert not food & set(places)
        for (row, col), (r, c) in zip(places, task.positions(was).tolist(), strict=True):
            assert row == int(row)
            assert 0 <= row < task.rows
            assert abs(row - r) <= 0.2 * r + 0.5
            assert col == int(col)
            assert 0 <= col < task.cols
            assert abs(col - c) <= 0.2 * c + 0.5


def test_states_that_break_a_rule_are_refused() -> None:
    spread, hunt, forage = SpreadEnv(), TagEnv(prey="still"), make_foraging_env()
    rng = np.random.default_rng(0)
    states = rng.uniform(0.1, 1, (50, spread.task.state_size))
    assert spread.task.perturb(states, rng)[1].all()
    states[:, [0, 1, 4, 5]] = 0  # two agents on one spot, and scaling cannot part them
    assert not spread.task.perturb(states, rng)[1].any()
    states = rng.uniform(0.1, 1, (50, hunt.task.state_size))
    states[:, [0, 1, 16, 17]] = 0  # a predator in the middle of an obstacle
    assert not hunt.task.perturb(states, rng)[1].any()
    states[:, [0, 1]] = np.inf
    assert not hunt.task.perturb(states, rng)[1].any()
    task = ForagingTask(forage)
    corner = np.array([0, 0, 1, 0, 1, 1, 1, 0, 2, 5, 5, 1, -1, -1, 0, -1, -1, 0, 1.0])
    assert not task.perturb(np.tile(corner, (50, 1)), rng)[1].any()


# Allocations


def slow_allocation(task: Any, state: list[float]) -> list[float]:
    n, bodies = task.n_agents, task.bodies
    places = [state[4 * bodies + 2 * i :][:2] for i in range((len(state) - 4 * bodies) // 2)]
    goals = places if task.name == "spread" else [state[4 * n : 4 * n + 2]]
    return [-min(math.sqrt((state[4 * i] - x) ** 2 + (state[4 * i + 1] - y) ** 2) for x, y in goals) for i in range(n)]


@pytest.mark.parametrize("name", ["spread", "spread of five", "tag"])
def test_allocations_equal_a_slow_reference_and_are_what_the_environment_pays(name: str) -> None:
    env = OURS[name]()
    task = task_for(env)
    allocation = resolve_allocation(task, task.suggested_allocation)
    rng = np.random.default_rng(0)
    states, paid = [], []
    for seed in range(8):
        env.reset(seed=seed)
        for record in play(env, task, rng.integers(0, 5, (24, task.n_agents)), 0):
            states.append(record[0])
            paid.append(record[2])
    batch = np.stack(states).reshape(8, 24, -1)
    vectorised = allocation(batch, np.zeros((8, 24, task.n_agents)))
    assert vectorised.shape == (8, 24, task.n_agents)
    assert vectorised.reshape(-1).tobytes() == np.concatenate(paid).tobytes()
    assert (np.array([slow_allocation(task, s.tolist()) for s in states]) == np.stack(paid)).all()
    assert (allocation(states[0], np.zeros(task.n_agents)) == paid[0]).all()


@pytest.mark.parametrize("name", ["nearest", "nearest_landmark:", "no_such.m:f", "math:pi", "math:nothing"])
def test_an_allocation_that_does_not_exist_is_named_in_the_error(name: str) -> None:
    with pytest.raises(FairTestError) as error:
        resolve_allocation(SpreadTask(SpreadEnv()), name)
    assert repr(name) in str(error.value)
    if ":" not in name:
        assert "env, nearest_landmark" in str(error.value)
        assert "package.module:function" in str(error.value)


def test_a_function_of_the_user_is_paid_and_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_fairness.py").write_text(
        "import numpy as np\n"
        "def doubled(state, reward): return 2 * reward\n"
        "def short(state, reward): return reward[..., :1]\n"
        "def broken(state, reward): return reward * np.nan\n"
        "def listed(state, reward): return [1, 2, 3]\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    plain, doubled = SpreadEnv(allocation="env"), SpreadEnv(allocation="my_fairness:doubled")
    plain.reset(seed=0), doubled.reset(seed=0)
    for _ in range(10):
        assert doubled.step([1, 2, 3])[1] == [2 * reward for reward in plain.step([1, 2, 3])[1]]
    task = plain.task
    state, reward = task.read(plain), np.ones(3)
    assert resolve_allocation(task, "my_fairness:listed")(state, reward).tolist() == [1, 2, 3]
    with pytest.raises(FairTestError, match=r"\(1,\) where \(3,\)"):
        resolve_allocation(task, "my_fairness:short")(state, reward)
    with pytest.raises(FairTestError, match="finite"):
        resolve_allocation(task, "my_fairness:broken")(state, reward)


# The registered environments


@pytest.mark.parametrize("name", LIMITS)
def test_registered_environments_follow_the_gymma_convention(name: str) -> None:
    env = gymnasium.make(f"epymarl_fairtest:{name}")
    inner = env.unwrapped
    assert isinstance(env.action_space, Tuple)
    assert isinstance(env.observation_space, Tuple)
    assert inner.n_agents == len(env.action_space) == len(env.observation_space) == 3
    seen, info = env.reset(seed=3)
    assert isinstance(seen, tuple)
    assert info == {}
    assert all(space.contains(one) for space, one in zip(env.observation_space, seen, strict=True))
    inner.seed(3)
    assert [one.tobytes() for one in seen] == [one.tobytes() for one in env.reset()[0]]
    after_seed = env.reset()[0]
    env.reset(seed=3)
    assert [one.tobytes() for one in after_seed] == [one.tobytes() for one in env.reset()[0]]
    seen, reward, terminated, truncated, info = env.step([0, 1, 2])
    assert isinstance(reward, list)
    assert len(reward) == 3
    assert info == {}
    assert all(one.dtype == np.float32 for one in seen)
    assert not terminated
    assert not truncated
    env.close()


@pytest.mark.parametrize("cls", [SpreadEnv, TagEnv])
def test_particle_environments_never_end_by_themselves(cls: Any) -> None:
    env = cls()
    env.reset(seed=0)
    for _ in range(200):
        _, reward, terminated, truncated, _ = env.step([1, 2, 3])
        assert not terminated
        assert not truncated
        assert all(reward)
    with pytest.raises(FairTestError, match="time_limit"):
        cls(max_cycles=25)
    with pytest.raises(FairTestError, match="discrete"):
        cls(continuous_actions=True)
    with pytest.raises(ValueError, match="2 actions for 3 agents"):
        env.step([1, 2])


@few_and_many("seeds", 10, 50)
@pytest.mark.parametrize("game", ["simple_spread", "simple_tag"])
def test_dynamics_equal_the_public_parallel_environment(game: str, seeds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    moves: list[int] = []
    monkeypatch.setattr(tag, "PREY", {"given": lambda: lambda seen: moves.pop()})
    env = SpreadEnv() if game == "simple_spread" else TagEnv(prey="given")
    own = SpreadEnv(allocation="env") if game == "simple_spread" else TagEnv(allocation="env", prey="given")
    public = scenario_module(game).parallel_env(max_cycles=100)
    rng = np.random.default_rng(0)
    for seed in range(seeds):
        seen = env.reset(seed=seed)[0]
        own.reset(seed=seed)
        public_seen = public.reset(seed=seed)[0]
        for _ in range(25):
            assert [one.tobytes() for one in seen] == [one.tobytes() for one in public_seen.values()][:3]
            assert env.task.read(env).tobytes() == env.task.read(public).tobytes()
            actions = rng.integers(0, 5, len(public.agents)).tolist()
            moves[:] = actions[3:] * 2
            seen = env.step(actions[:3])[0]
            own_reward = own.step(actions[:3])[1]
            public_seen, reward, *_ = public.step(dict(zip(public.agents, actions, strict=True)))
            assert own_reward == list(reward.values())[:3]


def test_a_scenario_that_shows_only_neighbours_looks_for_itself() -> None:
    if "num_agent_neighbors" not in inspect.signature(scenario_module("simple_spread").raw_env).parameters:
        pytest.skip("this release of the simulator always shows everyone")
    settings = {"num_agent_neighbors": 1, "num_landmark_neighbors": 2}
    env, public = SpreadEnv(**settings), scenario_module("simple_spread").parallel_env(**settings)
    seen, expected = env.reset(seed=1)[0], public.reset(seed=1)[0]
    assert [one.tobytes() for one in seen] == [one.tobytes() for one in expected.values()]


def test_foraging_levels_and_spawning() -> None:
    env = make_foraging_env()
    task = ForagingTask(env)
    orders = set()
    for seed in range(100):
        env.reset(seed=seed)
        state = task.read(env)
        levels, food = task.players(state)[:, 2], task.food(state)
        orders.add(tuple(levels))
        assert sorted(levels) == [1, 1, 2]
        assert ((food[:, 2] >= 1) & (food[:, 2] <= 4)).all()
        assert state[-1] == food[:, 2].sum()
        assert ((food[:, :2] >= 1) & (food[:, :2] <= 6)).all()
        assert (np.diff(food[:, 0] * 8 + food[:, 1]) > 0).all()  # row-major
        gap = np.abs(food[:, None, :2] - food[None, :, :2]).sum(axis=-1)
        assert (gap[np.triu_indices(3, k=1)] > 2).all()  # nobody reaches two foods from one cell
    assert len(orders) == 3  # levels are permuted between the players
    ends = [env.step([0, 0, 0])[2:4] for _ in range(50)]
    assert ends[-1] == (True, False)
    assert not any(done for done, _ in ends[:-1])
    assert make_foraging_env(max_num_food=1, players=2, min_player_level=1, max_player_level=1).n_agents == 2


# The prey


def test_the_prey_acts_on_what_it_saw_before_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[np.ndarray] = []

    def act(seen: np.ndarray) -> int:
        shown.append(seen.copy())
        return 2

    monkeypatch.setattr(tag, "PREY", {"watching": lambda: act})
    env = TagEnv(prey="watching")
    seen, _ = env.reset(seed=0)
    assert len(seen) == 3
    raw = wrappers(env)[-1]
    for _ in range(5):
        expected = raw.observe("agent_0")
        env.step([0, 0, 0])
        assert shown[-1].tobytes() == expected.tobytes()
    before = env.task.read(env)
    env.task.write(env, before, 5)
    env.step([0, 0, 0])
    assert shown[-1][2:4].tolist() == before[12:14].astype(np.float32).tolist()


def test_a_prey_that_cannot_be_had_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FairTestError, match=r"'wolf'.*fairtest, epymarl, still"):
        TagEnv(prey="wolf")
    with pytest.raises(FairTestError, match="would see 16"):
        TagEnv(num_obstacles=3)
    monkeypatch.setattr("epymarl_fairtest.core.checkout.known_checkout", lambda: None)
    with pytest.raises(FairTestError, match="fairtest install"):
        TagEnv(prey="epymarl")
    monkeypatch.setattr("epymarl_fairtest.core.checkout.known_checkout", lambda: tmp_path)
    with pytest.raises(FairTestError, match="prey_params"):
        TagEnv(prey="epymarl")


@pytest.mark.slow
def test_the_epymarl_prey_acts_as_in_the_checkout(epymarl: Any) -> None:
    ours = TimeLimit(TagEnv(prey="epymarl"), max_episode_steps=25)
    stock = epymarl("simple_tag_v3", {"max_cycles": 100}, "PretrainedTag")
    task = TagTask(ours)
    rng = np.random.default_rng(0)
    for seed in range(20):
        actions = rng.integers(0, 5, (25, 3))
        ours.reset(seed=seed), stock.reset(seed=seed)
        for a, b in zip(play(ours, task, actions, 0), play(stock, task, actions, 0), strict=True):
            assert a[0].tobytes() == b[0].tobytes()
            assert a[1].tobytes() == b[1].tobytes()
            assert a[3:] == b[3:]
    act = tag.PREY["epymarl"]()
    for seen in rng.normal(0, 1.5, (2000, 14)).astype(np.float32):
        assert act(seen) == stock.prey.step(seen)


# Recognising


def test_every_environment_finds_its_task(epymarl: Any) -> None:
    for name, arguments in STOCK.items():
        env = epymarl(*arguments)
        assert task_for(env).name == name.partition(",")[0]
        assert task_for(env).n_agents == len(env.action_space)
    untamed = epymarl("simple_tag_v3", {}, None)
    assert TagTask.recognises(untamed)
    with pytest.raises(FairTestError, match="PretrainedTag"):
        task_for(untamed)
    with pytest.raises(FairTestError, match="RandomTag"):
        task_for(epymarl("simple_tag_v3", {}, "RandomTag"))


def test_our_environments_find_their_task() -> None:
    assert list(TASKS)[:3] == ["spread", "tag", "foraging"]
    assert list(TASKS)[-1] == "generic"
    for name, make in OURS.items():
        task = task_for(make())
        assert task.name == name.split()[0].strip(",")
        assert task.suggested_allocation in task.allocations
        assert "env" in task.allocations
        assert 0 < task.theta < 1
    with pytest.raises(FairTestError, match="simple_tag"):
        TagTask(SpreadEnv())
    with pytest.raises(FairTestError, match="lbforaging"):
        ForagingTask(SpreadEnv())


@pytest.mark.filterwarnings("ignore")
def test_foraging_as_pymarlzooplus_uses_it() -> None:
    host = pytest.importorskip("pymarlzooplus.envs.gym_wrapper")
    old = importlib.import_module("pymarlzooplus.envs.lb_foraging_v2.lbforaging_v2.foraging").ForagingEnv
    settings = {"players": 3, "min_player_level": 1, "max_player_level": 1, "field_size": (8, 8)}
    settings |= {"max_num_food": 2, "min_food_level": 1, "max_food_level": 1, "sight": 8}
    env = host.FlattenObservation(
        host.TimeLimit(old(**settings, max_episode_steps=50, force_coop=False), max_episode_steps=50)
    )
    env.reset(seed=0)
    task = task_for(env)
    assert isinstance(task, ForagingTask)
    state = task.read(env)
    first = env.step([1, 2, 3])
    task.write(env, state, 0)
    second = env.step([1, 2, 3])
    assert [one.tobytes() for one in first[0]] == [one.tobytes() for one in second[0]]
    assert first[1:] == second[1:]
    task.write(env, state, 49)
    assert all(env.step([0, 0, 0])[2])
    assert len(task.observe(env)) == 3


class Chatter(gymnasium.Env[Any, Any]):
    """Any other environment: agents see three numbers, and someone remembers them."""

    def __init__(self, n_agents: int) -> None:
        self.n_agents = n_agents
        self.action_space = Tuple([Discrete(2)] * n_agents)
        self.observation_space = Tuple([Box(-1, 1, (3,))] * n_agents)
        self.last_obs: Any = None

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.last_obs = tuple(self.np_random.uniform(-1, 1, (self.n_agents, 3)).astype(np.float32))
        return self.last_obs, {}


def test_anything_else_is_generic_and_only_watched() -> None:
    env = TimeLimit(Chatter(30), max_episode_steps=5)
    task = task_for(env)
    assert type(task) is GenericTask
    assert task.state_size == 90
    assert not task.restorable
    assert task.read(env).tolist() == [0] * 90
    seen, _ = env.reset(seed=0)
    state = task.read(env)
    assert state.dtype == np.float64
    assert (state.reshape(30, 3) == np.stack(seen)).all()
    assert (task.positions(state) == np.stack(seen)[:, :2]).all()
    states = np.stack([state] * 6).reshape(2, 3, -1)
    cells = task.cells(states, 4)
    assert cells.shape == (2, 3)
    assert cells.min() >= 0
    assert len(np.unique(cells)) == 1
    assert (task.cells(-states, 4) != cells).all()
    assert task.cell_count(4) == 4**60
    perturbed, valid = task.perturb(states[0], np.random.default_rng(0))  # only the exploration can be new
    assert (perturbed == states[0]).all()
    assert valid.all()
    assert resolve_allocation(task, "env")(state, np.ones(30)).tolist() == [1] * 30
    env.unwrapped.__dict__.pop("last_obs")
    forgetful = task_for(env)  # nobody remembers: only whoever stepped it knows
    assert forgetful.state_size == 90
    assert forgetful.read(env).tolist() == [0] * 90
    assert forgetful.state(env, seen).tolist() == state.tolist()


@pytest.mark.parametrize("name", ["spread", "tag", "foraging", "foraging, partial"])
def test_coverage_cells_equal_a_slow_reference(name: str) -> None:
    _, task, states = some_states(OURS[name], 300)
    for bins in (2, 4, 5):
        cells = task.cells(states, bins)
        for state, cell in zip(states, cells, strict=True):
            expected = 0
            for place, value in enumerate(task.positions(state).ravel().tolist()):
                share = (value - task.low) / (task.high - task.low) * bins
                expected += min(max(math.floor(share), 0), bins - 1) * bins**place
            assert cell == expected < task.cell_count(bins)


# Configuration


CONFIGS = [("mpe", 25, "spread"), ("pp", 50, "tag"), ("lbf", 50, "foraging")]


@pytest.mark.parametrize(("name", "limit", "task"), CONFIGS)
def test_environment_configs_hold_what_the_host_expects(name: str, limit: int, task: str) -> None:
    file = Path(__file__).parents[1] / "config" / "envs" / f"fairtest_{name}.yaml"
    config = yaml.safe_load(file.read_text())
    arguments = dict(config["env_args"])
    assert config["env"] == "gymma"
    assert arguments.pop("time_limit") == limit
    assert arguments.pop("pretrained_wrapper") is None
    assert task_for(gymnasium.make(arguments.pop("key"), **arguments)).name == task
    assert config["t_max"] == 2050000
    assert config["test_nepisode"] == 100
    checkout = known_checkout()
    if checkout is not None:
        stock = yaml.safe_load((checkout / "src" / "config" / "envs" / "gymma.yaml").read_text())
        assert set(stock) == set(config)
        assert set(stock["env_args"]) <= set(config["env_args"])


@pytest.mark.slow
def test_lean_foraging_shows_exactly_what_lbforaging_shows() -> None:
    import lbforaging  # noqa: F401

    stock = gymnasium.make(
        "Foraging-8x8-3p-3f-v3", min_player_level=[1, 1, 2], max_player_level=[1, 1, 2], disable_env_checker=True
    )
    ours = gymnasium.make("epymarl_fairtest:lbforaging-v0")
    task = task_for(stock)
    generator = np.random.default_rng(5)
    for seed in range(60):
        (seen, _), (expected, _) = ours.reset(seed=seed), task.reset(stock, seed)
        for _ in range(50):
            assert all((a == b).all() and a.dtype == b.dtype for a, b in zip(seen, expected, strict=True))
            actions = generator.integers(0, 6, 3).tolist()
            seen, reward, done, *_ = ours.step(actions)
            expected, stock_reward, stock_done, *_ = stock.step(actions)
            assert (reward, done) == (stock_reward, stock_done)
            if done:
                break


@pytest.mark.parametrize("key", ["mpe-spread-v0", "mpe-tag-v0"])
def test_contact_forces_are_the_simulators_own_bit_for_bit(key: str) -> None:
    env = gymnasium.make(f"epymarl_fairtest:{key}", disable_env_checker=True)
    env.reset(seed=0)
    world = env.unwrapped._env.world
    generator = np.random.default_rng(9)
    touched = 0
    for scale in (0.05, 0.3, 0.6, 1.0, 3.0):
        for _ in range(200):
            for entity in world.entities:
                entity.state.p_pos = generator.uniform(-scale, scale, 2)
            thrust = generator.choice([-4.0, 0.0, 4.0], (len(world.agents), 2))
            expected = type(world).apply_environment_force(world, [*thrust.copy(), *[None] * len(world.landmarks)])
            ours = world.apply_environment_force([*thrust.copy(), *[None] * len(world.landmarks)])
            for a, b in zip(expected[: len(thrust)], ours[: len(thrust)], strict=True):
                assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
            touched += any((np.asarray(a) != t).any() for a, t in zip(ours, thrust, strict=False))
    assert 100 < touched < 1000, "forces and the lack of them must both be seen"


def test_only_a_world_that_is_drawn_has_something_to_draw_on() -> None:
    key = "epymarl_fairtest:mpe-spread-v0"
    unseen = gymnasium.make(key, disable_env_checker=True)
    unseen.reset(seed=0)
    assert unseen.unwrapped._env.screen is None
    unseen.close()
    drawn = gymnasium.make(key, disable_env_checker=True, render_mode="rgb_array")
    drawn.reset(seed=0)
    picture = np.asarray(drawn.render())
    assert picture.shape == (700, 700, 3)
    assert len(np.unique(picture)) > 2
    drawn.close()
