"""The record of a team that a host saved without FairTest, from the configuration that sacred wrote of its training."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.named_code import refuse_loose_code
from epymarl_fairtest.team.checkpoint import PolicyRecord, reading_of, record_of_training
from epymarl_fairtest.team.saved import make_environment

FILE = "config.json"
LONGEST = 1_000_000  # bytes


def record_of_config(path: Path) -> PolicyRecord:
    """Of the team that was trained with this configuration; its environment is made once, to know the sizes."""
    config = read_config(path)
    env_args = config.get("env_args")
    given = env_args if isinstance(env_args, dict) else {}
    missing = [name for name in ("key", "time_limit") if not given.get(name)]
    if not isinstance(config.get("name"), str) or missing:
        lacking = " and ".join(f"env_args.{name}" for name in missing) or "the algorithm's name"
        raise FairTestError(f"{str(path)!r} does not describe a training on gymma: it lacks {lacking}.")
    sizes = {"time_limit": int(given["time_limit"]), "n_agents": 1, "n_actions": 1, "obs_size": 1}
    record = record_of_training(SimpleNamespace(**config), **sizes)
    reading_of(record, repr(str(path)))
    for name, value in {"key": record.key, **record.env_args}.items():
        refuse_loose_code(f"{name}={value!r}", str(value), path.parent)
    env = make_environment(record)
    spaces = getattr(env.action_space, "spaces", ())
    if not spaces or any(not isinstance(space, gymnasium.spaces.Discrete) for space in spaces):
        raise FairTestError(f"The environment {record.key!r} has the action space {env.action_space}; FairTest needs"
                            " at least two agents with discrete actions each.")  # fmt: skip
    return replace(
        record,
        n_agents=len(spaces),
        n_actions=max(int(space.n) for space in spaces),
        obs_size=max(gymnasium.spaces.flatdim(space) for space in env.observation_space),
    )


def read_config(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > LONGEST:
            raise ValueError(f"it is longer than {LONGEST:,} bytes")
        config = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise FairTestError(f"{str(path)!r} is not a readable configuration of a training: {error}.") from error
    if not isinstance(config, dict):
        raise FairTestError(f"{str(path)!r} is not a configuration: it holds no names and values.")
    return config


def configs_of(models: Path) -> list[Path]:
    """Where the configuration of these models may be: in the folders above (PyMARLzoo+), or among EPyMARL's sacred
    runs, by the name that EPyMARL gives the models' folder."""
    near = [place / FILE for place in (models, models.parent) if (place / FILE).is_file()]
    if near:
        return near[:1]
    results = models.resolve().parent.parent
    return [path for path in sorted(results.glob(f"sacred/*/*/*/{FILE}")) if _names(path, models.resolve().name)]


def _names(path: Path, token: str) -> bool:
    try:
        config: Mapping[str, Any] = read_config(path)
        return token.startswith(f"{config['name']}_seed{config['seed']}_{config['env_args']['key']}_")
    except (FairTestError, KeyError, TypeError):
        return False
