"""A saved team in its own environment, without a training framework: what `fairtest run` tests."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.named_code import refuse_loose_code, refuse_standard_library
from epymarl_fairtest.tasks import task_for
from epymarl_fairtest.tasks.allocation import resolve_allocation
from epymarl_fairtest.tasks.layers import flattened
from epymarl_fairtest.tasks.world import World
from epymarl_fairtest.team.checkpoint import PolicyRecord, digest, load_policy, load_record, origin_of
from epymarl_fairtest.team.contract import CHUNK, Policy, Team
from epymarl_fairtest.team.places import team_places
from epymarl_fairtest.team.sample import FILE as SAMPLE_FILE
from epymarl_fairtest.team.sample import TrainingEpisodes, load_sample, refuse_other_teams
from epymarl_fairtest.team.weights import read_weights


def saved_team(folder: Path, allocation: str, record: PolicyRecord | None = None) -> Team:
    """The team in `folder`, judged on `allocation`; `record`, where no policy.yaml describes it."""
    record = load_record(folder) if record is None else record
    _refuse_code_of(folder, record)
    place = Place(record.key, record.env_args, record.time_limit)
    task, sizes = place.task, place.sizes
    policy = load_policy(folder, record, **sizes)
    if policy.needs_torch:
        import torch

        torch.set_num_threads(1)  # more threads may split a product differently, and collapse on a shared machine
    sample = load_sample(folder / SAMPLE_FILE) if (folder / SAMPLE_FILE).is_file() else TrainingEpisodes.none()
    refuse_other_teams(sample, folder / SAMPLE_FILE, task.n_agents, sizes["n_actions"])
    origin = {"policy": str(folder)} | origin_of(record, digest(read_weights(folder / "agent.th")), sample)
    return place.team(policy, allocation, resolve_allocation(task, allocation, folder), sample=sample, origin=origin)


def live_team(
    policy: Policy, key: str, time_limit: int, env_args: Mapping[str, Any] | None = None, allocation: str = "env"
) -> Team:
    """A policy that is in memory, in the environment with this gymnasium id."""
    place = Place(key, env_args or {}, time_limit)
    unlike = [
        f"{name}: the policy has {getattr(policy, name)}, the environment {size}"
        for name, size in place.sizes.items()
        if getattr(policy, name) != size
    ]
    if unlike:
        raise FairTestError(f"The policy does not fit the environment {key!r}: {'; '.join(unlike)}.")
    origin = {"key": key, "policy_digest": _behaviour(policy)}
    return place.team(policy, allocation, resolve_allocation(place.task, allocation, Path()), origin=origin)


def _behaviour(policy: Policy) -> str:
    """A policy in memory is known by what it answers."""
    obs = np.random.default_rng(0).normal(size=(CHUNK, policy.n_agents, policy.obs_size)).astype(np.float32)
    last = np.full((CHUNK, policy.n_agents), -1, np.int16)
    hidden = np.zeros((CHUNK, policy.n_agents, policy.hidden_size), np.float32)
    return hashlib.sha256(policy.forward(obs, last, hidden)[0].tobytes()).hexdigest()


class Place:
    """An environment that teams play in: what its task is, and how large everything is."""

    def __init__(self, key: str, env_args: Mapping[str, Any], limit: int) -> None:
        self.key, self.env_args, self.limit = key, env_args, limit
        self.env = _made(key, env_args)
        with suppress(Exception):  # some say nothing of themselves before; what is wrong shows when they are tested
            self.env.reset(seed=0)
        spaces = getattr(self.env.action_space, "spaces", ())
        if not spaces or any(not isinstance(space, gymnasium.spaces.Discrete) for space in spaces):
            raise FairTestError(
                f"The environment {key!r} has the action space {self.env.action_space}; FairTest needs at least two"
                " agents with discrete actions each."
            )
        self.task = task_for(self.env)
        counts = np.array([space.n for space in spaces])
        self.available = np.arange(counts.max()) < counts[:, None]
        obs_size = max(gymnasium.spaces.flatdim(space) for space in self.env.observation_space)
        self.sizes = {"obs_size": obs_size, "n_agents": self.task.n_agents, "n_actions": int(counts.max())}

    def team(self, policy: Policy, allocation: str, allocate: Any, **more: Any) -> Team:
        """The team of this policy, paid by `allocate`."""

        def make_world() -> World:
            env = _made(self.key, self.env_args)
            return World(env, self.task, allocate, limit=self.limit, obs_size=self.sizes["obs_size"])

        return Team(
            task=self.task,
            policy=policy,
            make_world=make_world,
            available=self.available,
            caution=self.task.admit(make_world, self.available),
            limit=self.limit,
            environment=self.env,
            allocation=allocation,
            **more,
        )


def _refuse_code_of(folder: Path, record: PolicyRecord) -> None:
    """The environment and what it is made with may name code, but none that came with the policy."""
    refuse_loose_code(f"key={record.key!r}", record.key, folder)
    for name, value in record.env_args.items():
        refuse_loose_code(f"env_args.{name}={value!r}", str(value), folder)


def make_environment(record: PolicyRecord) -> Any:
    return _made(record.key, record.env_args)


def _made(key: str, env_args: Mapping[str, Any]) -> Any:
    refuse_standard_library(f"key={key!r}", key)
    try:
        return flattened(gymnasium.make(key, disable_env_checker=True, **env_args))
    except Exception as error:
        raise FairTestError(
            f"The environment {key!r} with {dict(env_args)} cannot be made here: {str(error).rstrip('.')}. An"
            " environment that only the training framework knows (pz-…, a pretrained_wrapper) is tested inside it:"
            " fairtest launch -- src/main.py … with fairtest=True evaluate=True checkpoint_path=…"
        ) from error


def team_folder(run: Path, manifest: Mapping[str, Any], given: Path | None = None) -> Path:
    """Where the team of a run is: given, beside the run's files, or where it was when it was tested."""
    places = [given] if given is not None else team_places(run, manifest)
    folder = next((place for place in places if (place / "agent.th").is_file()), None)
    if folder is None:
        raise FairTestError(
            f"The team of {str(run)!r} is not in {' or '.join(repr(str(place)) for place in places)}; give its folder"
            " with --policy."
        )
    return folder
