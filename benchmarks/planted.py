"""Is a wrong decision found that was planted in a fair execution? Asked by benchmarks.explain; it defines the words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.subjects import BATCH, MOST_TRIES, OTHER, TOGETHER, Subject
from epymarl_fairtest.campaign.steps.contract import Execute
from epymarl_fairtest.campaign.steps.explain import answers
from epymarl_fairtest.campaign.steps.explain.arms import ERRORS, ERRORS_OF_SLIPS, both_arms, own_choice
from epymarl_fairtest.campaign.steps.explain.better import compared
from epymarl_fairtest.campaign.steps.explain.cases import Cases, Decisions
from epymarl_fairtest.core import rng
from epymarl_fairtest.core.episodes import Episodes, random_tests
from epymarl_fairtest.engine.contract import Engine

Mask = NDArray[np.bool_]
MANY = 1000  # streams, where OTHER leave it open


@dataclass(frozen=True)
class Undone:
    """Case by case: what does undoing the fault do?"""

    better: Mask  # than the failure, under its own exploration
    enough: Mask  # on OTHER streams
    enough_on_many: Mask
    surely: Mask  # by two standard errors on MANY


@dataclass(frozen=True)
class Planted:
    """Fair executions that one wrong decision made unfair, and the team that makes it."""

    episodes: Episodes
    step: NDArray[np.int64]
    agent: NDArray[np.int64]
    action: NDArray[np.int64]  # the wrong one
    own: NDArray[np.int64]  # what the team did

    def execute(self, engine: Engine) -> Callable[[Execute], Episodes]:
        """The faulty team: its wrong decision is made in every continuation, unless another one is forced there."""

        def run(wanted: Execute) -> Episodes:
            tests = wanted.tests
            shape = (len(tests), *self.episodes.actions.shape[1:])
            forced = np.full(shape, -1, np.int16) if tests.forced is None else tests.forced.copy()
            rows, case = np.arange(len(tests)), tests.parent
            there = forced[rows, self.step[case], self.agent[case]]
            forced[rows, self.step[case], self.agent[case]] = np.where(there < 0, self.action[case], there)
            return replace(wanted, tests=replace(tests, forced=forced)).by(engine, engine)

        return run


def plants(subject: Subject, count: int) -> Planted:
    generator = rng.named(subject.seed, "plants", subject.name)
    team = subject.context.team
    parts: list[Episodes] = []
    kept: list[tuple[NDArray[np.int64], ...]] = []
    while sum(len(part) for part in parts) < count and len(kept) < MOST_TRIES:
        tests = random_tests(BATCH, team.task.state_size, generator)
        before = subject.judge(subject.engine.execute(tests))
        fair = np.flatnonzero(~before.unfair & ~before.undefined)
        step = (generator.random(len(fair)) * before.episodes.length[fair]).astype(np.int64)
        agent = generator.integers(0, team.task.n_agents, len(fair))
        own = before.episodes.actions[fair, step, agent].astype(np.int64)
        action = (own + generator.integers(1, team.policy.n_actions, len(fair))) % team.policy.n_actions
        wrong = tests.take(fair)
        wrong.forced = np.full((len(fair), team.limit, team.task.n_agents), -1, np.int16)
        wrong.forced[np.arange(len(fair)), step, agent] = action
        after = subject.judge(subject.engine.execute(wrong))
        rows = np.flatnonzero(after.unfair)
        parts.append(after.episodes.take(rows))
        kept.append((step[rows], agent[rows], action[rows], own[rows]))
    episodes = Episodes.concatenate(parts).take(slice(0, count))
    episodes.id = np.arange(len(episodes))
    columns = [np.concatenate([one[n] for one in kept])[:count] for n in range(4)]
    return Planted(episodes, *columns)


def undoing(subject: Subject, cases: Cases, undone: Decisions, execute: Callable[[Execute], Episodes]) -> Undone:
    """Does undoing help under the rules of a shown decision? MANY streams for those that may be enough on OTHER."""
    rows = np.arange(len(cases))
    received = subject.ask(cases.outcomes(rows, undone.step, None, undone), execute)
    better = compared(subject.judge, cases.received, received).better
    drawn = cases.streams("other", MANY)
    few = subject.ask(both_arms(cases, rows, undone, drawn[:, :OTHER]), execute).arms
    again = np.flatnonzero(few.may_be_clear(ERRORS_OF_SLIPS) & better)
    more = subject.ask(both_arms(cases, again, undone.take(again), drawn[:, OTHER:]), execute).arms
    many = few.take(again) + more
    enough_on_many, surely = np.zeros(len(cases), bool), np.zeros(len(cases), bool)
    enough_on_many[again], surely[again] = many.clear(cases, again), many.clear(cases, again, ERRORS)
    return Undone(better, few.clear(cases, rows) & better, enough_on_many, surely)


def planted(subject: Subject, count: int) -> dict[str, Any]:
    found = plants(subject, count)
    execute = found.execute(subject.engine)
    counts: Counter[str] = Counter()
    for start in range(0, len(found.episodes), TOGETHER):
        rows = np.arange(start, min(start + TOGETHER, len(found.episodes)))
        cases = Cases.of(subject.context, found.episodes.take(rows))
        undone = Decisions(found.step[rows], found.agent[rows], found.own[rows])
        undo = undoing(subject, cases, undone, execute)
        wrong = found.action[rows] != own_choice(cases, np.arange(len(cases)), undone)
        decisions = subject.ask(answers(cases), execute).decisions
        for case in range(len(cases)):
            mine = [(one.step, one.agent) for one in decisions if one.case == case]
            place = (int(undone.step[case]), int(undone.agent[case]))
            for name, holds in readings(undo, wrong).items():
                counts[name] += int(holds[case])
                counts[f"{name}: shown"] += int(holds[case] and place in mine)
                counts[f"{name}: first"] += int(holds[case] and mine[:1] == [place])
    return {"team": subject.name, **counts}


def readings(undo: Undone, wrong: Mask) -> dict[str, Mask]:
    """Which plants count, by what is asked of undoing them; and of those only the wrong ones."""
    of = {
        "plants": np.ones(len(wrong), bool),
        "better": undo.better,
        "enough": undo.enough,
        "enough on 1,000": undo.enough_on_many,
        "surely": undo.surely,
    }
    return of | {f"{name}, wrong": holds & wrong for name, holds in of.items()}
