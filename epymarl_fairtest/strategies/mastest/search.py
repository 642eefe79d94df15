"""MASTest (Ma et al. 2024): a corpus of test cases, chosen by energy, perturbed where states are critical.

A test case is a seed and a list of (step, agent, action); every execution of it explores anew (decision 013). Unlike
the released code it perturbs the agents under test (not all tasks have other players), where the parent's recorded
episode met critical cells; it executes many cases per iteration; its individual diversity compares whole steps (x, y,
vx, vy), not single numbers; all agents share one table of gains. docs/baselines.md says more.

Defects that are not reproduced: a mutated action that is dropped again; snapshots of new episodes that meet fixed
steps of the initial ones, and shift when some lie outside the episode; denominators of zero and below; energies that
are all zero and stop the search.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core.episodes import Episodes, Tests, operator_code, random_tests, tests_from_seeds
from epymarl_fairtest.core.indices import INDICES
from epymarl_fairtest.core.judged import Judged
from epymarl_fairtest.core.ledger import EXECUTION
from epymarl_fairtest.settings import AT_ONCE, one_of, setting, whole
from epymarl_fairtest.strategies.contract import Context, Request, Search
from epymarl_fairtest.strategies.mastest.diversity import Diversity

Array = NDArray[np.float64]
Rows = NDArray[np.int64]

DIMENSIONS, BINS = 5, 5  # observations are projected to so many dimensions, each cut into so many bins
DIVERSE = 0.5  # a failure that is more diverse than this joins the corpus
SMALLEST = 1e-5  # denominator of e_v, for the most diverse episodes


@dataclass(frozen=True)
class MASTestOptions:
    seeds: int = setting(whole(1, AT_ONCE), "initial test cases", 10)
    critical: int = setting(whole(0), "how many cells of observations are critical: those with the highest gain", 10)
    overrides: int | None = setting(
        whole(1, optional=True),
        "the most actions that a case may force, drawn at random; null: one wherever a cell is critical",
        10,
    )
    exploration: str = setting(one_of("new", "recorded"), "of a case's children: drawn anew, or the case's own", "new")
    batch: int = setting(
        whole(1, AT_ONCE), "cases per iteration, all chosen from the same corpus; the original has 1", 64
    )


def mastest(context: Context) -> Search:
    options, generator = context.options, context.generator("cases")
    seeds = random_tests(options.seeds, context.task.state_size, generator)
    begun = yield Request(seeds, EXECUTION)
    initial = begun.episodes
    diversity, cells = Diversity(context.task, initial), Cells(initial, generator)
    unforced = np.full_like(initial.actions, -1)
    corpus = Corpus.of(initial, unforced, cells.of(initial), outcome(begun, context), np.ones(len(initial)))
    while True:
        chosen = corpus.select(options.batch, generator)
        tests, forced = perturb(corpus.take(chosen), cells, context, generator)
        judged = yield Request(tests, EXECUTION)
        episodes, failing = judged.episodes, judged.unfair
        chosen, forced = chosen[: len(episodes)], forced[: len(episodes)]  # the budget may have cut the batch
        diverse = (diversity.individual(episodes) + diversity.team(episodes)) / 2
        met, result = cells.of(episodes), outcome(judged, context)
        variation = np.abs(corpus.outcome[chosen] - result) / np.maximum(1 - diverse + SMALLEST, SMALLEST)
        overridden = (forced >= 0) & (met >= 0)
        for case, seed in enumerate(chosen):  # one by one: the failure rates count the cases before
            reward(corpus.energy, corpus.runs, seed, failing[case], variation[case])
            reward(cells.gain, cells.runs, np.unique(met[case][overridden[case]]), failing[case], variation[case])
        kept = failing & (diverse > DIVERSE)
        energy = 1 + 0.5 * np.tanh(variation[kept])
        corpus.add(Corpus.of(episodes.take(kept), forced[kept], met[kept], result[kept], energy))
        context.note("corpus", len(corpus.energy))
        context.count("actions", int((met >= 0).sum()))
        context.count("forced_actions", int(overridden.sum()))


def reward(value: Array, runs: Rows, at: Rows | int, failing: bool, variation: float) -> None:
    """Count a run, then change the energy of a test case, or the gain of cells, by what it brought.

    `runs` (..., 2) are the benign and the failing ones so far. e_f is the rate of runs that ended like this one,
    e_v the `variation`: how far the outcome moved, the more so the more diverse the episode.
    """
    ended = int(failing)
    runs[at, ended] += 1
    rate = runs[at, ended] / runs[at].sum(axis=-1)
    value[at] += 0.5 * (rate if failing else -0.1 * rate) + 0.5 * np.tanh(variation) - 0.05


def outcome(judged: Judged, context: Context) -> Array:
    """The fairness index from 0 to 1: JFI begins at 1 / agents. Where nobody received anything, all got the same."""
    lowest = INDICES[context.settings.index].lowest(judged.received.shape[-1])
    return (np.where(judged.undefined, 1.0, judged.index) - lowest) / (1 - lowest)


@dataclass
class Corpus:
    """Test cases and what is known of them: arrays over E cases."""

    root_seed: Rows
    stream: NDArray[np.uint64]
    forced: NDArray[np.int16]  # (E, T, N); -1 lets the policy choose
    id: Rows  # of the recorded episode
    cells: NDArray[np.int16]  # (E, T, N) that its observations lie in
    outcome: Array
    energy: Array
    runs: Rows  # (E, 2) benign and failing ones of its children

    @staticmethod
    def of(
        episodes: Episodes, forced: NDArray[np.int16], cells: NDArray[np.int16], outcome: Array, energy: Array
    ) -> Corpus:
        runs = np.zeros((len(episodes), 2), np.int64)
        return Corpus(episodes.root_seed, episodes.stream, forced, episodes.id, cells, outcome, energy, runs)

    def probabilities(self) -> Array:
        energy = np.maximum(self.energy, 0)
        return energy / energy.sum() if energy.any() else np.full(len(energy), 1 / len(energy))

    def select(self, count: int, generator: np.random.Generator) -> Rows:
        return generator.choice(len(self.energy), count, p=self.probabilities())

    def take(self, rows: Rows) -> Corpus:
        return Corpus(**{f.name: getattr(self, f.name)[rows] for f in fields(self)})

    def add(self, other: Corpus) -> None:
        for f in fields(self):
            setattr(self, f.name, np.concatenate([getattr(self, f.name), getattr(other, f.name)]))


class Cells:
    """Cells of observations: a fixed random projection, cut into bins between what the initial episodes saw."""

    def __init__(self, initial: Episodes, generator: np.random.Generator) -> None:
        self._projection = generator.uniform(0, 0.1, (initial.obs.shape[-1], DIMENSIONS))
        seen = self._projected(initial.obs[initial.running])
        self._low = seen.min(axis=(0, 1))
        width = (seen.max(axis=(0, 1)) - self._low) / BINS
        self._width = np.where(width > 0, width, 1.0)
        self.gain = np.zeros(BINS**DIMENSIONS)
        self.runs = np.zeros((BINS**DIMENSIONS, 2), np.int64)

    def _projected(self, obs: NDArray[np.float32]) -> Array:
        # no BLAS: the same everywhere
        projected: Array = np.einsum("...d,dk->...k", obs.astype(np.float64), self._projection)
        return projected

    def of(self, episodes: Episodes) -> NDArray[np.int16]:
        """The cell of what each agent saw before each step (B, T, N); -1 after the end."""
        digit = ((self._projected(episodes.obs) - self._low) / self._width).astype(np.int64)
        cell = np.clip(digit, 0, BINS - 1) @ BINS ** np.arange(DIMENSIONS)
        cell[~episodes.running] = -1
        cells: NDArray[np.int16] = cell.astype(np.int16)
        return cells

    def critical(self, count: int, generator: np.random.Generator) -> Rows:
        """The cells with the highest gain, ties in random order."""
        shuffled = generator.permutation(len(self.gain))
        return shuffled[np.argsort(-self.gain[shuffled], kind="stable")[:count]]


def perturb(
    parents: Corpus, cells: Cells, context: Context, generator: np.random.Generator
) -> tuple[Tests, NDArray[np.int16]]:
    """The parents' cases with random actions wherever their episodes met a critical cell, and the forced actions.

    Every case draws its critical cells anew. With the recorded exploration one that stays as it was would only repeat
    its parent: it explores anew.
    """
    critical = np.zeros(parents.cells.shape, bool)
    for case, met in enumerate(parents.cells):  # one by one: ties are shuffled for each
        critical[case] = np.isin(met, cells.critical(context.options.critical, generator))
    forced = np.where(critical, random_actions(context.available, critical.shape, generator), parents.forced)
    if context.options.overrides is not None:
        forced = thinned(forced, context.options.overrides, generator)
    stream = generator.integers(0, 2**64, len(forced), dtype=np.uint64)
    changed = (forced != parents.forced).any(axis=(1, 2))
    context.count("unchanged_cases", int((~changed).sum()))
    if context.options.exploration == "recorded":
        stream = np.where(changed, parents.stream, stream)
    tests = tests_from_seeds(parents.root_seed, stream, context.task.state_size, "action")
    tests.operator[(forced < 0).all(axis=(1, 2))] = operator_code("seed")
    tests.parent, tests.forced = parents.id, forced
    return tests, forced


def thinned(forced: NDArray[np.int16], most: int, generator: np.random.Generator) -> NDArray[np.int16]:
    """At most so many forced actions per case (B, T, N), which ones drawn at random."""
    order = np.where(forced >= 0, generator.random(forced.shape), np.inf).reshape(len(forced), -1)
    rank = order.argsort(axis=1).argsort(axis=1).reshape(forced.shape)
    return np.where(rank < most, forced, -1).astype(np.int16)


def random_actions(
    available: NDArray[np.bool_], shape: tuple[int, ...], generator: np.random.Generator
) -> NDArray[np.int16]:
    """For each agent (last axis of the shape) one of its actions, all with equal probability."""
    first = np.argsort(~available, axis=1, kind="stable")  # the actions that exist, then those that do not
    which = (generator.random(shape) * available.sum(axis=1)).astype(np.int64)
    chosen: NDArray[np.int16] = first[np.arange(len(available)), which].astype(np.int16)
    return chosen
