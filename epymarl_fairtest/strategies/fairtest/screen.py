"""The screen: of many mutants that are drawn, which are worth executing?

A surrogate sees the perturbed state and what each agent has so far, and predicts what each will have in the end.
Mutants that begin late in a failing parent are dropped: the kept prefix has decided already, and they are near-copies.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core.episodes import Tests
from epymarl_fairtest.core.judged import Judged, of_agents, places_of
from epymarl_fairtest.strategies.contract import Context
from epymarl_fairtest.strategies.scout.options import ScoutOptions
from epymarl_fairtest.strategies.scout.surrogate import Surrogate

Array = NDArray[np.float64]
Rows = NDArray[np.int64]

EVERY = 5  # steps between the states of an episode that the surrogate learns from
LATE = 0.34  # share of the time limit after which a mutant of a failing parent is dropped
KEPT_AT_ONCE = 2_000  # states of a batch that are kept for learning


class Screen:
    """What became of states in the middle of episodes, and the choice among mutants."""

    def __init__(self, context: Context) -> None:
        self._context, self._options = context, ScoutOptions()
        self._judged = places_of(context.settings.agents, context.task.n_agents)
        self._features: list[Array] = []  # (n, agents, F)
        self._still: list[Array] = []  # (n, agents) received from there on

    def learn(self, judged: Judged) -> None:
        episodes = judged.episodes
        if not len(judged):
            return
        rows, steps = np.nonzero(episodes.running[:, ::EVERY])
        steps = EVERY * steps
        if len(rows) > KEPT_AT_ONCE:
            drawn = self._context.generator("screen", len(self._still)).choice(len(rows), KEPT_AT_ONCE, replace=False)
            rows, steps = rows[drawn], steps[drawn]
        so_far = before(of_agents(episodes.rewards[rows], self._context.settings.agents), steps)
        self._features.append(self._seen(episodes.states[rows, steps], steps, so_far))
        self._still.append(judged.received[rows] - so_far)

    def most_promising(self, mutants: Tests, unfair: Rows, count: int, rng: np.random.Generator) -> Tests:
        """At most `count` mutants with the lowest expected index; `unfair` are the ids of failing parents."""
        prefix = mutants.prefix
        if prefix is None or len(mutants) <= count:
            return mutants
        late = (mutants.start_step > LATE * prefix.limit) & np.isin(mutants.parent, unfair)
        if (~late).sum() >= count:
            mutants = mutants.take(~late)
            prefix = mutants.prefix
            assert prefix is not None
        so_far = before(of_agents(prefix.rewards, self._context.settings.agents), mutants.start_step)
        with self._context.clock.phase("surrogate"):
            still = self._surrogate(rng).received(self._seen(mutants.start_state, mutants.start_step, so_far))
        index = self._context.judge.index(so_far + still)
        order = np.argsort(np.where(np.isnan(index), 1.0, index), kind="stable")
        return mutants.take(np.sort(order[:count]))

    def _surrogate(self, rng: np.random.Generator) -> Surrogate:
        features, still = np.concatenate(self._features), np.concatenate(self._still)
        if len(still) > self._options.rows:
            rows = np.sort(rng.choice(len(still), self._options.rows, replace=False))
            features, still = features[rows], still[rows]
        return Surrogate(features, still, self._options)

    def _seen(self, states: Array, steps: NDArray[np.integer], so_far: Array) -> Array:
        """What each judged agent meets in a state, what it has so far, and when."""
        around = self._context.task.features(states)[:, self._judged]
        motion = self._context.task.motion(states)[:, self._judged, 2:]
        time = np.broadcast_to(np.asarray(steps, np.float64)[:, None, None], (*so_far.shape, 1))
        return np.concatenate([around, motion, so_far[..., None], time], axis=-1)


def before(rewards: Array, steps: NDArray[np.integer]) -> Array:
    """What each agent received before its step: rewards (B, T, N) and steps (B,) to (B, N)."""
    earlier = np.arange(rewards.shape[1])[None, :, None] < np.asarray(steps)[:, None, None]
    return np.cumsum(np.where(earlier, rewards, 0.0), axis=1)[:, -1]


def screen_of(context: Context) -> Screen | None:
    """None where all mutants are executed, or where a task cannot be restored and mutants begin at the start."""
    return Screen(context) if context.options.screen > 1 and context.task.restorable else None
