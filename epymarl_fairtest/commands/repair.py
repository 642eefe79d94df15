"""`fairtest repair`: train the team on so that it shares more fairly, beside a control, and say what that was worth.

Exit code 0: repaired. 3: levelled down (the rate falls, the worst-off agent gains nothing). 1: not repaired.
"""

from __future__ import annotations

import json
import math
import shlex
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epymarl_fairtest.commands.arguments import (
    add_search_arguments,
    add_team_arguments,
    command_line,
    given_settings,
    observers,
    settings_for_team,
    warn,
)
from epymarl_fairtest.commands.study import check_place, cores, seeds_of
from epymarl_fairtest.core.errors import FairTestError

if TYPE_CHECKING:
    from epymarl_fairtest.repair.plan import Plan
    from epymarl_fairtest.settings import Settings
    from epymarl_fairtest.team.contract import Team

ORDER = 107
STEPS, SHARE, EXECUTIONS, VALIDATION = 300_000, 0.3, 20_000, 5_000
EXIT = {"repaired": 0, "levelled down": 3, "not repaired": 1}
SEARCHED = ("method", "budget", "seed", "theta", "index")  # settings of the search before
TRIED = 8  # executions that estimate the time of an environment without a twin


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "repair",
        help="train a team on so that it shares more fairly, beside a control",
        epilog="example: fairtest repair RUN --out repaired --steps 300000 --seeds 3",
    )
    parser.add_argument("run", type=Path, nargs="?", metavar="RUN", help="finished run whose failures are to go")
    add_team_arguments(parser, required=False)
    add_search_arguments(parser)
    parser.add_argument(
        "--out", dest="folder", type=Path, required=True, metavar="DIR", help="of the repair; continued"
    )
    parser.add_argument("--steps", type=int, default=STEPS, help=f"of training, per arm ({STEPS})")
    parser.add_argument("--welfare", choices=("gini", "jain", "min"), help="what is paid for (measured and explained)")
    parser.add_argument(
        "--weight", type=float, action="append", help="of the welfare; several are tried (the welfare's)"
    )
    parser.add_argument("--share", type=float, default=SHARE, help=f"of the episodes from failing starts ({SHARE})")
    parser.add_argument("--max-loss", type=float, default=0.02, metavar="SHARE", help="of the return before (0.02)")
    parser.add_argument("--seeds", default="3", help="how many, from 0 (3), or which ones: 3,5,7")
    parser.add_argument("--executions", type=int, default=EXECUTIONS, help=f"fresh ones, to judge by ({EXECUTIONS})")
    parser.add_argument("--backend", choices=("processes", "dask", "ray"), default="processes", help="(processes)")
    parser.add_argument("--address", help="of the cluster, e.g. tcp://HOST:8786 (dask) or HOST:6379 (ray)")
    parser.add_argument("--jobs", type=int, help="trainings at a time on this machine (its cores)")
    parser.add_argument("--timeout", type=float, default=20.0, help="seconds to wait for the cluster (20)")
    parser.set_defaults(func=repair)


def repair(args: Namespace) -> int:
    from epymarl_fairtest.host.trainer import HostTrainer
    from epymarl_fairtest.repair.loop import Repair
    from epymarl_fairtest.repair.plan import open_folder, refuse_strange_folder
    from epymarl_fairtest.repair.words import text_of

    check_numbers(args)
    refuse_strange_folder(args.folder)
    trainer = HostTrainer()
    try:
        policy, run, settings = _team_and_run(args, trainer)
        plan, welfare = _plan(args, policy, run, settings)
        open_folder(plan)
        document = Repair(plan, trainer, _fan(args, plan)).run()
    except KeyboardInterrupt as stop:
        again = "fairtest " + shlex.join(sys.argv[1:])
        warn(f"stopped; what is finished is kept in {str(args.folder)!r}, and the same command continues: {again}")
        return 128 + int(getattr(stop, "number", 2))
    document |= {"welfare": welfare, "command": command_line(), "host": trainer.check(policy)["host"]}
    files = _write(plan, document)
    print(json.dumps(document) if args.json else "\n".join([text_of(document), "", *map(str, files)]))
    return EXIT[document["verdict"]]


def check_numbers(args: Namespace) -> None:
    from epymarl_fairtest.repair.regressions import STREAMS
    from epymarl_fairtest.repair.welfare import WELFARES, check_weight

    check_place(args)
    seeds_of(args.seeds)
    for name, value in (("--share", args.share), ("--max-loss", args.max_loss)):
        if not (math.isfinite(value) and 0 <= value <= 1):
            raise FairTestError(f"{name} {value:g} is not allowed; it must be a share from 0 to 1.")
    counts = (("--steps", args.steps, 1, 10**10), ("--executions", args.executions, STREAMS, 10**7))
    for name, value, least, most in counts:
        if not least <= value <= most:
            raise FairTestError(f"{name} {value} is not allowed; it must be a whole number from {least} to {most:,}.")
    for weight in args.weight or ():
        if args.welfare:
            check_weight(args.welfare, weight)
        elif not 0 < weight <= max(welfare.most for welfare in WELFARES.values()):
            raise FairTestError(f"--weight {weight:g} is not allowed; it must be above 0.")
    if (args.run is None) == (args.policy is None):
        raise FairTestError("fairtest repair needs either a finished RUN or --policy DIR, which is searched first.")
    given = set(given_settings(args))
    if args.run is not None and given:
        raise FairTestError(f"{', '.join(sorted(given))}: a RUN is repaired with its own settings. Leave it out, or"
                            " give --policy instead of the run.")  # fmt: skip


# --- what is repaired ---------------------------------------------------------------------------------


def _team_and_run(args: Namespace, trainer: Any) -> tuple[Path, Path, Settings]:
    """The team, a finished run of it, and the run's settings with its threshold; --policy is searched now."""
    from epymarl_fairtest.store.finished import read_run
    from epymarl_fairtest.strategies import configure
    from epymarl_fairtest.team.saved import team_folder

    if args.run is not None:
        found = read_run(args.run, "failures.npz")
        policy = team_folder(args.run, found.manifest)
        run, settings = args.run, configure(found.settings)
        _check(trainer, policy, settings)
        _refuse_other_weights(policy, run, found.manifest)
    else:
        policy, settings = args.policy, replace(settings_for_team(args), out=None)
        _check(trainer, policy, settings)
        run = args.folder / "search" / "before"
        _search_first(policy, settings, run)
        found = read_run(run, "failures.npz")
        _refuse_other_weights(policy, run, found.manifest)
        unlike = [name for name in SEARCHED if getattr(settings, name) != found.settings.get(name)]
        if unlike:
            raise FairTestError(f"{str(run)!r} was searched with another {' and '.join(unlike)}. Choose another --out.")
        settings = configure(found.settings)  # as the run understood them
    seed = int(found.manifest["seed"])
    return policy.resolve(), run.resolve(), replace(settings, theta=found.theta, seed=seed, progress=False)


def _check(trainer: Any, policy: Path, settings: Settings) -> None:
    trainer.check(policy)
    if settings.allocation != "env":
        raise FairTestError(
            f"The run judges allocation={settings.allocation!r}, and training pays what the environment pays. Train the"
            " team in an environment that pays the allocation (--env-config=fairtest_mpe, fairtest_pp or fairtest_lbf)."
        )


def _refuse_other_weights(policy: Path, run: Path, manifest: Mapping[str, Any]) -> None:
    from epymarl_fairtest.team.checkpoint import digest, load_weights

    if manifest.get("policy_digest") not in (None, digest(load_weights(policy / "agent.th"))):
        raise FairTestError(
            f"The team in {str(policy)!r} has other weights than the one that {str(run)!r} tested. Test it again, and"
            " repair that run."
        )


def _search_first(policy: Path, settings: Settings, folder: Path) -> None:
    """An ordinary run of the team; one that was interrupted goes on."""
    from epymarl_fairtest.campaign.run import run
    from epymarl_fairtest.core.stopping import stoppable
    from epymarl_fairtest.store.run import RunFolder
    from epymarl_fairtest.team.saved import saved_team

    if (folder / "summary.json").is_file():
        return
    team = saved_team(policy, settings.allocation)
    made = RunFolder.resume(folder, warn) if (folder / "manifest.json").is_file() else RunFolder(folder)
    with stoppable():
        run(team, settings, made, seed=settings.root_seed(), command=command_line(), warn=warn,
            observers=observers(settings))  # fmt: skip


def _plan(args: Namespace, policy: Path, run: Path, settings: Settings) -> tuple[Plan, dict[str, Any]]:
    from epymarl_fairtest.curve.point import curve_judge
    from epymarl_fairtest.repair.interaction import interaction_of
    from epymarl_fairtest.repair.plan import Plan
    from epymarl_fairtest.repair.search import starts_of
    from epymarl_fairtest.repair.welfare import WELFARES, Shaping, check_weight
    from epymarl_fairtest.team.checkpoint import digest, load_weights
    from epymarl_fairtest.team.saved import saved_team

    team = saved_team(policy, settings.allocation)
    judge = curve_judge(settings, team.task)
    measured = None if args.welfare else interaction_of(team, settings, judge)
    name = args.welfare or (measured.welfare if measured else "")
    why = measured.sentence() if measured else f"The welfare was given: {WELFARES[name].label} ({name})."
    weights = tuple(dict.fromkeys(args.weight or WELFARES[name].weights))
    for weight in weights:
        check_weight(name, weight)
    scale = usual_return(team, settings, judge)
    shapings = tuple(Shaping(name, weight, settings.index, judge.theta, settings.agents, scale) for weight in weights)
    starts = starts_of(run / "failures.npz", team.task.restorable)
    if not len(starts) and args.share:
        warn("the run holds no failure, so all episodes begin where the environment lets them")
    plan = Plan(
        args.folder.resolve(), policy, run, settings, tuple(seeds_of(args.seeds)), args.steps, shapings, starts,
        args.share if len(starts) else 0.0, args.max_loss, args.executions, min(VALIDATION, args.executions),
        digest(load_weights(policy / "agent.th")),
    )  # fmt: skip
    _say_estimate(team, settings, plan)
    told = {"name": name, "why": why, "weights": list(weights), "interaction": measured.as_dict() if measured else None}
    return plan, told


def usual_return(team: Team, settings: Settings, judge: Any) -> float:
    """The size of what the team usually receives, in which weights of the index are counted."""
    from epymarl_fairtest.curve.player import Player, curve_tests

    player = Player(team, settings, judge, warn)
    played = player.play(team.policy, curve_tests(team, 500, settings.root_seed(), "repair", "scale"))
    return float(abs(played.received.sum(axis=1).mean())) or 1.0


def _say_estimate(team: Team, settings: Settings, plan: Plan) -> None:
    """Before anything that may take long: an environment without a twin is tried first."""
    from epymarl_fairtest.campaign.observers import duration
    from epymarl_fairtest.curve.player import has_twin
    from epymarl_fairtest.engine.selection import real_engine
    from epymarl_fairtest.repair.collector import some_tests

    if has_twin(team.task, team.environment, settings):
        return
    from epymarl_fairtest.core import rng

    began = time.perf_counter()
    tests = some_tests(TRIED, team, None, 0.0, rng.named(0, "estimate"))
    steps = real_engine(team, settings).execute(tests).executed_steps()
    each = (time.perf_counter() - began) / steps
    arms = len(plan.seeds) * (1 + len(plan.shapings))
    played = plan.executions * steps / TRIED
    warn(
        f"there is no twin of {team.origin.get('key')!r}: playing alone takes about"
        f" {duration(each * (plan.steps + played))} per arm, {duration(each * (plan.steps + played) * arms)} for"
        f" {arms} arms one after the other (--jobs, --steps, --executions)"
    )


# --- running and writing ------------------------------------------------------------------------------


def _fan(args: Namespace, plan: Plan) -> Callable[..., Iterator[tuple[Any, dict[str, Any]]]]:
    """Jobs on the chosen backend, with a line for each that ends and the time that is left."""
    from epymarl_fairtest.campaign.observers import duration
    from epymarl_fairtest.repair.plan import FILE
    from epymarl_fairtest.study.backends import Place, run_all

    workers = args.jobs if args.jobs is not None else cores()

    def fan(work: Any, jobs: Sequence[Any]) -> Iterator[tuple[Any, dict[str, Any]]]:
        folders = (plan.out, plan.policy)
        place = Place(args.backend, min(workers, len(jobs)), args.address, args.timeout, plan.out / FILE, folders)
        began = time.perf_counter()
        for number, (job, result) in enumerate(run_all(work, jobs, place), 1):
            left = (time.perf_counter() - began) / number * (len(jobs) - number)
            rest = f"; about {duration(left)} left" if number < len(jobs) else ""
            said = f"STOPPED: {result['error'].strip().splitlines()[-1]}" if "error" in result else "done"
            print(f"fairtest: [{number}/{len(jobs)}] {job}: {said}{rest}", file=sys.stderr, flush=True)
            yield job, result

    return fan


def _write(plan: Plan, document: dict[str, Any]) -> list[Path]:
    """repair.json first, then what is drawn from it; into the run's sacred folder, too, where it has one."""
    from epymarl_fairtest.core.files import json_bytes, write_bytes
    from epymarl_fairtest.host.sacred_log import sacred_folder
    from epymarl_fairtest.repair.document import FILE
    from epymarl_fairtest.repair.words import rows, sentence
    from epymarl_fairtest.report.libraries import needed_for
    from epymarl_fairtest.store.finished import read_manifest

    document["sentence"] = sentence(document)
    write_bytes(plan.out / FILE, json_bytes(document))
    files = [plan.out / FILE]
    try:
        with needed_for("Drawing the page"):
            from epymarl_fairtest.report.repair import written
        files += written(plan.out, document, rows(document))
    except FairTestError as error:
        warn(f"no page: {error}")
    sacred = sacred_folder(plan.run, read_manifest(plan.run))
    if sacred is not None:
        for file in files:
            write_bytes(sacred / f"fairtest_repair_{file.name}", file.read_bytes())
    return files
