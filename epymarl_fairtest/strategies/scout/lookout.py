"""The lookout: which starts are worth executing next?

Whoever takes the most unfair starts alone digs in one place. So starts keep their distance from failing ones, some lie
in cells that no failure went through, and every agent that may come off worst has a quota.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core.episodes import Tests, random_tests
from epymarl_fairtest.core.judged import Judged
from epymarl_fairtest.strategies.contract import Context
from epymarl_fairtest.strategies.scout.known import Array, Known, Rows
from epymarl_fairtest.strategies.scout.options import ScoutOptions
from epymarl_fairtest.strategies.scout.proposals import Parents, breed
from epymarl_fairtest.strategies.scout.surrogate import Surrogate
from epymarl_fairtest.strategies.starts import starting_from

MOST_AT_ONCE = 5_000  # executions of one batch, whatever the growth: what is looked at must fit memory
FEWEST_PARENTS = 20  # where fewer starts have failed, the least fair ones are bred from
REFUSED_OFTEN = 0.9  # share of the bred starts that a task's rules may refuse before it is said
SHRINKING, TRIES = 0.7, 8  # where too few starts are far enough apart, the distance shrinks, so often
FAR, NEAR, FRONTIER = 0, 1, 2  # what a start was chosen for


@dataclass(frozen=True)
class Chosen:
    """Tests, what each was chosen for, and which judged agent is expected to come off worst."""

    tests: Tests
    reason: Rows
    worst: Rows


class Lookout:
    """Looks at starts, chooses some, and learns from what became of them."""

    def __init__(self, context: Context, options: ScoutOptions) -> None:
        self._context, self._options, self._task = context, options, context.task
        self._known = Known(context)
        agents = self._known.received.shape[1]
        self._of_reason, self._of_worst = np.ones(3), np.ones(agents)  # shares of failures, lately
        self._unfair, self._random = 0, 0  # of the executions that nobody chose
        own = context.settings.distinct_distance
        self._distance = self._task.distinct_distance if own is None else own
        self._warned = False

    def __len__(self) -> int:
        return len(self._known)

    def next_batch(self, most: int) -> tuple[int, int]:
        """How many executions come next, at most `most`: chosen ones, and ones that nobody chooses."""
        batch = max(self._options.batch, int(self._options.growth * len(self)))
        batch = max(min(batch, MOST_AT_ONCE, most), 1)
        if not len(self):  # nothing is known yet that a choice could be made by
            return 0, batch
        unguided = min(round(self._options.unguided * batch), batch - 1)
        return batch - unguided, unguided

    def learn(self, judged: Judged, chosen: Chosen | None = None) -> None:
        """What became of starts; where they were `chosen`, also whether the choice was good."""
        self._known.add(judged)
        if chosen is None:
            self._unfair += int(judged.unfair.sum())
            self._random += len(judged)
        else:  # the budget may have cut the last of them
            _remember(self._of_reason, chosen.reason[: len(judged)], judged.unfair)
            _remember(self._of_worst, chosen.worst[: len(judged)], judged.unfair)

    def choose(self, count: int, rng: np.random.Generator) -> Chosen:
        """So many starts to execute, of fresh seeds and of starts bred from failing ones."""
        known, options, clock = self._known, self._options, self._context.clock
        with clock.phase("surrogate"):
            surrogate = self._surrogate(rng)
        seeds, fresh, bred, parents = self._look(count, rng)
        states = np.concatenate([fresh, bred])
        with clock.phase("surrogate"):
            expected = surrogate.received(known.features(states))
        index, worst = self._context.judge.index(expected), expected.argmin(axis=1)
        index = np.where(np.isnan(index), 1.0, index)
        with clock.phase("spacing"):
            first = new_cells(known.cells(states), known.covered, index)[: round(options.frontier * count)]
            promising = most_promising(index, worst, self._widened(options.best), count)
            order = np.concatenate([first, promising[~np.isin(promising, first)]])
            chosen, reason = self._apart(states[order], worst[order], len(first), count)
        rows = order[chosen]
        is_bred = rows >= len(fresh)
        made = starting_from(states[rows[is_bred]], rng)
        made.parent = known.ids[parents[rows[is_bred] - len(fresh)]]
        tests = Tests.concatenate([seeds.take(rows[~is_bred]), made])
        as_tests = np.argsort(is_bred, kind="stable")
        return Chosen(tests, reason[as_tests], worst[rows][as_tests])

    def _widened(self, share: float) -> float:
        """Larger the higher the natural rate is so far: where many starts are unfair, to be picky only narrows."""
        rate = self._unfair / max(self._random, 1)
        return widened(share, self._options.widening * rate)

    def _surrogate(self, rng: np.random.Generator) -> Surrogate:
        known, options, rows = self._known, self._options, np.arange(len(self))
        if len(rows) > options.rows:
            rows = np.sort(rng.choice(len(rows), options.rows, replace=False))
        return Surrogate(known.features(known.states[rows]), known.received[rows], options)

    def _look(self, count: int, rng: np.random.Generator) -> tuple[Tests, Array, Array, Rows]:
        """Tests of fresh seeds and their starts; bred starts and the row of each one's parent."""
        looks, share = self._options.looks * count, 1.0
        if self._task.proposable:  # elsewhere each look is a reset of the real environment
            looks, share = max(looks, self._options.least_looks), self._widened(self._options.fresh)
        seeds = random_tests(max(1, round(share * looks)), self._task.state_size, rng)
        fresh = self._context.initial_states(seeds.root_seed)
        wanted = looks - len(seeds)
        if wanted <= 0:
            return seeds, fresh, fresh[:0], np.empty(0, np.int64)
        with self._context.clock.phase("breeding"):
            bred, parents, tried = self._bred(wanted, fresh, rng)
        self._context.count("bred", tried)
        self._context.count("bred_refused", tried - len(bred))
        if tried - len(bred) > REFUSED_OFTEN * tried and not self._warned:
            self._warned = True
            self._context.warn(
                f"The rules of the task {self._task.name!r} refused {tried - len(bred)} of {tried} bred starts: scout"
                " chooses among fresh seeds instead."
            )
        return seeds, fresh, bred, parents

    def _bred(self, count: int, fresh: Array, rng: np.random.Generator) -> tuple[Array, Rows, int]:
        known, radius = self._known, self._options.radius * self._distance
        rows = known.least_fair(FEWEST_PARENTS)
        parents = Parents(known.states[rows], known.places(known.states[rows]), known.worst_off(rows), radius)
        states, parent, tried = breed(parents, fresh, count, self._task, rng)
        return states, rows[parent], tried

    def _apart(self, states: Array, worst: Rows, given: int, count: int) -> tuple[Rows, Rows]:
        """The rows to take, and why: the `given` first ones, then the first that keep one of the two distances."""
        from epymarl_fairtest.strategies.scout.spacing import compared_with_none, on_a_line, take_apart

        known, options = self._known, self._options
        distances = {FAR: options.far * self._distance, NEAR: options.near * self._distance}
        places = known.places(states)
        failing = known.places(known.states[known.unfair]) if known.unfair.any() else places[:0]
        failing, line = on_a_line(failing)
        starts, taken, done = compared_with_none(places, line), np.arange(count), given
        reason = np.full(count, FRONTIER)
        far = given + round(_share(self._of_reason[FAR], self._of_reason[NEAR], options.least_share) * (count - given))
        for why, until in ((FAR, far), (NEAR, count)):
            quota, distance = _quotas(self._of_worst, options.least_quota, until - done), distances[why]
            for attempt in range(2 * TRIES):
                if attempt == TRIES:  # not every agent's quota can be filled
                    quota[:] = count
                before = done
                done = take_apart(starts, failing, line, worst, quota, distance, taken, done, until)
                reason[before:done] = why
                if done == until:
                    break
                distance *= SHRINKING
        if not done:  # every start is a failing one again: a search that executes nothing would never end
            done = min(count, len(places))
            reason[:] = NEAR
        return taken[:done], reason[:done]


def widened(share: float, more: float) -> float:
    """The share, and so much more of the rest."""
    return share + (1 - share) * min(more, 1.0)


def new_cells(cells: Rows, covered: Rows, index: Array) -> Rows:
    """The start with the lowest index in each cell that is not covered, lowest first."""
    order = np.argsort(index, kind="stable")
    order = order[~np.isin(cells[order], covered)]
    return order[np.sort(np.unique(cells[order], return_index=True)[1])]


def most_promising(index: Array, worst: Rows, share: float, count: int) -> Rows:
    """The `share` of the starts with the lowest index, for each agent that may come off worst; lowest first."""
    order = np.argsort(index, kind="stable")
    rank = np.empty(len(order), np.int64)
    for agent in np.unique(worst):
        rows = order[worst[order] == agent]
        rank[rows] = np.arange(len(rows)) * len(order) // len(rows)
    promising = order[rank[order] < share * len(order)]
    return promising if len(promising) >= count else order


def _remember(lately: Array, label: Rows, unfair: NDArray[np.bool_]) -> None:
    """The share of failures among those with each label; what was known before counts half."""
    for which in np.unique(label):
        lately[which] = (lately[which] + unfair[label == which].mean()) / 2


def _share(one: float, other: float, least: float) -> float:
    """Of the first of two: more where more failures are found, `least` in any case."""
    return float(np.clip(one / (one + other) if one + other else 0.5, least, 1 - least))


def _quotas(lately: Array, least: float, count: int) -> Rows:
    quotas = np.maximum(lately, least * lately.max()) if lately.max() else np.ones(len(lately))
    whole: Rows = np.ceil(quotas / quotas.sum() * count).astype(np.int64)
    return whole
