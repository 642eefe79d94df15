"""`fairtest calibrate`: the threshold that calls a given share of random executions unfair."""

from __future__ import annotations

import json
from argparse import Namespace
from typing import Any

from epymarl_fairtest.commands.arguments import add_team_arguments, settings_for_team, warn
from epymarl_fairtest.core.numbers import percent

ORDER = 120


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "calibrate",
        help="the threshold that calls a given share of executions unfair",
        epilog="example: fairtest calibrate --policy results/fairtest/RUN/policy --quantile 0.05",
    )
    add_team_arguments(parser)
    parser.add_argument("--quantile", type=float, help="share of the random executions to call unfair (0.05)")
    parser.add_argument("--episodes", type=int, dest="calibration_episodes", default=1000, help="how many (1000)")
    parser.set_defaults(func=calibrate)


def calibrate(args: Namespace) -> int:
    from dataclasses import asdict, replace

    from epymarl_fairtest.campaign import calibration
    from epymarl_fairtest.core.chance import THREE, as_strict
    from epymarl_fairtest.core.indices import INDICES
    from epymarl_fairtest.core.ledger import Ledger
    from epymarl_fairtest.engine.selection import make_engine
    from epymarl_fairtest.team.saved import saved_team

    settings = replace(settings_for_team(args), theta="auto")
    team = saved_team(args.policy, settings.allocation)
    engine = make_engine(team, settings, warn)
    result = calibration.calibrate(team, settings, engine, settings.root_seed(), Ledger())
    agents = team.task.n_agents if settings.agents == "all" else len(settings.agents)
    alike = as_strict(INDICES[settings.index], team.task.theta, agents)
    if args.json:
        also = {"index": settings.index, "quantile": settings.quantile, "agents": agents, "as_strict": alike}
        print(json.dumps({**asdict(result), **also}))
    else:
        print(
            f"theta = {result.theta:.4f}: {percent(result.share)} of {result.defined} random executions have an index"
            f" ({settings.index}) of at most that; in {result.episodes - result.defined} more nobody received anything."
            f" The task's own threshold is {team.task.theta:g}."
        )
        if agents != THREE:
            print(
                f"For {agents} agents {alike:.3f} is as strict as {team.task.theta:g} is for three: of rewards divided"
                " at random both call the same share unfair."
            )
    return 0
