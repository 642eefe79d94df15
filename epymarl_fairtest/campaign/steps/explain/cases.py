"""The failures that are explained together, and tests that continue them from any of their steps.

Where states can be written back a continuation begins in the recorded state. Elsewhere it begins with the seed and
repeats the recorded actions up to its step: that costs the whole episode and says the same.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.campaign.steps.contract import Aftermath, Execute
from epymarl_fairtest.core import rng
from epymarl_fairtest.core.episodes import Episodes, Remembered, Tests, operator_code, tests_from_seeds
from epymarl_fairtest.core.judged import places_of

AT_ONCE = 16384  # tests of one request: more would only hold more memory
REMEMBERED = 2**27  # bytes of what agents carry from step to step that are held at once
Answer = TypeVar("Answer")
Asking = Generator[Execute, Episodes, Answer]
Array = NDArray[np.float64]
Rows = NDArray[np.int64]
Actions = NDArray[np.int16]
Greedy = bool | NDArray[np.bool_]  # does the whole team never explore; or which agents do not, test by test


@dataclass(frozen=True)
class Cases:
    """Some failures, with what a continuation needs; a row is a case."""

    context: Aftermath
    episodes: Episodes
    past: Episodes  # what a continuation carries on from: no Q-values, what the agents saw where an engine needs that
    received: Array  # (cases, judged agents)
    memory: NDArray[np.float32] | None = None  # (cases, steps + 1, agents, H) what the agents carry into executed steps

    @staticmethod
    def of(context: Aftermath, failures: Episodes) -> Cases:
        nothing = np.empty((*failures.actions.shape, 0), np.float32)
        past = replace(failures, q=nothing, obs=nothing)
        if context.needs_obs and context.team.task.restorable:
            past = replace(past, obs=context.look(replace(past, start_step=failures.length)).obs)
        if not context.team.policy.hidden_size:  # only a memory needs to know where everybody was
            past = replace(past, states=failures.states[..., :0])
        return Cases(context, failures, past, context.judge.received(failures.rewards))

    def __len__(self) -> int:
        return len(self.episodes)

    @property
    def can_remember(self) -> int:
        """Of how many cases may be held what the agents carry from step to step?"""
        team = self.context.team
        each = 4 * (self.episodes.limit + 1) * len(team.available) * team.policy.hidden_size
        return REMEMBERED // each if each and team.task.restorable else 0

    @property
    def agents(self) -> list[int]:
        """Where the judged agents stand among the environment's."""
        return places_of(self.context.judge.agents, len(self.context.team.available))

    @property
    def first(self) -> NDArray[np.int32]:
        """The step from which the team's own decisions can be changed: before it everything is the parent's."""
        return self.episodes.start_step

    @property
    def decided(self) -> NDArray[np.bool_]:
        """(cases, steps): the steps that were executed."""
        return self.episodes.running & (np.arange(self.episodes.limit) >= self.first[:, None])

    def streams(self, what: str, count: int) -> NDArray[np.uint64]:
        """(cases, count) fresh streams for this question; a failure has its own, whoever else is explained."""
        return streams(self.context.generator("explain", what), self.episodes.id, count)

    def tests(
        self,
        case: Rows,
        step: NDArray[np.integer],
        stream: NDArray[np.uint64] | None = None,
        forced: Actions | None = None,
        *,
        at_start: Actions | None = None,
        greedy: Greedy = False,
    ) -> Tests:
        """These cases from these steps on; with their own streams unless others are given.

        Without a memory the states before those steps are left out: mostly only what agents receive is wanted.
        """
        past = self.past
        tests = Tests(
            root_seed=past.root_seed[case],
            stream=past.stream[case] if stream is None else stream,
            shift=past.shift[case],
            start_step=np.asarray(step, np.int32),
            start_state=self.episodes.states[case, step],
            operator=np.full(len(case), operator_code("action"), np.int8),
            parent=past.id[case],
            forced=forced,
            prefix=past,
            memory=None if self.memory is None else self.memory[case, step],
            at_start=at_start,
            of=case,
        )
        if greedy is not False:
            tests.greedy = np.broadcast_to(greedy, (len(case), past.actions.shape[-1]))
        return tests if self.context.team.task.restorable else _from_seeds(tests, past.limit)

    def together(self, case: Rows, step: NDArray[np.integer]) -> Rows:
        """The order in which continuations are executed. Those of a case may meet, and go on as one. With a memory
        nobody meets, and those that begin together end together: no request waits for a few."""
        return np.argsort(step if self.context.team.policy.hidden_size else case, kind="stable")

    def unforced(self, count: int) -> Actions:
        """Room for forced actions of so many tests, none of which is forced yet."""
        return np.full((count, *self.episodes.actions.shape[1:]), -1, np.int16)

    def outcomes(
        self,
        case: Rows,
        step: NDArray[np.integer],
        stream: NDArray[np.uint64] | None = None,
        decisions: Decisions | Plans | None = None,
        *,
        greedy: Greedy = False,
    ) -> Asking[Array]:
        """What the judged agents receive in these continuations (tests, judged agents)."""
        received = np.empty((len(case), self.received.shape[1]))
        order = self.together(case, step)
        for start in range(0, len(case), AT_ONCE):
            now = order[start : start + AT_ONCE]
            own = greedy if isinstance(greedy, bool) else greedy[now]
            drawn = None if stream is None else stream[now]
            forced: dict[str, Any] = {} if decisions is None else decisions.forced(self, case[now], now)
            episodes = yield Execute(self.tests(case[now], step[now], drawn, **forced, greedy=own), course=False)
            received[now] = self.context.judge.received(episodes.rewards)
        return received


def remembered(cases: Cases) -> Asking[Cases]:
    """The cases with what their agents remembered: executed once more instead of computed again for every question."""
    if len(cases) > cases.can_remember:
        return cases
    again = yield Execute(cases.tests(np.arange(len(cases)), cases.first, None, cases.episodes.actions), memory=True)
    if not isinstance(again, Remembered):  # the engine keeps none
        return cases
    return replace(cases, past=replace(cases.past, states=cases.past.states[..., :0]), memory=again.memory)


def _from_seeds(tests: Tests, limit: int) -> Tests:
    """The same where nothing can be restored: from the seed, repeating what was done before."""
    tests = tests.plain(limit)
    assert tests.prefix is not None
    again = tests_from_seeds(tests.root_seed, tests.stream, tests.start_state.shape[1], "action")
    before = np.arange(limit)[None, :, None] < tests.start_step[:, None, None]
    then: Any = -1 if tests.forced is None else tests.forced
    again.forced = np.where(before, tests.prefix.actions, then).astype(np.int16)
    again.shift, again.parent, again.greedy = tests.shift, tests.parent, tests.greedy
    return again


def streams(generator: np.random.Generator, numbers: NDArray[np.int64], count: int) -> NDArray[np.uint64]:
    """(numbers, count) streams; those of a number depend on the generator's first draw and on itself alone."""
    first = generator.integers(0, 2**64, 1, dtype=np.uint64)
    of_number = rng.words(first, numbers)
    return rng.words(of_number[:, None], np.arange(count))


@dataclass(frozen=True)
class Decisions:
    """One decision per test: at this step this agent does that, and the others what they did; none where it is agent
    -1. Arrays of one length."""

    step: Rows
    agent: Rows
    action: Rows

    def __len__(self) -> int:
        return len(self.step)

    def take(self, rows: Any) -> Decisions:
        return Decisions(self.step[rows], self.agent[rows], self.action[rows])

    def forced(self, cases: Cases, case: Rows, rows: Rows) -> dict[str, Any]:
        """What tests force that go on, each in its case, from the step of one of the decisions at `rows`."""
        agents = np.arange(cases.episodes.actions.shape[2])
        did = cases.episodes.actions[case, self.step[rows].clip(0)]  # nobody decides at step -1
        then = np.where(agents == self.agent[rows, None], self.action[rows, None], did)
        return {"at_start": np.where(self.agent[rows, None] >= 0, then, -1).astype(np.int16)}


@dataclass(frozen=True)
class Plans:
    """Many decisions per test (tests, steps, agents), -1 where the team chooses."""

    actions: Actions

    def take(self, rows: Any) -> Plans:
        return Plans(self.actions[rows])

    def forced(self, cases: Cases, case: Rows, rows: Rows) -> dict[str, Any]:
        return {"forced": self.actions[rows]}
