"""One run: a trained team, its environment and the settings become a run folder and a summary.

The plug-in and `fairtest run` both end here. Whatever can be refused was refused before: the run
folder exists only once everything fits.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from epymarl_fairtest import __version__
from epymarl_fairtest.campaign import Campaign, Clock, Context
from epymarl_fairtest.config import Settings, nearest
from epymarl_fairtest.engine.contract import Engine, Execution, Policy, World
from epymarl_fairtest.engine.lockstep import Lockstep
from epymarl_fairtest.errors import FairTestError
from epymarl_fairtest.metrics import Tally
from epymarl_fairtest.store.run import RunFolder
from epymarl_fairtest.strategies import STRATEGIES
from epymarl_fairtest.tasks.base import Task

tqdm.monitor_interval = 0  # its thread would show up among the host's

LIBRARIES = ("torch", "numpy", "gymnasium", "pettingzoo", "mpe2", "lbforaging", "sacred", "numba")


@dataclass(frozen=True)
class Subject:
    """What is tested: the team in its environment."""

    task: Task
    policy: Policy
    make_world: Callable[[], World]
    available: NDArray[np.bool_]  # (agents, actions)
    limit: int
    origin: dict[str, Any] = field(default_factory=dict)  # where it comes from, for the manifest


def theta_of(settings: Settings, task: Task) -> float:
    return task.theta if settings.theta is None else settings.theta


def check_method(settings: Settings) -> None:
    if settings.method not in STRATEGIES:
        raise FairTestError(
            f"fairtest_args.method={settings.method!r} is not a method; known are: {', '.join(STRATEGIES)}."
            + nearest(settings.method, STRATEGIES)
        )


def make_engine(subject: Subject, settings: Settings) -> Engine:
    how = Execution(settings.execution, settings.epsilon, settings.temperature, subject.available)
    return Lockstep(
        subject.make_world, subject.policy, how, limit=subject.limit, state_size=subject.task.state_size
    )


def run(
    subject: Subject, settings: Settings, folder: RunFolder, *, seed: int, command: str, terminal: bool
) -> dict[str, Any]:
    """Test the team; return the summary that was written to `folder`."""
    clock = Clock.start()
    task, theta = subject.task, theta_of(settings, subject.task)
    engine = make_engine(subject, settings)
    context = Context(task, seed, theta, task.state_size, subject.limit, settings.batch)
    distance = task.distinct_distance if settings.distinct_distance is None else settings.distinct_distance
    tally = Tally(task, bins=settings.coverage_bins, distinct_distance=distance)

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
    with tqdm(
        total=settings.budget,
        desc=f"FairTest {settings.method}",
        unit="episode",
        disable=not (settings.progress and terminal),
    ) as bar:

        def on_batch(episodes: int, failures: int) -> None:
            bar.set_postfix(failures=tally.failures, refresh=False)
            bar.update(episodes)

        campaign = Campaign(
            STRATEGIES[settings.method],
            context,
            engine,
            folder,
            tally,
            budget=settings.budget,
            accounting=settings.accounting,
            on_batch=on_batch,
        )
        campaign.run()
    ledger = campaign.ledger
    summary = {
        "task": task.name,
        "method": settings.method,
        "preset": settings.preset,
        "seed": seed,
        "theta": theta,
        "executed_episodes": ledger.executed_episodes,
        "executed_steps": ledger.executed_steps,
        "charged_strict": ledger.charged("strict"),
        "charged_paper": ledger.charged("paper"),
        **tally.summary(),
        **clock.spent(),
        "engine": engine.name,
        "predictor": {"auc_abstract": None, "auc_full": None, "d": None, "joint_states": None},
        "ledger": ledger.as_dict(),
    }
    folder.finish(summary)
    return summary


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
    quantiles = summary["jfi_quantiles"]

    def number(value: float | None) -> str:
        return "-" if value is None else f"{value:.3f}"

    rows = [
        ("task", f"{summary['task']}   threshold {summary['theta']:g} on Jain's index"),
        ("method", f"{summary['method']} ({summary['preset']}), seed {summary['seed']}, {summary['engine']} engine"),
        ("unfair episodes", f"{failures} of {evaluated} ({share})"),
        ("  distinct / roots", f"{summary['distinct_failures']} / {summary['roots']}"),
        ("  coverage", f"{summary['coverage']:.3f} of the position grid"),
        ("undefined episodes", f"{summary['undefined']} (no agent received anything)"),
        ("fairness index", f"lowest {number(quantiles['0'])}, median {number(quantiles['0.5'])}"),
        ("charged", f"{summary['charged_strict']} episodes strict, {summary['charged_paper']} as the paper counts"),
        ("time", f"{summary['wall_seconds']:.1f} s, {summary['executed_steps']} environment steps"),
        ("results", str(out)),
    ]
    width = max(len(name) for name, _ in rows)
    lines = [f"  {name:<{width}}  {value}" for name, value in rows]
    rule = "-" * max(len(line) for line in lines)
    return "\n".join([rule, "  FairTest", rule, *lines, rule])
