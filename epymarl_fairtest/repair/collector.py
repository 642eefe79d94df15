"""Episodes for a training: the team as it is at the moment plays, in the twin where there is one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from epymarl_fairtest.core.episodes import Episodes, Tests, operator_code, random_tests
from epymarl_fairtest.curve.player import Current
from epymarl_fairtest.engine.contract import ActionRule
from epymarl_fairtest.engine.lockstep import Lockstep
from epymarl_fairtest.engine.selection import make_engine, twin_of
from epymarl_fairtest.repair.contract import Starts
from epymarl_fairtest.settings import Settings
from epymarl_fairtest.team.contract import Policy, Team


class Collector:
    """One engine, proved once; team and exploration change from batch to batch."""

    def __init__(self, team: Team, settings: Settings, warn: Callable[[str], None]) -> None:
        self._team, self._current = team, Current(team.policy)
        engine = make_engine(replace(team, policy=self._current), settings, warn)
        self._kernel = twin_of(team) if engine.name == "twin" else None
        self._real = engine if isinstance(engine, Lockstep) else None
        self.engine = engine.name

    def play(self, policy: Policy, tests: Tests, epsilon: float, execution: str = "epsilon_greedy") -> Episodes:
        team, rule = self._team, ActionRule(execution, epsilon, 1.0, self._team.available)
        if self._real is not None:
            self._current.policy, self._real.rule, self._real.keeps_obs = policy, rule, True
            return self._real.execute(tests)
        from epymarl_fairtest.engine.twin import Twin

        assert self._kernel is not None
        return Twin(self._kernel, policy, rule, limit=team.limit, state_size=team.task.state_size).execute(tests)


def some_tests(count: int, team: Team, starts: Starts | None, share: float, generator: np.random.Generator) -> Tests:
    """Fresh seeds, but for a share of the tests, which begin where `starts` do."""
    tests = random_tests(count, team.task.state_size, generator)
    given = round(share * count) if starts is not None and len(starts) else 0
    if not given:
        return tests
    assert starts is not None
    chosen = generator.integers(0, len(starts), given)
    tests.root_seed[:given] = starts.seeds[chosen]
    if starts.states.shape[1]:
        tests.start_state[:given] = starts.states[chosen]
        tests.operator[:given] = operator_code("state")
    return tests
