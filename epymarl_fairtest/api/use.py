"""What a notebook calls: test a team, resume, load and compare runs, repair. Every mistake is a FairTestError."""

from __future__ import annotations

import os
import re
import shlex
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from epymarl_fairtest.api.comparing import Comparison
from epymarl_fairtest.api.repaired import Repaired
from epymarl_fairtest.api.repairing import Listeners, Request, repaired
from epymarl_fairtest.api.result import Result
from epymarl_fairtest.api.shown import Replay, Why
from epymarl_fairtest.api.starting import Started, begin, begin_again, begin_with
from epymarl_fairtest.campaign.observers import Observer, Progress, beside_the_bar, in_notebook
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.repair.defaults import EXECUTIONS, MAX_LOSS, SEEDS, SHARE, STEPS, TIMEOUT
from epymarl_fairtest.report.observer import Page
from epymarl_fairtest.settings import Settings
from epymarl_fairtest.store.finished import read_run
from epymarl_fairtest.strategies import configure, strategy_of
from epymarl_fairtest.team.contract import Policy, Team
from epymarl_fairtest.team.saved import live_team

__all__ = ["Comparison", "Repaired", "Replay", "Result", "Why", "compare", "load", "repair", "resume", "test"]
ARGUMENTS = (
    "theta|confidence|policy|figure|out|steps|welfare|weight|share|learner|executions|jobs|timeout|address|backend"
)
"""Of the command line that are arguments here, too; `--max-loss` is one with another sign."""


def test(
    team: str | os.PathLike[str] | Team | Policy,
    *,
    env: str | None = None,
    env_args: Mapping[str, Any] | None = None,
    time_limit: int | None = None,
    out: str | os.PathLike[str] | None = None,
    **settings: Any,
) -> Result:
    """Search the executions of a trained team for unfair ones.

    Args:
        team: a policy folder (`agent.th` and `policy.yaml`), or a policy in memory (docs/python.md).
        env: the gymnasium id of the environment of a policy in memory,
        env_args: what it is made with,
        time_limit: and after how many steps its episodes end.
        out: the run folder to make; `runs/TEAM-DATE` if it is not given. A run is never overwritten.
        **settings: any setting of docs/settings.md, for example `budget=1000`, `seed=1`, `method="random"`,
            `preset="strict"`, `explain=20`, `progress=False`, `options={"rounds": 2}`.

    Interrupting it (Ctrl-C, or the notebook's stop button) keeps what was found; `resume` goes on from there.

    Raises:
        FairTestError: the team, a setting or the folder cannot be used; nothing is left behind.
    """
    with in_python_words():
        given = {name: _plain(value) for name, value in settings.items()}
        if out is not None:
            given["out"] = str(_path(out, "out"))
        said = [repr(str(team)) if isinstance(team, str | os.PathLike) else type(team).__name__]
        command = f"fairtest.test({', '.join(said + [f'{name}={value!r}' for name, value in given.items()])})"
        place = {"env": env, "env_args": env_args, "time_limit": time_limit}
        named = [name for name, value in place.items() if value is not None]
        if named and isinstance(team, str | os.PathLike | Team):
            raise FairTestError(f"{', '.join(named)}: only for a policy in memory; this team has its own environment.")
        if isinstance(team, str | os.PathLike):
            return _finished(begin(_path(team, "the team"), given, command))
        live = team if isinstance(team, Team) else _live(team, env, env_args, time_limit, given)
        chosen = configure({"allocation": live.allocation, **given})
        strategy_of(chosen).check_settings(chosen, live.task)
        return _finished(begin_with(live, chosen, command, Path(live.task.name)))


test.__test__ = False  # type: ignore[attr-defined]  # pytest would take it for a test wherever it is imported


def resume(run: str | os.PathLike[str], *, policy: str | os.PathLike[str] | None = None) -> Result:
    """Go on with an interrupted run: it ends as if nothing had happened. `policy`: where its team is now."""
    with in_python_words():
        place = None if policy is None else _path(policy, "policy")
        return _finished(begin_again(_path(run, "the run"), place, _warn))


def load(run: str | os.PathLike[str]) -> Result:
    """The result in a run folder, wherever the run was made: by `test`, the command line or a training."""
    with in_python_words():
        return Result(read_run(_path(run, "the run")))


def compare(
    a: Result | str | os.PathLike[str],
    b: Result | str | os.PathLike[str],
    *,
    theta: float | None = None,
    confidence: float = 0.95,
) -> Comparison:
    """Is the team of run `b` fairer than that of run `a`? Judged by the natural rates alone.

    Args:
        theta: judge both with this threshold; needed where the runs have different ones.
        confidence: of the intervals and of the verdict.
    """
    with in_python_words():
        paths = [one.path if isinstance(one, Result) else _path(one, "a run") for one in (a, b)]
        return Comparison.of_runs(*paths, theta=theta, confidence=confidence)


def repair(
    team: Result | str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    steps: int = STEPS,
    welfare: str | None = None,
    weight: float | Iterable[float] | None = None,
    share: float = SHARE,
    max_loss: float = MAX_LOSS,
    learner: Mapping[str, Any] | None = None,
    seeds: int | Iterable[int] = SEEDS,
    executions: int = EXECUTIONS,
    backend: str = "processes",
    address: str | None = None,
    jobs: int | None = None,
    timeout: float = TIMEOUT,
    **settings: Any,
) -> Repaired:
    """Train a team on so that it shares more fairly, beside a control that is trained as much without that aim.

    Args:
        team: a result or a run folder, whose failures are to go; or a policy folder, which is tested first.
        out: the folder of the repair; the same call continues what is there.
        steps: of training, for each arm.
        welfare: what is paid for: `gini`, `jain` or `min`; measured and explained if it is not given.
        weight: of the welfare; several are tried, the welfare's own if none is given.
        share: of the training episodes that begin at failing starts.
        max_loss: of the return before that a repair may cost.
        learner: settings of the host's learner for every arm, `{"lr": 0.001}`; the team's own otherwise.
        seeds: how many, from 0, or which ones.
        executions: fresh ones that decide.
        backend: `processes`, `dask` or `ray`,
        address: of the cluster,
        jobs: trainings at a time on this machine,
        timeout: seconds to wait for the cluster.
        **settings: of the search before, as in `test`; a run has its own.

    Raises:
        FairTestError: the team cannot be trained on, or something given cannot be used.
    """
    with in_python_words():
        _numbers(whole=True, steps=steps, executions=executions, jobs=1 if jobs is None else jobs)
        _numbers(share=share, max_loss=max_loss, timeout=timeout)
        _one_of("welfare", welfare, (None, "gini", "jain", "min"))
        _one_of("backend", backend, ("processes", "dask", "ray"))
        place, folder = team.path if isinstance(team, Result) else _path(team, "the team"), _path(out, "out")
        run = place if (place / "manifest.json").is_file() else None
        given, changed = {name: _plain(value) for name, value in settings.items()}, _learner(learner)
        said = {"steps": steps} | ({"learner": changed} if changed else {}) | given
        words = [repr(str(place)), repr(str(folder)), *(f"{name}={one!r}" for name, one in said.items())]
        request = Request(
            run, None if run else place, folder, f"fairtest.repair({', '.join(words)})", given, steps, welfare,
            _several("weight", weight), share, max_loss, _seeds(seeds), executions, backend, address, jobs, timeout,
            changed,
        )  # fmt: skip
        return _repaired(request)


@contextmanager
def in_python_words() -> Iterator[None]:
    """Errors name arguments as they are written in Python, not as in a host or on the command line."""
    try:
        yield
    except FairTestError as error:
        raise FairTestError(python_words(str(error))) from error.__cause__


def python_words(message: str) -> str:
    message = re.sub(r"fairtest run --resume ('[^']*'|\S+)", _resumed, message)
    message = re.sub(r"(?:fairtest_args\.|--set )(\w+)", r"\1", message)
    message = message.replace("--max-loss ", "max_loss=")
    return re.sub(rf"--({ARGUMENTS})\b ?", r"\1=", message)


def _resumed(command: re.Match[str]) -> str:
    return f"fairtest.resume({shlex.split(command[1])[0]!r})"


def _finished(started: Started) -> Result:
    try:
        started.finish(_warn, _observers(started.settings))
    except KeyboardInterrupt:
        raise KeyboardInterrupt(python_words(started.stopped())) from None
    return Result(read_run(started.folder.path), started.team)


def _repaired(request: Request) -> Repaired:
    try:
        document, _ = repaired(request, Listeners(_warn, lambda line: print(line, file=sys.stderr), _observers))
    except KeyboardInterrupt:
        kept = f"Stopped; what is finished is kept in {str(request.folder)!r}, and the same call continues."
        raise KeyboardInterrupt(kept) from None
    return Repaired(request.folder, document)


def _observers(settings: Settings) -> list[Observer]:
    bar = sys.stderr.isatty() or in_notebook()
    progress: Observer = Progress(settings, terminal=bar, say=lambda message: print(message, file=sys.stderr))
    return [progress, Page(beside_the_bar(_warn))] if settings.report else [progress]


def _warn(message: str) -> None:
    warnings.warn(python_words(message), stacklevel=2)


def _path(value: Any, what: str) -> Path:
    if not isinstance(value, str | os.PathLike) or not os.fspath(value):
        raise FairTestError(f"{what}: {value!r} is not allowed; give the path of a folder.")
    return Path(value)


def _plain(value: Any) -> Any:
    """A number of numpy is as good as one of Python."""
    if isinstance(value, np.generic):
        return value.item()
    return {name: _plain(one) for name, one in value.items()} if isinstance(value, Mapping) else value


def _live(policy: Any, env: Any, env_args: Mapping[str, Any] | None, time_limit: Any, given: Mapping[str, Any]) -> Team:
    lacking = [name for name in (*Policy.__annotations__, "forward") if not hasattr(policy, name)]
    if lacking:
        raise FairTestError(
            f"{policy!r} is neither a policy folder nor a policy: it has no {', '.join(lacking)} (docs/python.md)."
        )
    if not isinstance(env, str) or isinstance(time_limit, bool) or not isinstance(time_limit, int) or time_limit < 1:
        raise FairTestError(
            f"env={env!r} and time_limit={time_limit!r} are not allowed: a policy in memory needs env, the gymnasium id"
            " of its environment, and time_limit, the steps of its episodes, at least 1."
        )
    return live_team(policy, env, time_limit, env_args, str(given.get("allocation", "env")))


def _numbers(whole: bool = False, **given: Any) -> None:
    kinds: Any = int | np.integer if whole else int | float | np.number
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, kinds):
            raise FairTestError(f"{name}={value!r} is not allowed; give a {'whole ' if whole else ''}number.")


def _one_of(name: str, value: Any, allowed: tuple[Any, ...]) -> None:
    if value not in allowed:
        raise FairTestError(f"{name}={value!r} is not allowed; it must be {', '.join(str(one) for one in allowed)}.")


def _several(name: str, values: Any, whole: bool = False) -> tuple[Any, ...]:
    """None, one number or several."""
    if values is None:
        return ()
    found = tuple(values) if isinstance(values, Iterable) and not isinstance(values, str | Mapping) else (values,)
    for value in found:
        _numbers(whole, **{name: value})
    return tuple(map(_plain, found))


def _learner(learner: Any) -> dict[str, Any]:
    if not isinstance(learner or {}, Mapping):
        raise FairTestError(f'learner={learner!r} is not allowed; name settings and their values: {{"lr": 0.001}}.')
    return {name: _plain(value) for name, value in (learner or {}).items()}


def _seeds(seeds: Any) -> tuple[int, ...]:
    found = _several("seeds", seeds, whole=True)
    several = found if isinstance(seeds, Iterable) else tuple(range(found[0])) if found else ()
    if not several or len(set(several)) < len(several) or min(several) < 0:
        raise FairTestError(f"seeds={seeds!r} is not allowed; give how many (3), or different ones from 0 on ([3, 5]).")
    return several
