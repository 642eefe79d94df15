"""What the tests share: small teams in real environments, and how to start a `fairtest` of one's own."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from dataclasses import fields
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

import epymarl_fairtest  # noqa: F401  (registers the environments)
from epymarl_fairtest.core.episodes import Episodes, random_tests
from epymarl_fairtest.engine.contract import ActionRule
from epymarl_fairtest.engine.lockstep import Lockstep
from epymarl_fairtest.host.build import build_training, configuration
from epymarl_fairtest.host.hosts import Host
from epymarl_fairtest.settings import schema
from epymarl_fairtest.strategies.scout.options import ScoutOptions
from epymarl_fairtest.tasks import task_for
from epymarl_fairtest.tasks.allocation import resolve_allocation
from epymarl_fairtest.tasks.world import World
from epymarl_fairtest.team.checkpoint import PolicyRecord, expected_shapes, rebuild, save_policy
from epymarl_fairtest.team.policy import NetworkPolicy
from epymarl_fairtest.team.sample import TrainingEpisodes, joined

TESTS = Path(__file__).resolve().parent

# --- tiers ---------------------------------------------------------------------------------------------


def few_and_many(name: str, few: int, many: int) -> pytest.MarkDecorator:
    """An amount: few for every change, many in the slow tier."""
    return pytest.mark.parametrize(name, [few, pytest.param(many, marks=pytest.mark.slow)])


# Tag is spread with other rewards and a prey: what holds in spread and foraging holds in it too, and is seen later.
most_tasks = pytest.mark.parametrize("task", ["spread", "foraging", pytest.param("tag", marks=pytest.mark.slow)])

# What a run does often to be certain, and how often is enough to see that it does it:
LOOKS_LITTLE = partial(ScoutOptions, rounds=6, least_looks=200)
REPEATED = (
    ("predictor.forest", "TREES", 12),
    ("engine.twin", "PROOF", 2),
    ("campaign.steps.natural", "UNLESS_GIVEN", 20),
    ("campaign.steps.natural", "WITH_TWIN", 20),
    ("campaign.selection", "EACH", 2),
    ("strategies.fairtest.candidates", "ScoutOptions", LOOKS_LITTLE),
    ("strategies.fairtest.screen", "ScoutOptions", LOOKS_LITTLE),
)
DEFAULTS = {"replay": 10, "explain": 0, "random_team": 10}


def in_small() -> list[tuple[Any, str, Any]]:
    """Runs of this process repeat less, unless a test says how often; gives what was there before."""
    read = schema._read
    before: list[tuple[Any, str, Any]] = [(schema, "_read", read)]
    schema._read = lambda path: read(path) | (DEFAULTS if path.name == "fairtest.yaml" else {})
    for path, name, few in REPEATED:
        module = import_module(f"epymarl_fairtest.{path}")
        before.append((module, name, getattr(module, name)))
        setattr(module, name, few)
    return before


def every_method() -> list[Any]:
    """The names of all strategies; one whose library is not installed here is skipped."""
    from epymarl_fairtest.strategies import STRATEGIES

    lacking = {name: " ".join(strategy.missing) for name, strategy in STRATEGIES.items()}
    return [
        pytest.param(name, marks=pytest.mark.skipif(bool(missing), reason=f"{missing} is not installed"))
        for name, missing in lacking.items()
    ]


# --- processes ---------------------------------------------------------------------------------------

FAIRTEST = [sys.executable, "-m", "epymarl_fairtest"]


def child_environment(private: Path, *modules: Path, **more: str) -> dict[str, str]:
    """This environment without the user's checkout; wide lines, because PyMARLzoo+ folds them."""
    kept = {name: value for name, value in os.environ.items() if name not in ("EPYMARL_HOME", "XDG_CONFIG_HOME")}
    path = os.pathsep.join([*map(str, modules), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**kept, "XDG_CONFIG_HOME": str(private / "config"), "COLUMNS": "1000", "PYTHONPATH": path, **more}


# --- small teams in real environments -----------------------------------------------------------------

KEYS = {"spread": "mpe-spread-v0", "tag": "mpe-tag-v0", "foraging": "lbforaging-v0"}
LIMITS = {"spread": 25, "tag": 25, "foraging": 30}  # of episodes: shorter than in the configurations, and long enough
AGENTS = ("mlp", "gru")


@cache
def environment(task: str) -> Any:
    return gymnasium.make(f"epymarl_fairtest:{KEYS[task]}", disable_env_checker=True)


def record_of(task: str, agent: str, **changes: Any) -> PolicyRecord:
    env = environment(task)
    values: dict[str, Any] = {
        "algorithm": "iql",
        "key": f"epymarl_fairtest:{KEYS[task]}",
        "time_limit": LIMITS[task],
        "n_agents": len(env.action_space.spaces),
        "n_actions": int(env.action_space.spaces[0].n),
        "obs_size": max(space.shape[0] for space in env.observation_space),
        "hidden_dim": 16,
        "use_rnn": agent == "gru",
        "obs_last_action": agent == "gru",
        "obs_agent_id": True,
    }
    return PolicyRecord(**{**values, **changes})


def random_weights(record: PolicyRecord, seed: int = 0, *, separate: bool = False) -> dict[str, torch.Tensor]:
    """Large enough that agents with these weights do different things in different places."""
    generator = torch.Generator().manual_seed(seed)
    shapes = expected_shapes(record, separate=separate)
    return {name: torch.randn(shape, generator=generator) * 0.7 for name, shape in shapes.items()}


def random_policy(record: PolicyRecord, seed: int = 0) -> NetworkPolicy:
    return rebuild(random_weights(record, seed), record)


def training_sample() -> TrainingEpisodes:
    """Forty training episodes of three agents; in every other one the third receives more."""
    generator = np.random.default_rng(0)
    return joined(
        {
            i + 1: (
                generator.normal(size=(8, 3, 5)).astype(np.float32),
                -generator.random((8, 3)) * [1, 1, 3 if i % 2 else 1],
            )
            for i in range(40)
        }
    )


def policy_folder(folder: Path, task: str = "spread", agent: str = "mlp", **changes: Any) -> Path:
    """A saved team with random weights."""
    record = record_of(task, agent, **changes)
    save_policy(folder, record, random_weights(record))
    return folder


def host_models(results: Path, algorithm: str = "iql") -> Path:
    """Three teams as a host saves them with `save_model=True`: no policy.yaml, the training's configuration in sacred's
    run, and a folder that is none of them."""
    record = record_of("spread", "mlp")
    models = results / "models" / f"{algorithm}_seed1_{record.key}_2026-01-01 00:00:00.000000"
    for seed, step in ((2, 25), (0, 5000), (1, 10025)):  # the final one is the least fair
        save_policy(models / str(step), record, random_weights(record, seed))
        (models / str(step) / "policy.yaml").unlink()
    (models / "notes").mkdir()
    config = {
        "name": algorithm, "seed": 1, "env_args": {"key": record.key, "time_limit": 25, "pretrained_wrapper": None},
        "hidden_dim": 16, "use_rnn": False, "obs_last_action": False, "obs_agent_id": True, "agent_output_type": "q",
    }  # fmt: skip
    sacred = results / "sacred" / algorithm / record.key / "1"
    sacred.mkdir(parents=True)
    (sacred / "config.json").write_text(json.dumps(config))
    return models


# --- a host's controller beside ours -------------------------------------------------------------------


def training_of(host: Host, algorithm: str, scale: float, **changes: Any) -> Any:
    """A training in tag that has not begun; the weights of its agents are random, of this size."""
    torch.manual_seed(1)
    training = build_training(host, configuration(host, algorithm, "fairtest_pp", changes))
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for value in training.mac.agent.state_dict().values():
            value.copy_(torch.randn(value.shape, generator=generator) * scale)
    return training


def hosts_answers(training: Any, obs: Any, actions: Any) -> torch.Tensor:
    """The host's own way, one episode at a time, its controller step by step: obs and actions (rows, steps, agents, …)
    to (rows, steps, agents, actions)."""
    rows, steps, agents = actions.shape
    out = torch.empty((rows, steps, agents, training.args.n_actions))
    for row in range(rows):
        batch = training.runner.new_batch()
        training.mac.init_hidden(batch_size=1)
        for t in range(steps):
            batch.update({"obs": [obs[row, t]], "avail_actions": [np.ones(out.shape[2:])]}, ts=t)
            with torch.no_grad():
                out[row, t] = training.mac.forward(batch, t)[0]
            batch.update({"actions": torch.from_numpy(actions[row, t].astype(np.int64))[None]}, ts=t)
    return out


def our_answers(policy: Any, obs: Any, actions: Any) -> tuple[np.ndarray, np.ndarray]:
    """The same of a policy of ours, and what its agents remember in the end."""
    hidden = np.zeros((len(obs), policy.n_agents, policy.hidden_size), np.float32)
    last, out = np.full((len(obs), policy.n_agents), -1, np.int16), []
    for t in range(obs.shape[1]):
        scores, hidden = policy.forward(obs[:, t], last, hidden)
        out.append(scores)
        last = actions[:, t]
    return np.stack(out, axis=1), hidden


def lean_copy(team: Path, folder: Path, episodes: int = 60) -> Path:
    """A trained team with the last episodes of its training sample alone: a predictor learns from them in no time."""
    shutil.copytree(team, folder)
    with np.load(folder / "training_pool.npz") as file:
        kept = {name: file[name] for name in file.files}
    steps = int(kept["length"][-episodes:].sum())
    for name, last in {"position": episodes, "length": episodes, "q": steps, "rewards": steps}.items():
        kept[name] = kept[name][-last:]
    np.savez(folder / "training_pool.npz", **kept)  # type: ignore[arg-type]
    return folder


def engine_of(
    task: str, agent: str = "mlp", *, kind: str = "epsilon_greedy", epsilon: float = 0.3, policy: Any = None
) -> Lockstep:
    """A fresh engine on bare environments; random weights unless a policy is given."""
    record = record_of(task, agent)
    known = task_for(environment(task))
    allocate = resolve_allocation(known, "env")
    how = ActionRule(kind, epsilon, 1.0, np.ones((record.n_agents, record.n_actions), bool))
    return Lockstep(
        lambda: World(
            gymnasium.make(record.key, disable_env_checker=True),
            known,
            allocate,
            limit=record.time_limit,
            obs_size=record.obs_size,
        ),
        policy or random_policy(record),
        how,
        limit=record.time_limit,
        state_size=known.state_size,
    )


def compile_twins() -> None:
    """Once, for all processes that would otherwise each compile them at the same time in a fresh clone."""
    from epymarl_fairtest.testing import engine_of, random_team

    for key in KEYS.values():
        team = random_team(f"epymarl_fairtest:{key}")
        engine_of(team, "twin").execute(random_tests(2, team.task.state_size, np.random.default_rng(0)))


def some_tests(task: str, count: int, seed: int = 5) -> Any:
    return random_tests(count, task_for(environment(task)).state_size, np.random.default_rng(seed))


def arrays(value: Any) -> dict[str, np.ndarray]:
    return {f.name: getattr(value, f.name) for f in fields(value)}


def assert_identical(a: Episodes, b: Episodes) -> None:
    """Every array, byte for byte."""
    for name, left in arrays(a).items():
        right = getattr(b, name)
        assert left.dtype == right.dtype, name
        assert left.shape == right.shape, name
        assert left.tobytes() == right.tobytes(), f"{name} differs in rows {differing(left, right)}"


def differing(a: np.ndarray, b: np.ndarray) -> list[int]:
    return [row for row in range(len(a)) if a[row].tobytes() != b[row].tobytes()][:10]


def digest_of(episodes: Episodes) -> str:
    sha = hashlib.sha256()
    for name, value in sorted(arrays(episodes).items()):
        sha.update(f"{name} {value.dtype} {value.shape}".encode())
        sha.update(np.ascontiguousarray(value).tobytes())
    return sha.hexdigest()


def print_digests() -> None:
    """What a fresh process makes of the same tests, one line per task and kind of agent."""
    torch.set_num_threads(1)
    for task in KEYS:
        for agent in AGENTS:
            print(task, agent, digest_of(engine_of(task, agent).execute(some_tests(task, 7))))
