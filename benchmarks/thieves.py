"""Is an agent named whose policy was replaced? Asked by benchmarks.explain; it defines the words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.subjects import BATCH, MOST_TRIES, OTHER, TOGETHER, Subject
from epymarl_fairtest.campaign.steps.contract import Execute
from epymarl_fairtest.campaign.steps.explain import answers
from epymarl_fairtest.campaign.steps.explain.arms import LEAST_DROP, Arms
from epymarl_fairtest.campaign.steps.explain.better import compared
from epymarl_fairtest.campaign.steps.explain.cases import Cases
from epymarl_fairtest.core import rng
from epymarl_fairtest.core.episodes import Episodes, random_tests
from epymarl_fairtest.engine.contract import ActionRule, Engine
from epymarl_fairtest.engine.selection import twin_of
from epymarl_fairtest.engine.twin import Twin
from epymarl_fairtest.tasks.contract import Kernel


class Thieving:
    """A task's rules, under which one agent has another policy: it takes the action of most worth over two steps.
    Where all have the same it does as the team's policy says."""

    def __init__(self, kernel: Kernel, thief: int, actions: int, worth: Callable[[Any, Any], Any]) -> None:
        self._kernel, self._thief, self._actions, self._worth_of = kernel, thief, actions, worth
        self.reset, self.observe = kernel.reset, kernel.observe

    def step(self, states: Any, running: Any, actions: Any, rewards: Any, over: Any, steps: Any) -> None:
        own = actions[:, self._thief].copy()
        bid = own >= self._actions  # forced by an explanation: it is done as asked
        own[bid] -= self._actions
        best, value = own.copy(), self._worth(states, running, actions, own, over, steps)
        for action in range(self._actions):
            other = np.full_like(own, action)
            worth = self._worth(states, running, actions, other, over, steps)
            best, value = np.where(worth > value, other, best), np.maximum(worth, value)
        actions[:, self._thief] = np.where(bid, own, best)
        self._kernel.step(states, running, actions, rewards, over, steps)

    def _worth(self, states: Any, running: Any, actions: Any, own: Any, over: Any, steps: Any) -> Any:
        """Everybody does the same twice: in the particle world a push moves nobody before the step after it."""
        actions, states, over, steps = actions.copy(), states.copy(), over.copy(), steps.copy()
        actions[:, self._thief] = own
        total = np.zeros((len(states), actions.shape[1]))
        for _ in range(2):
            rewards, on = np.zeros_like(total), running & ~over
            self._kernel.step(states, on, actions, rewards, over, steps)
            total += rewards
            steps += on
        mine = total[:, self._thief]
        return np.round(self._worth_of(mine, (total.sum(axis=1) - mine) / max(actions.shape[1] - 1, 1)), 9)


REPLACED: dict[str, Callable[[Any, Any], Any]] = {
    "thief": lambda mine, others: mine - others,  # takes most, compared with the others
    "idler": lambda mine, others: -mine,  # takes least
}


def thieves(subject: Subject, kind: str) -> list[Engine]:
    """The team with another policy in the place of each agent."""
    team = subject.context.team
    kernel = twin_of(team)
    assert kernel is not None
    rule = ActionRule("epsilon_greedy", subject.context.settings.epsilon, 1.0, team.available)
    made: list[Engine] = []
    for agent in range(team.task.n_agents):
        other: Any = Thieving(kernel, agent, team.policy.n_actions, REPLACED[kind])
        made.append(Twin(other, team.policy, rule, limit=team.limit, state_size=team.task.state_size))
        made[-1].keeps_obs = False
    return made


def stolen(subject: Subject, engine: Engine, thief: int) -> Callable[[Execute], Episodes]:
    """Executes the team with its thief, which acts as the team's policy says where a test asks that of it."""

    def run(wanted: Execute) -> Episodes:
        tests = wanted.tests.plain(subject.context.team.limit)
        honest = np.zeros(len(tests), bool) if tests.greedy is None else tests.greedy[:, thief]
        forced = None if tests.forced is None else tests.forced.copy()
        if forced is not None:
            forced[:, :, thief] += np.where(forced[:, :, thief] >= 0, subject.context.team.policy.n_actions, 0)
        parts = [np.flatnonzero(~honest), np.flatnonzero(honest)]
        with_thief = replace(wanted, tests=replace(tests, forced=forced).take(parts[0])).by(engine, engine)
        without = replace(wanted, tests=tests.take(parts[1])).by(subject.engine, subject.engine)
        return Episodes.concatenate([with_thief, without]).take(np.argsort(np.concatenate(parts)))

    return run


def robbed(subject: Subject, engine: Engine, kind: str, thief: int, count: int) -> Episodes:
    """Random executions that are fair, and unfair with the thief."""
    generator = rng.named(subject.seed, kind, subject.name, thief)
    parts: list[Episodes] = []
    while sum(map(len, parts)) < count and len(parts) < MOST_TRIES:
        tests = random_tests(BATCH, subject.context.team.task.state_size, generator)
        before = subject.judge(subject.engine.execute(tests))
        after = subject.judge(engine.execute(tests))
        parts.append(after.episodes.take(after.unfair & ~before.unfair & ~before.undefined))
    episodes = Episodes.concatenate(parts).take(slice(0, count))
    episodes.id = np.arange(len(episodes))
    return episodes


def thief(subject: Subject, count: int, kind: str = "thief") -> dict[str, Any]:
    counts: Counter[str] = Counter()
    for agent, engine in enumerate(thieves(subject, kind)):
        episodes = robbed(subject, engine, kind, agent, count // 3)
        counts["unfair"] += len(episodes)
        execute = stolen(subject, engine, agent)
        for start in range(0, len(episodes), TOGETHER):
            cases = Cases.of(subject.context, episodes.take(slice(start, start + TOGETHER)))
            enough = replaced(subject, cases, agent, execute)
            responsible = subject.ask(answers(cases), execute).responsible
            for case in range(len(cases)):
                named = responsible[case].agent if case in responsible else None
                counts["enough"] += int(enough[case])
                counts["enough: named"] += int(enough[case] and named == agent)
                counts["enough: another named"] += int(enough[case] and named not in (None, agent))
                counts["named"] += int(named == agent)
                counts["another named"] += int(named not in (None, agent))
    return {"team": subject.name, **counts}


def idler(subject: Subject, count: int) -> dict[str, Any]:
    return thief(subject, count, "idler")


def replaced(subject: Subject, cases: Cases, agent: int, execute: Callable[[Execute], Episodes]) -> NDArray[np.bool_]:
    """Is it enough that the thief acts as the team's policy says?"""
    judge, rows = subject.judge, np.arange(len(cases))
    alone = np.tile(np.arange(subject.context.team.task.n_agents) == agent, (len(cases), 1))
    once = subject.ask(cases.outcomes(rows, cases.first, greedy=alone), execute)
    fair = compared(judge, cases.received, once).fair
    of = rows.repeat(OTHER)
    drawn = cases.streams("other", OTHER).ravel()
    both = np.stack(
        [
            subject.ask(cases.outcomes(of, cases.first[of], drawn, greedy=own), execute)
            for own in (np.zeros_like(alone)[of], alone[of])
        ]
    )
    unfair = np.stack([judge.unfair(part) for part in both]).reshape(2, -1, OTHER)
    totals = both.reshape(2, len(cases), OTHER, -1).sum(axis=2)
    arms = Arms(OTHER, unfair.sum(axis=2), (unfair[0] != unfair[1]).sum(axis=1), totals)
    enough: NDArray[np.bool_] = fair & (arms.drop >= LEAST_DROP)
    return enough
