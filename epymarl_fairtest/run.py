"""One run: a trained team, its environment and the settings become a run folder and a summary.

The plug-in and `fairtest run` both end here. Whatever can be refused was refused before: the run
folder exists only once everything fits.
"""

from __future__ import annotations

import logging
import platform
import shlex
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from epymarl_fairtest import __version__, rng, stopping
from epymarl_fairtest.baselines.random import random_tests
from epymarl_fairtest.campaign import Campaign, Clock, Context
from epymarl_fairtest.config import Settings, meant, options_of
from epymarl_fairtest.confirm import CONFIRMED, UNCHECKED, UNSTABLE, agrees, replay
from epymarl_fairtest.engine.contract import Engine, Execution, Policy, World
from epymarl_fairtest.engine.lockstep import Lockstep, q_if_seen
from epymarl_fairtest.errors import FairTestError
from epymarl_fairtest.fairness import INDICES, totals
from epymarl_fairtest.ledger import Ledger
from epymarl_fairtest.metrics import Tally
from epymarl_fairtest.pool import TrainingEpisode
from epymarl_fairtest.search.plan import plan_of
from epymarl_fairtest.store.run import RunFolder
from epymarl_fairtest.strategies import STRATEGIES
from epymarl_fairtest.tasks.base import ABILITIES, Task

Warn = Callable[[str], None]
tqdm.monitor_interval = 0  # its thread would show up among the host's

INDEX_NAMES = {"jfi": "Jain's index", "gini": "1 - Gini", "min_max": "min / max", "cv": "1 - variation"}
LIBRARIES = "torch numpy scikit-learn moocore gymnasium pettingzoo mpe2 lbforaging sacred numba".split()  # noqa: SIM905


@dataclass(frozen=True)
class Subject:
    """What is tested: the team in its environment."""

    task: Task
    policy: Policy
    make_world: Callable[[], World]
    available: NDArray[np.bool_]  # (agents, actions)
    limit: int
    environment: Any = None  # one of the environments, for the engine to look at
    allocation: str = "env"
    pool: Sequence[TrainingEpisode] = ()  # sample of its training episodes
    origin: dict[str, Any] = field(default_factory=dict)  # where it comes from, for the manifest


def given_theta(settings: Settings, task: Task) -> float:
    """The threshold, where it need not be calibrated."""
    return task.theta if settings.theta is None else float(settings.theta)


@dataclass(frozen=True)
class Calibration:
    theta: float
    share: float  # of the defined episodes that it calls unfair; above the quantile where many are equal
    defined: int
    episodes: int


def calibrate(subject: Subject, settings: Settings, engine: Engine, seed: int, ledger: Ledger) -> Calibration:
    """The threshold that calls `quantile` of random executions unfair (theta=auto)."""
    tests = random_tests(settings.calibration, subject.task.state_size, rng.named(seed, "calibration"))
    episodes = engine.execute(tests)
    ledger.charge("calibration", len(episodes), episodes.executed_steps())
    index = INDICES[settings.index](totals(episodes.rewards))
    defined = index[~np.isnan(index)]
    if not len(defined):
        raise FairTestError(
            f"theta=auto cannot be calibrated: in none of {len(index)} random executions did any agent receive"
            " anything. Train the team further, or set theta to a number in (0, 1]."
        )
    theta = float(np.quantile(defined, settings.quantile))
    return Calibration(theta, float((defined <= theta).mean()), len(defined), len(index))


def check_method(settings: Settings, task: Task | None = None) -> None:
    """Everything about the method that can be refused before training; more of it once the task is known."""
    if settings.method not in STRATEGIES:
        raise FairTestError(
            f"fairtest_args.method={settings.method!r} is not a method; known are: {', '.join(STRATEGIES)}."
            + meant(settings.method, STRATEGIES)
        )
    method = STRATEGIES[settings.method]
    options_of(method.options, settings.options, settings.method)
    if settings.method == "fairtest":
        plan_of(settings)
    for need in method.needs:
        if task is not None and not getattr(task, need):
            raise FairTestError(
                f"fairtest_args.method={settings.method!r} needs {ABILITIES[need]}, which the task {task.name!r} does"
                " not offer. Choose method=random, or an environment with a task of its own (spread, tag, foraging)."
            )
    if settings.accounting == "strict" and settings.budget <= settings.calibration:
        raise FairTestError(
            f"fairtest_args.budget={settings.budget} leaves nothing to the method: theta=auto takes"
            f" calibration_episodes={settings.calibration} of it (strict accounting). Set a larger budget or fewer"
            " calibration_episodes."
        )


def real_engine(subject: Subject, settings: Settings) -> Lockstep:
    """The environment itself; inside a host, its own wrappers and controller."""
    how = Execution(settings.execution, settings.epsilon, settings.temperature, subject.available)
    return Lockstep(subject.make_world, subject.policy, how, limit=subject.limit, state_size=subject.task.state_size)


def make_engine(
    subject: Subject, settings: Settings, warn: Warn, *, real: Lockstep | None = None, clock: Clock | None = None
) -> Engine:
    """The twin of the environment where there is one and it proves itself, the environment itself otherwise."""
    real, clock = real or real_engine(subject, settings), clock or Clock()
    if settings.engine == "lockstep":
        return real
    try:
        from epymarl_fairtest.engine.twin import Twin, prove, twin_of
    except ImportError as error:  # numba
        if settings.engine == "twin":
            raise FairTestError(f"engine=twin needs numba ({error}): pip install numba, or use engine=auto.") from error
        return real
    kernel = twin_of(subject.environment, subject.task, subject.allocation) if subject.environment else None
    if kernel is None:
        if settings.engine == "twin":
            raise FairTestError(
                f"engine=twin: there is no twin of {subject.origin.get('key', subject.task.name)!r} with"
                f" allocation={subject.allocation!r}; use engine=auto or lockstep. Twins exist for mpe-spread-v0"
                " (nearest_landmark), mpe-tag-v0 (prey_distance, prey fairtest or still) and foraging with full sight."
            )
        return real
    threads = settings.threads if subject.policy.thread_safe else 1
    twin = Twin(kernel, subject.policy, real.how, limit=real.limit, state_size=real.state_size, threads=threads)
    if settings.engine == "auto":
        twin.execute(random_tests(1, real.state_size, rng.named(0, "compiling")))
        with clock.phase("proof"):
            proven = prove(twin, real, subject.task.state_size)
        if not proven:
            warn(
                "The compiled twin does not agree bit for bit with the real environment on this machine: FairTest uses"
                " the real one (engine=lockstep), which is slower. Please report the versions in manifest.json."
            )
            return real
    return twin


def run(
    subject: Subject,
    settings: Settings,
    folder: RunFolder,
    *,
    seed: int,
    command: str,
    terminal: bool,
    warn: Warn,
) -> dict[str, Any]:
    """Test the team; return the summary that was written to `folder`."""

    def beside_the_bar(message: str) -> None:
        with tqdm.external_write_mode():
            warn(message)

    shown = settings.progress and terminal
    with progress_bar(settings.budget, shown, desc="preparing", unit="episode", leave=False) as bar:
        with folder:  # others may write to it once this is over, however it ends
            try:
                summary = _run(subject, settings, folder, seed, command, bar, beside_the_bar)
            except BaseException as error:
                folder.remove_if_empty(refused=isinstance(error, FairTestError))
                raise
        if settings.report:
            bar.set_description("drawing the page")
            _report(folder.path, subject.task, beside_the_bar)
        bar.set_description(settings.method)
    return summary


def progress_bar(total: int, shown: bool, **how: Any) -> tqdm[Any]:
    """A bar of tqdm, which by itself shows nothing on a terminal that does not tell its size."""
    size = shutil.get_terminal_size()
    return tqdm(total=total, disable=not shown, ncols=size.columns, nrows=size.lines, **how)


def _report(run_path: Path, task: Task, warn: Warn) -> None:
    for library in ("matplotlib", "PIL"):  # EPyMARL logs everything, and these have much to say
        logging.getLogger(library).setLevel(logging.WARNING)
    try:
        from epymarl_fairtest.report.page import make_report

        make_report(run_path, task)
    except Exception as error:  # a picture must not cost a finished run
        warn(
            f"The run is complete, but its page could not be drawn ({type(error).__name__}: {error})."
            f" Try again with: fairtest report {shlex.quote(str(run_path))}"
        )


def _run(
    subject: Subject, settings: Settings, folder: RunFolder, seed: int, command: str, bar: tqdm[Any], warn: Warn
) -> dict[str, Any]:
    clock, ledger = Clock(), Ledger()
    with clock.phase("compiling"):  # or reading what was compiled before
        real = real_engine(subject, settings)
        task, engine = subject.task, make_engine(subject, settings, warn, real=real, clock=clock)
    if real.episodes:
        ledger.charge("proof", real.episodes, real.steps)
    if settings.theta == "auto":
        with clock.phase("calibration"):
            theta = calibrate(subject, settings, engine, seed, ledger).theta
    else:
        theta = given_theta(settings, task)
    method = STRATEGIES[settings.method]
    context = Context(
        task,
        settings,
        seed,
        theta,
        subject.available,
        subject.pool,
        warn=warn,
        options=options_of(method.options, settings.options, settings.method),
        ask=partial(q_if_seen, subject.policy),
        initial_states=engine.initial_states,
        clock=clock,
    )
    distance = task.distinct_distance if settings.distinct_distance is None else settings.distinct_distance
    tally = Tally(task, theta, bins=settings.coverage_bins, distinct_distance=distance)
    if not folder.resumed:
        folder.write_manifest(
            {
                "fairtest": __version__,
                "python": platform.python_version(),
                "versions": versions(),
                "task": task.name,
                "engine": engine.name,
                "seed": seed,
                "theta": theta,
                "distinct_distance": distance,
                "settings": settings.as_dict(),
                "command": command,
                **subject.origin,
            }
        )
    bar.leave = True
    bar.unpause()  # what was prepared was no episode
    bar.set_description(settings.method)

    def on_batch(charged: int) -> None:
        stopping.check()
        bar.set_postfix(failures=tally.failures, refresh=False)
        bar.update(charged - bar.n)

    Campaign(method.strategy, context, engine, folder, tally, ledger, on_batch).run()
    bar.set_description("confirming")
    with clock.phase("confirming"):
        status = confirm_failures(folder, real, settings, task, ledger, rng.named(seed, "confirm"))
    with clock.phase("saving"):
        folder.join_failures(status)
        folder.write_evidence(tally.executions(), context.evidence | {"coverage_cells": tally.cells()})
    notes, counted = dict(context.notes), tally.summary()
    unstable = int((status == UNSTABLE).sum())
    summary = {
        "task": task.name,
        "method": settings.method,
        "preset": settings.preset,
        "seed": seed,
        "index": settings.index,
        "theta": theta,
        "executed_episodes": ledger.executed_episodes,
        "executed_steps": ledger.executed_steps,
        "charged_strict": ledger.charged("strict"),
        "charged_paper": ledger.charged("paper"),
        **counted,
        "failures": counted["failures"] - unstable,
        "unstable_failures": unstable,
        "confirmed_failures": int((status == CONFIRMED).sum()),
        **clock.spent(),
        "engine": engine.name,
        "predictor": notes.pop("predictor", dict.fromkeys(("auc_abstract", "auc_full", "d", "joint_states"))),
        "ledger": ledger.as_dict(),
        "notes": notes,
    }
    folder.finish(summary)
    return summary


def stopped(folder: RunFolder, settings: Settings) -> str:
    """What an interrupted run has found, and how to go on with it."""
    if not (folder.path / "manifest.json").is_file():
        return "Stopped before anything was executed."
    if (folder.path / "summary.json").is_file():
        return f"Stopped. The run is complete; draw its page with: fairtest report {shlex.quote(str(folder.path))}"
    return (
        f"Stopped. {folder.failure_count()} unfair episodes are kept, of {folder.episode_count()} that were executed"
        f" (budget {settings.budget}). Go on with:\n  fairtest run --resume {shlex.quote(str(folder.path))}"
    )


def confirm_failures(
    folder: RunFolder, real: Lockstep, settings: Settings, task: Task, ledger: Ledger, generator: np.random.Generator
) -> NDArray[np.str_]:
    """What became of each failure; `confirm` of them, drawn at random, are executed again for real."""
    count = folder.failure_count()
    status = np.full(count, UNCHECKED)
    rows = np.arange(count)
    if settings.confirm != "all" and count > int(settings.confirm):
        rows = np.sort(generator.choice(count, int(settings.confirm), replace=False))
    if len(rows):
        failures = folder.failures(rows)
        again = replay(failures, real, restorable=task.restorable)
        ledger.charge("replay", len(again), again.executed_steps())
        status[rows] = np.where(agrees(failures, again), CONFIRMED, UNSTABLE)
    return status


def versions() -> dict[str, str]:
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def summary_table(summary: dict[str, Any], out: Path) -> str:
    """The last thing a user sees in the terminal."""
    failures, evaluated = summary["failures"], summary["evaluated"]
    share = f"{failures / evaluated:.1%}" if evaluated else "-"
    quantiles = summary["index_quantiles"]

    def number(value: float | None) -> str:
        return "-" if value is None else f"{value:.3f}"

    rows = [
        ("task", f"{summary['task']}   threshold {summary['theta']:.3g} on {INDEX_NAMES[summary['index']]}"),
        ("method", f"{summary['method']} ({summary['preset']}), seed {summary['seed']}, {summary['engine']} engine"),
        ("unfair episodes", f"{failures} of {evaluated} ({share})"),
        ("  distinct / roots", f"{summary['distinct_failures']} / {summary['roots']}"),
        ("  after the prefix", f"{summary['suffix_failures']} are unfair in what was executed alone"),
        ("  coverage", f"{summary['coverage']:.3f} of the position grid"),
        ("  confirmed", _confirmation(summary)),
        ("undefined episodes", f"{summary['undefined']} (no agent received anything)"),
        ("fairness index", f"lowest {number(quantiles['0'])}, median {number(quantiles['0.5'])}"),
        ("charged", f"{summary['charged_strict']} episodes strict, {summary['charged_paper']} as the paper counts"),
        ("time", f"{summary['wall_seconds']:.1f} s for {summary['executed_steps']} environment steps"),
        ("  cpu", _shares(summary)),
        ("results", str(out)),
    ]
    if (page := out / "report" / "index.html").is_file():
        rows.append(("report", str(page)))
    predictor = summary["predictor"]
    if predictor["d"] is not None:
        quality = f"out-of-bag AUC {number(predictor['auc_full'])} ({number(predictor['auc_abstract'])} states alone)"
        rows.insert(
            [name for name, _ in rows].index("time"),
            ("predictor", f"{quality}, {predictor['joint_states']} joint states, d {predictor['d']:.3g}"),
        )
    width = max(len(name) for name, _ in rows)
    lines = [f"  {name:<{width}}  {value}" for name, value in rows]
    rule = "-" * max(len(line) for line in lines)
    return "\n".join([rule, "  FairTest", rule, *lines, rule])


def _confirmation(summary: dict[str, Any]) -> str:
    confirmed, unstable = summary["confirmed_failures"], summary["unstable_failures"]
    told = f"{confirmed} of {confirmed + unstable} agree when the real environment replays them"
    return told + (f"; {unstable} unstable ones are not counted" if unstable else "")


def _shares(summary: dict[str, Any]) -> str:
    """The CPU time and the largest parts of it; the twin's proof always."""
    total, phases = summary["cpu_seconds"], dict(summary["phases"])
    proof = phases.pop("proof", None)
    parts = sorted(phases.items(), key=lambda item: -item[1])[:5]
    told = f"{total:.1f} s: " + ", ".join(f"{name} {seconds / total:.0%}" for name, seconds in parts if seconds)
    return told if proof is None else f"{told}, the twin's proof {proof:.2f} s"
