"""A saved team in its own environment, without a training framework: what `fairtest run` tests."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.named_code import refuse_loose_code, refuse_standard_library
from epymarl_fairtest.tasks import task_for
from epymarl_fairtest.tasks.allocation import resolve_allocation
from epymarl_fairtest.tasks.world import World
from epymarl_fairtest.team.checkpoint import PolicyRecord, digest, load_policy, load_record, load_weights, origin_of
from epymarl_fairtest.team.contract import Team
from epymarl_fairtest.team.places import team_places
from epymarl_fairtest.team.sample import FILE as SAMPLE_FILE
from epymarl_fairtest.team.sample import TrainingEpisodes, load_sample, refuse_other_teams


def saved_team(folder: Path, allocation: str, record: PolicyRecord | None = None) -> Team:
    """The team in `folder`, judged on `allocation`; `record`, where no policy.yaml describes it."""
    torch.set_num_threads(1)  # more threads may split a product differently, and collapse on a shared machine
    record = load_record(folder) if record is None else record
    _refuse_code_of(folder, record)
    env = make_environment(record)
    with suppress(Exception):  # some say nothing of themselves before; what is wrong shows when they are tested
        env.reset(seed=0)
    spaces = getattr(env.action_space, "spaces", ())
    if not spaces or any(not isinstance(space, gymnasium.spaces.Discrete) for space in spaces):
        raise FairTestError(
            f"The environment {record.key!r} of {str(folder)!r} has the action space {env.action_space}; FairTest"
            " needs at least two agents with discrete actions each."
        )
    task = task_for(env)
    allocate = resolve_allocation(task, allocation, folder)
    counts = np.array([space.n for space in spaces])
    obs_size = max(gymnasium.spaces.flatdim(space) for space in env.observation_space)
    policy = load_policy(folder, record, obs_size=obs_size, n_agents=task.n_agents, n_actions=int(counts.max()))
    sample = load_sample(folder / SAMPLE_FILE) if (folder / SAMPLE_FILE).is_file() else TrainingEpisodes.none()
    refuse_other_teams(sample, folder / SAMPLE_FILE, task.n_agents, int(counts.max()))
    available = np.arange(counts.max()) < counts[:, None]

    def world() -> World:
        return World(make_environment(record), task, allocate, limit=record.time_limit, obs_size=obs_size)

    return Team(
        task=task,
        policy=policy,
        make_world=world,
        available=available,
        caution=task.admit(world, available),
        limit=record.time_limit,
        environment=env,
        allocation=allocation,
        sample=sample,
        origin={"policy": str(folder)} | origin_of(record, digest(load_weights(folder / "agent.th")), sample),
    )


def _refuse_code_of(folder: Path, record: PolicyRecord) -> None:
    """The environment and what it is made with may name code, but none that came with the policy."""
    refuse_loose_code(f"key={record.key!r}", record.key, folder)
    for name, value in record.env_args.items():
        refuse_loose_code(f"env_args.{name}={value!r}", str(value), folder)


def make_environment(record: PolicyRecord) -> Any:
    refuse_standard_library(f"key={record.key!r}", record.key)
    try:
        return gymnasium.make(record.key, disable_env_checker=True, **record.env_args)
    except Exception as error:
        raise FairTestError(
            f"The environment {record.key!r} with {record.env_args} cannot be made here: {error}. An environment that"
            " only the training framework knows (pz-…, a pretrained_wrapper) is tested inside it:"
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
