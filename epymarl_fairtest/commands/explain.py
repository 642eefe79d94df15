"""`fairtest explain`: why failures of a finished run happened, or why a team is unfair from one start."""

from __future__ import annotations

import json
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from epymarl_fairtest.commands.arguments import add_setting_arguments, settings_for_team, warn
from epymarl_fairtest.core.errors import FairTestError

if TYPE_CHECKING:
    from epymarl_fairtest.team.contract import Team

ORDER = 75
TRIES = 64  # executions of one start, of which the most unfair is explained
MOST_SHOWN = 10  # failures that are described, where the user names none


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "explain",
        help="why failures happened: cause, decision, situation",
        epilog="examples: fairtest explain runs/1 4711; fairtest explain --policy policies/mpe-qmix --seed 7",
    )
    parser.add_argument("run", nargs="?", type=Path, metavar="RUN", help="folder of a finished run")
    parser.add_argument(
        "ids", nargs="*", type=int, metavar="ID",
        help="failures: column id of failures.csv; without any, different ones, and RUN/explain.json is written",
    )  # fmt: skip
    parser.add_argument("--policy", type=Path, metavar="DIR", help="the team; without RUN, explain its start --seed")
    add_setting_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.set_defaults(func=explain)


def explain(args: Namespace) -> int:
    if args.run is not None:
        if args.seed is not None or args.preset is not None:
            raise FairTestError("A run is explained with its own seed and settings; leave --seed and --preset out.")
        return _of_run(args)
    if args.policy is None or args.seed is None:
        raise FairTestError("fairtest explain needs a RUN, or --policy DIR and --seed S for one start of a team.")
    return _of_start(args)


# --- a finished run -----------------------------------------------------------------------------------


def _of_run(args: Namespace) -> int:
    from epymarl_fairtest.api.explaining import explain_run
    from epymarl_fairtest.settings import parse_assignments
    from epymarl_fairtest.store.added import add_files
    from epymarl_fairtest.store.finished import read_run

    run = read_run(args.run, "failures.npz")
    given = parse_assignments(args.set, {})
    if set(given) - {"explain", "engine", "workers"}:
        raise FairTestError("With a RUN, --set takes explain, engine and workers: everything else is the run's own.")
    outcome, team = explain_run(run, args.ids, warn, policy=args.policy, given=given)
    if not args.ids:
        add_files(args.run, outcome.files, outcome.documents)
        _redrawn(args.run, team)
    _say(outcome.documents["explain.json"], as_json=args.json, most=len(args.ids) or MOST_SHOWN)
    return 0


def _redrawn(run: Path, team: Team) -> None:
    """The page says it, too, where there is one."""
    if (run / "report" / "index.html").is_file():
        from epymarl_fairtest.report.page import make_report

        make_report(run, team.task)


# --- one start ----------------------------------------------------------------------------------------


def _of_start(args: Namespace) -> int:
    from epymarl_fairtest.api.explaining import aftermath
    from epymarl_fairtest.campaign.calibration import given_theta
    from epymarl_fairtest.campaign.steps.contract import Execute, taken
    from epymarl_fairtest.campaign.steps.explain import explanations
    from epymarl_fairtest.core import rng
    from epymarl_fairtest.core.episodes import tests_from_seeds
    from epymarl_fairtest.core.indices import INDICES
    from epymarl_fairtest.core.judged import Judge
    from epymarl_fairtest.team.saved import saved_team

    if args.seed < 0 or args.seed >= 2**31:
        raise FairTestError(f"--seed {args.seed} is no start: a start is the reset of a seed from 0 to 2^31 - 1.")
    settings = settings_for_team(args)
    if settings.theta == "auto":
        raise FairTestError("--set theta=auto needs random executions; give a number, or leave it out.")
    team = saved_team(args.policy, settings.allocation)
    judge = Judge(INDICES[settings.index], given_theta(settings, team.task), settings.agents)
    streams = rng.named(0, "explain", "start", args.seed).integers(0, 2**64, TRIES, dtype=np.uint64)
    tests = tests_from_seeds(np.full(TRIES, args.seed), streams, team.task.state_size)
    _, execute = aftermath(team, settings, judge, 0, None, {}, warn)
    judged = judge(execute(Execute(tests)))
    if not judged.unfair.any():
        nothing = {"explained": 0, "seed": args.seed, "unfair": 0, "executions": TRIES}
        print(json.dumps(nothing) if args.json else f"Seed {args.seed}: none of {TRIES} executions is unfair.")
        return 0
    worst = int(np.nanargmin(np.where(judged.unfair, judged.index, np.nan)))
    failure = judged.episodes.take([worst])
    failure = replace(failure, id=np.zeros(1, np.int64), obs=failure.obs[..., :0])
    context, _ = aftermath(team, settings, judge, 0, failure, {}, warn)
    outcome = taken(
        explanations(replace(context, settings=replace(settings, explain=1)), np.arange(1), common=False), execute
    )
    if not args.json:
        print(f"Seed {args.seed}: {int(judged.unfair.sum())} of {TRIES} executions are unfair. The most unfair one:")
    _say(outcome.documents["explain.json"], as_json=args.json, most=1)
    return 0


# --- both ---------------------------------------------------------------------------------------------


def _say(explanation: Any, *, as_json: bool, most: int) -> None:
    from epymarl_fairtest.campaign.steps.explain import words

    if as_json:
        print(json.dumps(explanation))
        return
    lines: list[str] = []
    for entry in explanation["failures"][:most]:
        lines += words.paragraphs(entry)
    rows = words.summary_rows(
        {**explanation, "situation": explanation["situations"][0] if explanation["situations"] else None}
    )
    if len(explanation["failures"]) > most:
        lines += [f"{name.strip()}: {text}" for name, text in rows]
    lines += words.notes(explanation)
    print("\n".join(lines))
