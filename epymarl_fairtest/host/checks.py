"""What can be refused before a host trains: algorithms, environments and folders that FairTest cannot work with."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import gymnasium

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.shipped import environments
from epymarl_fairtest.team.checkpoint import OUTPUTS


def either(*names: str) -> str:
    return ", ".join(names[:-1]) + f" or {names[-1]}"


def check_algorithm(args: Any) -> str:
    """How the scores of the team that these arguments train are read."""
    said = getattr(args, "agent_output_type", None)
    if said not in OUTPUTS:
        raise FairTestError(
            f"The agents of the algorithm {args.name!r} give agent_output_type={said!r}; FairTest tests teams whose"
            f" agents give Q-values or a policy's logits (agent_output_type {either(*OUTPUTS)}), such as those of qmix,"
            " vdn, iql, mappo, ippo, maa2c, ia2c, coma and maddpg."
        )
    return OUTPUTS[str(said)]


def check_environment(args: Any) -> None:
    if args.env != "gymma":
        raise FairTestError(
            f"FairTest tests environments of --env-config=gymma; this run uses env={args.env!r}, whose wrapper"
            f" hides the rewards of the single agents. Choose {either('gymma', *environments())}."
        )
    for name, example in (("key", "lbforaging:Foraging-8x8-3p-3f-v3"), ("time_limit", "50")):
        if not args.env_args.get(name):
            raise FairTestError(
                f"env_args.{name} is missing: no environment can be made without it. Give it after `with`, for"
                f" example env_args.{name}={example}, or choose --env-config={either(*environments())}."
            )


def check_out(out: Path) -> None:
    """Nobody wants to learn after two hours that the results cannot be written."""
    if out.exists():
        raise FairTestError(
            f"The run folder {str(out)!r} already exists, and a run is never overwritten."
            " Choose another fairtest_args.out or move it away."
        )
    parent = out.resolve().parent
    while not parent.exists():
        parent = parent.parent
    if not (parent.is_dir() and os.access(parent, os.W_OK)):
        raise FairTestError(
            f"FairTest cannot write to {str(parent)!r}, where the run folder {str(out)!r} would go."
            " Choose another fairtest_args.out or change the permissions."
        )


def odd_spaces(key: Any) -> FairTestError | None:
    """Why the hosts' wrapper, which fails obscurely, does not take an environment; None: that is the host's to say."""
    try:
        space = gymnasium.make(key).action_space
    except Exception:
        return None
    agents = getattr(space, "spaces", None)
    if agents is None:
        return FairTestError(
            f"The environment {key!r} has a single agent (action space {space}): there is nobody to share"
            " with. FairTest needs a multi-agent environment with one action space per agent."
        )
    if any(not isinstance(agent, gymnasium.spaces.Discrete) for agent in agents):
        return FairTestError(
            f"The environment {key!r} has continuous actions ({agents[0]}); the hosts' algorithms, and so FairTest,"
            " need discrete ones. Choose the environment's discrete variant."
        )
    return None
