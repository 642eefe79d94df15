"""Rules of at most three conditions on named features that tell unfair executions from others. Knows numbers only.

A beam search over conditions: the best few rules are lengthened by one condition at a time. It is deterministic, and a
longer rule must be clearly better than a shorter one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST = 3  # conditions of a rule
BEAM = 8  # rules that are lengthened
CUTS = 9  # thresholds of a feature that are tried, between values of executions
WORTH = 1.2  # times the quality of the shorter rule, for another condition to be worth its words
FEWEST = 10  # unfair executions that a rule must cover to be learned
BREADTH = 0.75  # how much it counts that a rule covers many of the unfair executions
Features = Mapping[str, NDArray[np.float64]]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Condition:
    feature: str
    above: bool
    threshold: float

    def holds(self, features: Features) -> Mask:
        values = features[self.feature]
        return values > self.threshold if self.above else values <= self.threshold

    def __str__(self) -> str:
        if self.feature.startswith("steps in which"):
            return f"{'more than' if self.above else 'at most'} {self.threshold:.3g} {self.feature}"
        return f"{self.feature} {'>' if self.above else '≤'} {self.threshold:.3g}"


@dataclass(frozen=True)
class Rule:
    conditions: tuple[Condition, ...]

    def holds(self, features: Features) -> Mask:
        held: Mask = np.logical_and.reduce([one.holds(features) for one in self.conditions])
        return held

    def __str__(self) -> str:
        return " and ".join(map(str, self.conditions))


@dataclass(frozen=True)
class Conditions:
    """All that are tried. Every execution is sorted between the thresholds once, so that all are counted together."""

    every: list[Condition]
    bins: NDArray[np.int64]  # (features, executions) the place between the feature's thresholds; its last one: NaN
    places: int  # of each feature
    feature: NDArray[np.int64]  # of each condition: the row of its feature, and which threshold it is
    cut: NDArray[np.int64]
    above: Mask

    @staticmethod
    def of(features: Features, unfair: Mask) -> Conditions:
        cuts = {name: found for name, values in features.items() if (found := _cuts(values, unfair))}
        places = max(map(len, cuts.values()), default=0) + 2
        bins = np.empty((len(cuts), len(unfair)), np.int64)
        for row, (name, some) in enumerate(cuts.items()):
            bins[row] = row * places + np.where(
                np.isnan(features[name]), places - 1, np.searchsorted(some, features[name])
            )
        numbered = [(row, cut) for row, some in enumerate(cuts.values()) for cut in range(len(some))]
        every = [Condition(name, above, cut) for name, some in cuts.items() for cut in some for above in (False, True)]
        feature, cut = np.array(numbered, np.int64).reshape(-1, 2).repeat(2, axis=0).T
        return Conditions(every, bins, places, feature, cut, np.arange(len(every)) % 2 == 1)

    def without(self, other: Condition) -> Conditions:
        """Those that do not say the same with another threshold."""
        keeps = np.array([not _says(one, [other]) for one in self.every], bool)
        left = [one for one, kept in zip(self.every, keeps, strict=True) if kept]
        return replace(self, every=left, feature=self.feature[keeps], cut=self.cut[keeps], above=self.above[keeps])

    def counts(self, masks: Mask) -> NDArray[np.int64]:
        """(masks, conditions): of how many executions of each mask a condition holds."""
        return np.array([self._counts(np.flatnonzero(mask)) for mask in masks]).reshape(len(masks), len(self.every))

    def _counts(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        inside = np.bincount(self.bins[:, rows].ravel(), minlength=self.bins.shape[0] * self.places)
        up_to = np.cumsum(inside.reshape(-1, self.places)[:, :-1], axis=1)
        at_most: NDArray[np.int64] = up_to[self.feature, self.cut]
        return np.where(self.above, up_to[self.feature, -1] - at_most, at_most)


def learned(features: Features, unfair: Mask, count: int) -> list[Rule]:
    """At most `count` rules, each for unfair executions that those before it do not cover."""
    rules: list[Rule] = []
    wanted = unfair.copy()
    conditions = Conditions.of(features, unfair)
    for _ in range(count):
        rule = _best(features, unfair, wanted, conditions)
        if rule is None:
            break
        rules.append(rule)
        wanted &= ~rule.holds(features)
        # The next rule says something else, not the same with another threshold.
        conditions = conditions.without(max(rule.conditions, key=lambda one: _alone(one.holds(features), unfair)))
    return rules


def _alone(held: Mask, unfair: Mask) -> float:
    """The quality of a condition by itself."""
    hits, size = np.array((held & unfair).sum()), np.array(held.sum())
    return float(quality(hits, hits, size, float(unfair.mean()), int(unfair.sum())))


def _cuts(values: NDArray[np.float64], unfair: Mask) -> list[float]:
    """Thresholds between the values that executions have, evenly spaced over all of them and over the unfair ones."""
    parts, finite = np.linspace(0, 1, CUTS + 2)[1:-1], np.isfinite(values)
    groups = [some for some in (finite, finite & unfair) if some.any()]
    return sorted({float(f"{cut:.2g}") for some in groups for cut in np.quantile(values[some], parts)})


def _best(features: Features, unfair: Mask, wanted: Mask, conditions: Conditions) -> Rule | None:
    every = conditions.every
    beam: list[tuple[Condition, ...]] = [()]
    masks, best, rule = np.ones((1, len(unfair)), bool), 0.0, Rule(())
    for _ in range(MOST):
        # All conditions after all rules of the beam at once.
        covered, hits, size = map(conditions.counts, (masks & unfair, masks & wanted, masks))
        score = quality(covered, hits, size, float(unfair.mean()), int(wanted.sum()))
        score[[[_says(one, used) for one in every] for used in beam]] = 0.0
        longer: dict[tuple[Condition, ...], tuple[float, int, Condition]] = {}
        for row, added in zip(*np.nonzero(score >= _least_of(score, MOST * BEAM)), strict=True):
            key = tuple(sorted((*beam[row], every[added]), key=lambda c: (c.feature, c.above, c.threshold)))
            longer[key] = float(score[row, added]), row, every[added]
        beam = sorted(longer, key=lambda key: (-longer[key][0], list(map(str, key))))[:BEAM]
        if not beam or longer[beam[0]][0] <= best * (WORTH if rule.conditions else 1.0):
            break
        best, rule = longer[beam[0]][0], Rule(beam[0])
        masks = np.array([masks[row] & added.holds(features) for _, row, added in map(longer.__getitem__, beam)])
    return rule if rule.conditions else None


def _says(one: Condition, conditions: Sequence[Condition]) -> bool:
    """Do they say the same of this feature already, with whatever threshold?"""
    return (one.feature, one.above) in [(used.feature, used.above) for used in conditions]


def _least_of(score: NDArray[np.float64], places: int) -> float:
    """The least score above 0 that is among the best of so many; a rule may stand there once for each of its parts."""
    places = min(places, score.size)
    least = float(np.partition(score.ravel(), -places)[-places]) if places else 0.0
    return max(least, 5e-324)


def quality(
    covered: NDArray[Any], hits: NDArray[Any], size: NDArray[Any], base: float, wanted: int
) -> NDArray[np.float64]:
    """How much more often than usual what is covered is unfair, times a power of the wanted share that is covered."""
    gain = covered.astype(np.float64) / np.maximum(size, 1) - base
    share = hits.astype(np.float64) / max(wanted, 1)
    worth: NDArray[np.float64] = np.where(hits < FEWEST, 0.0, gain.clip(0) * share**BREADTH)
    return worth
