"""Where candidates come from, line 3 of Algorithm 1: random starts as in the paper, or starts that scout chooses."""

from __future__ import annotations

from collections.abc import Generator

from epymarl_fairtest.core.episodes import random_tests
from epymarl_fairtest.core.judged import Judged
from epymarl_fairtest.core.ledger import CANDIDATE, purpose
from epymarl_fairtest.strategies.contract import Context, Request, Search
from epymarl_fairtest.strategies.scout.lookout import Lookout
from epymarl_fairtest.strategies.scout.options import ScoutOptions
from epymarl_fairtest.strategies.scout.search import look_and_execute

SCOUTED = purpose("scouted", "candidates that scout chose (the paper's are random, and not counted)", strict=True)
Pool = Generator[Request, Judged, Judged]


class RandomCandidates:
    """The paper's."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def learn(self, executed: Judged) -> None:
        """Random executions for the predictor: nothing to learn for who chooses at random."""

    def pool(self, count: int, r: int) -> Pool:
        """The executed candidates of round `r`."""
        tests = random_tests(count, self._context.task.state_size, self._context.generator("candidates", r))
        return (yield Request(tests, CANDIDATE))

    def rest(self, count: int) -> Search:
        """What the search leaves of the budget stays unspent."""
        yield from ()


class ScoutedCandidates(RandomCandidates):
    """Scout as a source of candidates. A share of them is random, as among scout's own executions."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._lookout, self._generator = Lookout(context, ScoutOptions()), context.generator("scouted")

    def learn(self, executed: Judged) -> None:
        self._lookout.learn(executed)

    def pool(self, count: int, r: int) -> Pool:
        """Chosen batch by batch: what a batch shows guides the choice of the next one."""
        parts: list[Judged] = []
        while count > 0:
            executed = yield from look_and_execute(
                self._context, self._lookout, count, self._generator, SCOUTED, CANDIDATE
            )
            parts += executed
            count -= sum(map(len, executed))
        return Judged.concatenate(parts)

    def rest(self, count: int) -> Search:
        """What is left is scouted, where candidates are charged: elsewhere it would never end."""
        while self._context.settings.accounting == "strict":
            yield from self.pool(count, 0)


def candidates_of(context: Context) -> RandomCandidates:
    if context.options.candidates == "random":
        return RandomCandidates(context)
    if not context.task.state_size:
        context.warn(
            f"The task {context.task.name!r} does not show its states here: candidates are random, not scouted."
        )
        return RandomCandidates(context)
    return ScoutedCandidates(context)
