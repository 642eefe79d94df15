"""STARLA's operators on recorded episodes: tournament, crossover, mutation, and which recorded actions are forced.

Knows records and scores; must not know budgets. An episode of the released code ends with a closing entry, so its
`len` is our length + 1: cuts lie in [1, length - 2], matches in [1, length - 3], mutation points in [3, length - 2].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core.episodes import Episodes, Tests, tests_from_seeds
from epymarl_fairtest.core.scores import greedy
from epymarl_fairtest.strategies.contract import Context
from epymarl_fairtest.strategies.genetic.operators import Draw, Rows, matching_pairs, origins, splice

Bools = NDArray[np.bool_]
Scores = NDArray[np.float64]

SHORTEST = 5  # steps: the fewest that leave a mutation point
WEAKEST, STRONGEST = 0.95, 1.05  # a perturbed coordinate is scaled by a number between them


@dataclass(frozen=True)
class Population:
    """Records and their objectives. A splice was never executed: it has no id, its parent is whom it starts like."""

    episodes: Episodes
    excused: Bools  # (B, T, N): when it first took the action the team explored, or saw a changed observation
    scores: Scores  # (B, 3)

    def __len__(self) -> int:
        return len(self.episodes)

    def take(self, rows: Any) -> Population:
        return Population(self.episodes.take(rows), self.excused[rows], self.scores[rows])

    @property
    def origin(self) -> Rows:
        """Id of the executed episode that each record is, or starts like."""
        return np.where(self.episodes.id >= 0, self.episodes.id, self.episodes.parent)


def join(*parts: Population) -> Population:
    return Population(
        Episodes.concatenate([part.episodes for part in parts]),
        np.concatenate([part.excused for part in parts]),
        np.concatenate([part.scores for part in parts]),
    )


def explorations(episodes: Episodes, available: Bools) -> Bools:
    """Where the team, free to choose, did not choose greedily."""
    explored: Bools = (episodes.actions != greedy(episodes.q, available)) & episodes.running[..., None]
    return explored


def forced_actions(records: Population, available: Bools) -> NDArray[np.int16]:
    """The recorded actions that the team takes in the recorded situation, greedily or excused; -1 elsewhere.

    STARLA forces all of them, and counts no failure with an inconsistent step: one that the team takes neither in the
    real situation nor in the recorded one. Here the team chooses such steps itself: every failure counts.
    """
    episodes = records.episodes
    own = records.excused | (episodes.actions == greedy(episodes.q, available))
    return np.where(own, episodes.actions, np.int16(-1))


def tournament(scores: Scores, count: int, size: int, rng: np.random.Generator) -> Rows:
    """`count` winners of groups of `size`: the first drawn that nobody in its group dominates."""
    groups = rng.integers(0, len(scores), (count, size))
    values = scores[groups]
    one, other = values[:, :, None], values[:, None, :]
    dominates = np.all(one <= other, axis=-1) & np.any(one < other, axis=-1)
    winners: Rows = groups[np.arange(count), dominates.any(axis=1).argmin(axis=1)]
    return winners


def point(first: int, last: NDArray[np.integer], rng: np.random.Generator) -> Rows:
    """A step from `first` to `last`, each with equal probability."""
    return first + (rng.random(len(last)) * (last - first + 1)).astype(np.int64)


def crossover(
    population: Population, draw: Draw, pairs: int, d: float, rng: np.random.Generator
) -> tuple[Population, int]:
    """Join two records at steps with the same joint abstract state, both ways; nothing is executed.

    Gives 2 children per pair, without scores and without those too short to go on from, and the number of pairs for
    which no partner was found.
    """
    episodes = population.episodes

    def cut(row: Rows) -> Rows:
        return point(1, episodes.length[row] - 2, rng)

    def fits(one: Rows, at_one: Rows, two: Rows, at_two: Rows) -> Bools:
        return (at_two >= 1) & (at_two <= episodes.length[two] - 3)

    joints, missing = matching_pairs(episodes, d, draw, pairs, cut, fits, rng)
    children = splice(episodes, *joints)
    children.parent = population.origin[joints[0]]
    row, step = (where[:, :-1] for where in origins(episodes.limit, *joints))
    excused = population.excused[row, np.minimum(step, episodes.limit - 1)] & children.running[..., None]
    spliced = Population(children, excused, np.full((len(children), population.scores.shape[1]), np.nan))
    return spliced.take(children.length >= SHORTEST), missing


def is_mutated(population: Population, rng: np.random.Generator) -> Bools:
    """Each with probability 1 / len."""
    return rng.random(len(population)) * (population.episodes.length + 1) < 1


def mutate(parents: Population, context: Context, rng: np.random.Generator) -> tuple[Tests, Rows]:
    """The tests of mutants, and their mutation points.

    One coordinate of what the team sees at the point is changed, and its greedy answer to that is its joint action;
    before the point it does what was recorded, after it what it wants, with fresh exploration. Nothing is restored.
    """
    episodes, rows = parents.episodes, np.arange(len(parents))
    at = point(3, episodes.length - 2, rng)
    seen = episodes.obs[rows, at]
    joint = seen.reshape(len(rows), -1)  # a view
    joint[rows, rng.integers(0, joint.shape[1], len(rows))] *= rng.uniform(WEAKEST, STRONGEST, len(rows))
    q = context.ask(episodes, at.astype(np.int32), seen)
    before = np.arange(episodes.limit)[:, None] < at[:, None, None]
    forced = np.where(before, forced_actions(parents, context.available), np.int16(-1))
    forced[rows, at] = greedy(q, context.available)
    streams = rng.integers(0, 2**64, len(rows), dtype=np.uint64)
    return tests_of(parents, streams, forced), at


def tests_of(records: Population, streams: NDArray[np.uint64], forced: NDArray[np.int16]) -> Tests:
    """Tests from the start of each record, with these actions forced."""
    tests = tests_from_seeds(records.episodes.root_seed, streams, records.episodes.states.shape[-1], "action")
    tests.parent, tests.forced = records.origin, forced
    return tests


def excused_in(mutants: Episodes, parents: Population, at: Rows, available: Bools) -> Bools:
    """What was excused in the parents where they were followed, the answer at the point, and what was explored."""
    t = np.arange(mutants.limit)[:, None]
    followed = (t < at[:, None, None]) & (forced_actions(parents, available) >= 0)
    excused = np.where(followed, parents.excused, explorations(mutants, available))
    kept: Bools = (excused | (t == at[:, None, None])) & mutants.running[..., None]
    return kept
