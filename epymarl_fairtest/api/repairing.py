"""A repair from its first check to its page: what `fairtest repair` and Python share. Prints nothing itself.

Whatever can be refused is refused before the folder is made; the same request continues what was interrupted.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epymarl_fairtest.api.starting import settings_for
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.shipped import team_folder as place_of
from epymarl_fairtest.repair.defaults import EXECUTIONS, MAX_LOSS, SEEDS, SHARE, STEPS, TIMEOUT

if TYPE_CHECKING:
    from epymarl_fairtest.campaign.observers import Observer
    from epymarl_fairtest.repair.plan import Plan
    from epymarl_fairtest.settings import Settings
    from epymarl_fairtest.team.contract import Team

VALIDATION = 5_000  # executions that a weight is chosen on
SEARCHED = ("method", "budget", "seed", "theta", "index")  # settings of the search before
TRIED = 8  # executions that estimate the time of an environment without a twin


@dataclass(frozen=True)
class Request:
    """What is wanted: either a finished run, or a team that is searched first with the given settings."""

    run: Path | None
    policy: Path | None
    folder: Path
    command: str  # as it was typed, for repair.json
    given: Mapping[str, Any] = field(default_factory=dict)
    steps: int = STEPS
    welfare: str | None = None
    weights: tuple[float, ...] = ()
    share: float = SHARE
    max_loss: float = MAX_LOSS
    seeds: tuple[int, ...] = tuple(range(SEEDS))
    executions: int = EXECUTIONS
    backend: str = "processes"
    address: str | None = None
    jobs: int | None = None
    timeout: float = TIMEOUT
    learner: Mapping[str, Any] = field(default_factory=dict)

    def check(self) -> None:
        """Refuse numbers that cannot be meant."""
        from epymarl_fairtest.repair.regressions import STREAMS
        from epymarl_fairtest.repair.welfare import WELFARES, check_weight
        from epymarl_fairtest.study.backends import check_place

        check_place(self.backend, self.jobs, self.address, self.timeout)
        for name, value in (("--share", self.share), ("--max-loss", self.max_loss)):
            if not (math.isfinite(value) and 0 <= value <= 1):
                raise FairTestError(f"{name} {value:g} is not allowed; it must be a share from 0 to 1.")
        counts = (("--steps", self.steps, 1, 10**10), ("--executions", self.executions, STREAMS, 10**7))
        for name, value, least, most in counts:
            if not least <= value <= most:
                raise FairTestError(
                    f"{name} {value} is not allowed; it must be a whole number from {least} to {most:,}."
                )
        for weight in self.weights:
            if self.welfare:
                check_weight(self.welfare, weight)
            elif not 0 < weight <= max(welfare.most for welfare in WELFARES.values()):
                raise FairTestError(f"--weight {weight:g} is not allowed; it must be above 0.")
        if self.run is not None and self.given:
            raise FairTestError(f"{', '.join(sorted(self.given))}: a RUN is repaired with its own settings. Leave it"
                                " out, or name the team's policy folder instead of the run.")  # fmt: skip


@dataclass(frozen=True)
class Listeners:
    """Who hears of it: warnings, a line for each job that ends, and the observers of a search."""

    warn: Callable[[str], None]
    say: Callable[[str], None]
    observers: Callable[[Settings], Sequence[Observer]]


def repaired(request: Request, listeners: Listeners) -> tuple[dict[str, Any], list[Path]]:
    """repair.json, and the files that were written, that one first."""
    from epymarl_fairtest.host.trainer import HostTrainer
    from epymarl_fairtest.repair.loop import Repair
    from epymarl_fairtest.repair.plan import open_folder, refuse_strange_folder

    request.check()
    refuse_strange_folder(request.folder)
    trainer = HostTrainer(learner=request.learner)
    policy, run, settings, host = _team_and_run(request, trainer, listeners)
    plan, welfare = _plan(request, policy, run, settings, listeners)
    open_folder(plan)
    document = Repair(plan, trainer, _fan(request, plan, listeners)).run()
    document |= {"welfare": welfare, "command": request.command, "host": host}
    return document, _write(plan, document, listeners)


# --- what is repaired ---------------------------------------------------------------------------------


def _team_and_run(request: Request, trainer: Any, listeners: Listeners) -> tuple[Path, Path, Settings, str]:
    """The team, a finished run of it, the run's settings with its threshold, and who trains; a team is searched now."""
    from epymarl_fairtest.store.finished import read_run
    from epymarl_fairtest.strategies import configure
    from epymarl_fairtest.team.saved import team_folder

    if request.run is not None:
        found = read_run(request.run, "failures.npz")
        policy = team_folder(request.run, found.manifest)
        run, settings = request.run, configure(found.settings)
        host = _check(trainer, policy, settings)
        _refuse_other_weights(policy, run, found.manifest)
    else:
        assert request.policy is not None, "a run or a team"
        policy = place_of(request.policy)
        settings = replace(settings_for(policy, request.given), out=None)
        host = _check(trainer, policy, settings)
        run = request.folder / "search" / "before"
        _search_first(policy, settings, run, request.command, listeners)
        found = read_run(run, "failures.npz")
        _refuse_other_weights(policy, run, found.manifest)
        unlike = [name for name in SEARCHED if getattr(settings, name) != found.settings.get(name)]
        if unlike:
            raise FairTestError(f"{str(run)!r} was searched with another {' and '.join(unlike)}. Choose another --out.")
        settings = configure(found.settings)  # as the run understood them
    seed = int(found.manifest["seed"])
    return policy.resolve(), run.resolve(), replace(settings, theta=found.theta, seed=seed, progress=False), host


def _check(trainer: Any, policy: Path, settings: Settings) -> str:
    """The host that will train the team."""
    host: str = trainer.check(policy)["host"]
    if settings.allocation != "env":
        raise FairTestError(
            f"The run judges allocation={settings.allocation!r}, and training pays what the environment pays. Train the"
            " team in an environment that pays the allocation (--env-config=fairtest_mpe, fairtest_pp or fairtest_lbf)."
        )
    return host


def _refuse_other_weights(policy: Path, run: Path, manifest: Mapping[str, Any]) -> None:
    from epymarl_fairtest.team.checkpoint import digest, load_weights

    if manifest.get("policy_digest") not in (None, digest(load_weights(policy / "agent.th"))):
        raise FairTestError(
            f"The team in {str(policy)!r} has other weights than the one that {str(run)!r} tested. Test it again, and"
            " repair that run."
        )


def _search_first(policy: Path, settings: Settings, folder: Path, command: str, listeners: Listeners) -> None:
    """An ordinary run of the team; one that was interrupted goes on."""
    from epymarl_fairtest.campaign.run import run
    from epymarl_fairtest.core.stopping import stoppable
    from epymarl_fairtest.store.run import RunFolder
    from epymarl_fairtest.team.saved import saved_team

    if (folder / "summary.json").is_file():
        return
    team = saved_team(policy, settings.allocation)
    made = RunFolder.resume(folder, listeners.warn) if (folder / "manifest.json").is_file() else RunFolder(folder)
    with stoppable():
        run(team, settings, made, seed=settings.root_seed(), command=command, warn=listeners.warn,
            observers=listeners.observers(settings))  # fmt: skip


def _plan(
    request: Request, policy: Path, run: Path, settings: Settings, listeners: Listeners
) -> tuple[Plan, dict[str, Any]]:
    from epymarl_fairtest.curve.point import curve_judge
    from epymarl_fairtest.repair.interaction import interaction_of
    from epymarl_fairtest.repair.plan import Plan
    from epymarl_fairtest.repair.search import starts_of
    from epymarl_fairtest.repair.welfare import WELFARES, Shaping, check_weight
    from epymarl_fairtest.team.checkpoint import digest, load_weights
    from epymarl_fairtest.team.saved import saved_team

    team = saved_team(policy, settings.allocation)
    judge = curve_judge(settings, team.task)
    measured = None if request.welfare else interaction_of(team, settings, judge)
    name = request.welfare or (measured.welfare if measured else "")
    why = measured.sentence() if measured else f"The welfare was given: {WELFARES[name].label} ({name})."
    weights = tuple(dict.fromkeys(request.weights or WELFARES[name].weights))
    for weight in weights:
        check_weight(name, weight)
    scale = usual_return(team, settings, judge, listeners.warn)
    shapings = tuple(Shaping(name, weight, settings.index, judge.theta, settings.agents, scale) for weight in weights)
    starts = starts_of(run / "failures.npz", team.task.restorable)
    if not len(starts) and request.share:
        listeners.warn("the run holds no failure, so all episodes begin where the environment lets them")
    plan = Plan(
        request.folder.resolve(), policy, run, settings, request.seeds, request.steps, shapings, starts,
        request.share if len(starts) else 0.0, request.max_loss, request.executions,
        min(VALIDATION, request.executions), digest(load_weights(policy / "agent.th")), request.learner,
    )  # fmt: skip
    _say_estimate(team, settings, plan, listeners)
    chosen = {
        "name": name,
        "why": why,
        "weights": list(weights),
        "interaction": measured.as_dict() if measured else None,
    }
    return plan, chosen


def usual_return(team: Team, settings: Settings, judge: Any, warn: Callable[[str], None]) -> float:
    """The size of what the team usually receives, in which weights of the index are counted."""
    from epymarl_fairtest.curve.player import Player, curve_tests

    player = Player(team, settings, judge, warn)
    played = player.play(team.policy, curve_tests(team, 500, settings.root_seed(), "repair", "scale"))
    return float(abs(played.received.sum(axis=1).mean())) or 1.0


def _say_estimate(team: Team, settings: Settings, plan: Plan, listeners: Listeners) -> None:
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
    listeners.warn(
        f"there is no twin of {team.origin.get('key')!r}: playing alone takes about"
        f" {duration(each * (plan.steps + played))} per arm, {duration(each * (plan.steps + played) * arms)} for"
        f" {arms} arms one after the other (--jobs, --steps, --executions)"
    )


# --- running and writing ------------------------------------------------------------------------------


def _fan(request: Request, plan: Plan, listeners: Listeners) -> Callable[..., Iterator[tuple[Any, dict[str, Any]]]]:
    """Jobs on the chosen backend, with a line for each that ends and the time that is left."""
    from epymarl_fairtest.campaign.observers import duration
    from epymarl_fairtest.repair.plan import FILE
    from epymarl_fairtest.study.backends import Place, cores, run_all

    workers = request.jobs if request.jobs is not None else cores()

    def fan(work: Any, jobs: Sequence[Any]) -> Iterator[tuple[Any, dict[str, Any]]]:
        folders = (plan.out, plan.policy)
        place = Place(
            request.backend, min(workers, len(jobs)), request.address, request.timeout, plan.out / FILE, folders
        )
        began = time.perf_counter()
        for number, (job, result) in enumerate(run_all(work, jobs, place), 1):
            left = (time.perf_counter() - began) / number * (len(jobs) - number)
            rest = f"; about {duration(left)} left" if number < len(jobs) else ""
            said = f"STOPPED: {result['error'].strip().splitlines()[-1]}" if "error" in result else "done"
            listeners.say(f"[{number}/{len(jobs)}] {job}: {said}{rest}")
            yield job, result

    return fan


def _write(plan: Plan, document: dict[str, Any], listeners: Listeners) -> list[Path]:
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
        listeners.warn(f"no page: {error}")
    sacred = sacred_folder(plan.run, read_manifest(plan.run))
    if sacred is not None:
        for file in files:
            write_bytes(sacred / f"fairtest_repair_{file.name}", file.read_bytes())
    return files
