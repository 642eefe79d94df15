"""Which engine executes the tests: the twin of the environment where it proves itself, else the environment."""

from __future__ import annotations

from collections.abc import Callable

from epymarl_fairtest.core import rng
from epymarl_fairtest.core.clock import Clock
from epymarl_fairtest.core.episodes import random_tests
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.engine.contract import ActionRule, Engine
from epymarl_fairtest.engine.crew import Crew, can_fork
from epymarl_fairtest.engine.lockstep import Lockstep
from epymarl_fairtest.settings import Settings
from epymarl_fairtest.tasks import TASKS
from epymarl_fairtest.tasks.contract import Kernel
from epymarl_fairtest.team.contract import Team


def action_rule(team: Team, settings: Settings) -> ActionRule:
    """How this team picks its actions when it is tested."""
    kind = settings.played_by(team.policy.reading).execution
    return ActionRule(kind, settings.epsilon, settings.temperature, team.available)


def real_engine(team: Team, settings: Settings) -> Lockstep:
    """The environment itself; inside a host, its own wrappers and controller."""
    rule = action_rule(team, settings)
    size = {"limit": team.limit, "state_size": team.task.state_size}
    processes = settings.workers or 1
    if processes > 1 and can_fork():
        return Crew(team.make_world, team.policy, rule, **size, workers=processes)
    return Lockstep(team.make_world, team.policy, rule, **size)


def make_engine(
    team: Team,
    settings: Settings,
    warn: Callable[[str], None],
    *,
    real: Lockstep | None = None,
    clock: Clock | None = None,
) -> Engine:
    """The twin of the environment where there is one and it proves itself, the environment itself otherwise."""
    real, clock = real or real_engine(team, settings), clock or Clock()
    if settings.engine == "lockstep":
        return real
    try:
        from epymarl_fairtest.engine.twin import Twin, prove
    except ImportError as error:  # numba
        if settings.engine == "twin":
            raise FairTestError(f"engine=twin needs numba ({error}): pip install numba, or use engine=auto.") from error
        return real
    kernel = twin_of(team)
    if kernel is None:
        if settings.engine == "twin":
            raise _no_twin(team)
        return real
    threads = settings.threads if team.policy.thread_safe else 1
    twin = Twin(kernel, team.policy, real.rule, limit=real.limit, state_size=real.state_size, threads=threads)
    how = (team.policy, real.rule.kind, real.rule.epsilon, real.rule.temperature)
    if settings.engine == "auto" and how not in team.proven:
        twin.execute(random_tests(1, real.state_size, rng.named(0, "compiling")))
        with clock.phase("proof"):
            proven = prove(twin, real, team.task.state_size)
        if not proven:
            warn(
                "The compiled twin does not agree bit for bit with the real environment on this machine: FairTest uses"
                " the real one (engine=lockstep), which is slower. Please report the versions in manifest.json."
            )
            return real
        team.proven.add(how)
    return twin


def twin_of(team: Team) -> Kernel | None:
    """The twin of the team's environment; None where there is none, or none that knows this variant of it."""
    if team.environment is None:
        return None
    try:
        return team.task.twin(team.environment, team.allocation)
    except (ValueError, AttributeError):
        return None


def _no_twin(team: Team) -> FairTestError:
    known = [task.twins for task in TASKS.values() if task.twins]
    return FairTestError(
        f"engine=twin: there is no twin of {team.origin.get('key', team.task.name)!r} with"
        f" allocation={team.allocation!r}; use engine=auto or lockstep. Twins exist for {', '.join(known)}."
    )
