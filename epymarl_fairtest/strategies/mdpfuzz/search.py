"""MDPFuzz (Pang et al. 2022): fuzzing starts, chosen by sensitivity, kept if worse than their parent or fresh.

A test case is a start, as the task's vector; every execution of one explores anew. Without freshness this is the plain
fuzzer of the replication (Mazouni et al.), which is a row of its own in a comparison. docs/baselines.md says where it
differs from both.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core.episodes import Episodes, Tests, random_tests
from epymarl_fairtest.core.judged import Judged
from epymarl_fairtest.core.ledger import EXECUTION, MUTANT
from epymarl_fairtest.settings import AT_ONCE, YES_NO, between, setting, whole
from epymarl_fairtest.strategies.contract import Context, Request, Search
from epymarl_fairtest.strategies.mdpfuzz.freshness import Freshness
from epymarl_fairtest.strategies.starts import starting_from
from epymarl_fairtest.tasks.contract import Task

Array = NDArray[np.float64]
Rows = NDArray[np.int64]

INITIAL_SHARE = 5  # the published setting begins with 1,000 starts of a budget of 5,000
TRIES = 50  # mutants of a start that are drawn before it is given up


@dataclass(frozen=True)
class MDPFuzzOptions:
    initial: int | None = setting(
        whole(1, optional=True), "random starts, each executed with one mutant; null: a fifth of the budget", None
    )
    step: float = setting(
        between(0, 2, open_low=True), "the most that a mutation moves a coordinate of a start in [-1, 1]", 0.05
    )
    freshness: bool = setting(
        YES_NO, "keep mutants with a fresh sequence of states, too; false: the plain fuzzer", True
    )
    components: int = setting(whole(1), "Gaussians of each mixture (K)", 10)
    threshold: float = setting(between(0, 1e300), "density below which a sequence of states is fresh (tau)", 0.1)
    rate: float = setting(between(0, 1), "what a fresh sequence weighs in the mixtures (gamma)", 0.01)
    batch: int = setting(
        whole(1, AT_ONCE), "mutants per iteration, all chosen from the same corpus; the original has 1", 16
    )


def mdpfuzz(context: Context) -> Search:
    options, task, generator = context.options, context.task, context.generator("tests")
    initial = options.initial or max(1, context.budget // INITIAL_SHARE)
    begun = yield Request(random_tests(initial, task.state_size, generator), EXECUTION)
    corpus, seen = Corpus.of(begun, task), begun.episodes
    mutants, parents = mutate(corpus, np.arange(initial)[: len(corpus)], context, generator)
    if len(mutants):
        judged = yield Request(mutants, MUTANT)
        parents, seen = parents[: len(judged)], Episodes.concatenate([seen, judged.episodes])
        corpus.sensitivity[parents] = sensitivity(Corpus.of(judged, task), corpus.take(parents))
    freshness = freshness_of(seen, context) if options.freshness else None
    while True:
        mutants, parents = mutate(corpus, corpus.select(options.batch, generator), context, generator)
        if not len(mutants):  # not one that the task's rules allow: look elsewhere
            context.count("random_starts", options.batch)
            others = yield Request(random_tests(options.batch, task.state_size, generator), EXECUTION)
            corpus.add(Corpus.of(others, task))
            continue
        judged = yield Request(mutants, MUTANT)
        children, parent = Corpus.of(judged, task), corpus.take(parents[: len(judged)])
        children.sensitivity = sensitivity(children, parent)
        worse = children.outcome < parent.outcome
        fresh = np.zeros_like(worse) if freshness is None else freshness.of(judged.episodes)
        corpus.add(children.take(~judged.unfair & (worse | fresh)))
        context.count("fresh", int(fresh.sum()))
        context.note("corpus", len(corpus))


def freshness_of(seen: Episodes, context: Context) -> Freshness:
    options, generator = context.options, context.generator("mixtures")
    with context.clock.phase("predictor"):
        return Freshness(seen, options.components, options.threshold, options.rate, generator)


def sensitivity(mutants: Corpus, parents: Corpus) -> Array:
    """How much the outcome moved, in units of how far the start was moved."""
    moved = np.sqrt(((mutants.vectors - parents.vectors) ** 2).sum(axis=1))
    change = np.abs(mutants.outcome - parents.outcome)
    ratio: Array = np.divide(change, moved, out=np.zeros_like(change), where=moved > 0)
    return ratio


@dataclass
class Corpus:
    """Starts and what is known of them: arrays over E starts."""

    states: Array  # (E, S)
    vectors: Array  # (E, V) the same, as the task writes them
    outcome: Array  # the fairness index; 1 where nobody received anything
    sensitivity: Array
    id: Rows  # of the executed episode

    def __len__(self) -> int:
        return len(self.outcome)

    @staticmethod
    def of(judged: Judged, task: Task) -> Corpus:
        """What was executed, its sensitivity not known yet."""
        states = judged.episodes.states[:, 0]
        outcome = np.where(judged.undefined, 1.0, judged.index)
        return Corpus(states, task.start_vectors(states), outcome, np.zeros(len(judged)), judged.episodes.id)

    def select(self, count: int, generator: np.random.Generator) -> Rows:
        """In proportion to the sensitivity; evenly if nothing is sensitive."""
        whole = self.sensitivity.sum()
        return generator.choice(len(self), count, p=self.sensitivity / whole if whole > 0 else None)

    def take(self, rows: Rows | NDArray[np.bool_]) -> Corpus:
        return Corpus(**{f.name: getattr(self, f.name)[rows] for f in fields(self)})

    def add(self, other: Corpus) -> None:
        for f in fields(self):
            setattr(self, f.name, np.concatenate([getattr(self, f.name), getattr(other, f.name)]))


def mutate(corpus: Corpus, rows: Rows, context: Context, generator: np.random.Generator) -> tuple[Tests, Rows]:
    """A mutant of the start in each of these rows of the corpus, and the rows of those that have one.

    A mutant that the task's rules refuse is drawn again; so is one that is still its parent, as small steps on a grid
    are, and then from twice as far.
    """
    parents, task = corpus.take(rows), context.task
    states, step, missing = parents.states.copy(), np.full(len(rows), context.options.step), np.arange(len(rows))
    for _ in range(TRIES):
        moved = parents.vectors[missing]
        moved = moved + step[missing, None] * generator.uniform(-1, 1, moved.shape)
        states[missing], valid = task.starts_from(np.clip(moved, -1, 1))
        unmoved = (states[missing] == parents.states[missing]).all(axis=1)
        step[missing[unmoved]] = np.minimum(2 * step[missing[unmoved]], 2.0)
        missing = missing[unmoved | ~valid]
        if not len(missing):
            break
    context.count("mutations_refused", len(missing))
    mutated = np.delete(np.arange(len(rows)), missing)
    tests = starting_from(states[mutated], generator)
    tests.parent = parents.id[mutated]
    return tests, rows[mutated]
