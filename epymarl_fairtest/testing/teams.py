"""Teams that nobody trained, in any environment: random weights, quick to make, the same for the same seed.

They are saved and loaded like trained ones, so that whatever works with them works with a saved team.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium
import torch

from epymarl_fairtest.engine.contract import Engine
from epymarl_fairtest.engine.selection import make_engine
from epymarl_fairtest.strategies import configure
from epymarl_fairtest.team.checkpoint import PolicyRecord, expected_shapes, save_policy
from epymarl_fairtest.team.contract import Team
from epymarl_fairtest.team.saved import saved_team

TIME_LIMIT = 8  # steps: enough to breed from, few enough for hundreds of episodes a second
SCALE = 0.7  # of the weights: large enough that agents do different things in different places


def random_team(
    key: str,
    *,
    time_limit: int = TIME_LIMIT,
    recurrent: bool = False,
    seed: int = 0,
    allocation: str = "env",
    env_args: Mapping[str, Any] | None = None,
) -> Team:
    """A team in the environment with this gymnasium id, for example `epymarl_fairtest:mpe-spread-v0`."""
    with tempfile.TemporaryDirectory(prefix="fairtest-team-") as folder:
        saved = save_random_team(
            Path(folder), key, time_limit=time_limit, recurrent=recurrent, seed=seed, env_args=env_args
        )
        return saved_team(saved, allocation)


def save_random_team(
    folder: Path,
    key: str,
    *,
    time_limit: int = TIME_LIMIT,
    recurrent: bool = False,
    seed: int = 0,
    env_args: Mapping[str, Any] | None = None,
) -> Path:
    """The same as a policy folder, agent.th and policy.yaml: what `fairtest run --policy` takes."""
    record = random_record(key, time_limit=time_limit, recurrent=recurrent, env_args=env_args)
    save_policy(folder, record, random_weights(record, seed))
    return folder


def engine_of(team: Team, name: str = "lockstep", **given: Any) -> Engine:
    """The engine of that name (the setting `engine`) for a team; other settings may be given."""
    chosen = {"method": "random", "epsilon": 0.3, "workers": 1, **given, "engine": name}
    return make_engine(team, configure(chosen), lambda message: None)


def random_record(
    key: str, *, time_limit: int = TIME_LIMIT, recurrent: bool = False, env_args: Mapping[str, Any] | None = None
) -> PolicyRecord:
    """What policy.yaml says of such a team: sizes as the environment has them."""
    env: Any = gymnasium.make(key, disable_env_checker=True, **(env_args or {}))
    return PolicyRecord(
        algorithm="random",
        agent_output_type="q",
        key=key,
        time_limit=time_limit,
        n_agents=len(env.action_space),
        n_actions=max(int(space.n) for space in env.action_space),
        obs_size=max(gymnasium.spaces.flatdim(space) for space in env.observation_space),
        hidden_dim=16,
        use_rnn=recurrent,
        obs_last_action=recurrent,
        obs_agent_id=True,
        env_args=dict(env_args or {}),
    )


def random_weights(record: PolicyRecord, seed: int = 0) -> dict[str, torch.Tensor]:
    """Weights of the network that `record` describes, shared by all agents."""
    generator = torch.Generator().manual_seed(seed)
    shapes = expected_shapes(record, separate=False)
    return {name: torch.randn(shape, generator=generator) * SCALE for name, shape in shapes.items()}
