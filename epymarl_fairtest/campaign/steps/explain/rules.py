"""Rules of at most three conditions on named features that tell unfair executions from others. Knows numbers only.

A beam search over conditions: the best few rules are lengthened by one condition at a time. It is deterministic, and a
longer rule must be clearly better than a shorter one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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


def learned(features: Features, unfair: Mask, count: int) -> list[Rule]:
    """At most `count` rules, each for unfair executions that those before it do not cover."""
    rules: list[Rule] = []
    wanted = unfair.copy()
    every = _conditions(features, unfair)
    for _ in range(count):
        rule = _best(features, unfair, wanted, every)
        if rule is None:
            break
        rules.append(rule)
        wanted &= ~rule.holds(features)
        # The next rule says something else, not the same with another threshold.
        first = max(rule.conditions, key=lambda one: _alone(one.holds(features), unfair))
        every = [one for one in every if (one.feature, one.above) != (first.feature, first.above)]
    return rules


def _alone(held: Mask, unfair: Mask) -> float:
    """The quality of a condition by itself."""
    hits, size = np.array((held & unfair).sum()), np.array(held.sum())
    return float(quality(hits, hits, size, float(unfair.mean()), int(unfair.sum())))


def _conditions(features: Features, unfair: Mask) -> list[Condition]:
    """Thresholds between the values that executions have, evenly spaced over all of them and over the unfair ones."""
    parts = np.linspace(0, 1, CUTS + 2)[1:-1]
    conditions = []
    for name, values in features.items():
        finite = np.isfinite(values)
        if not finite.any():
            continue
        cuts = {float(f"{cut:.2g}") for some in (finite, finite & unfair) if some.any()
                for cut in np.quantile(values[some], parts)}  # fmt: skip
        conditions += [Condition(name, above, cut) for cut in sorted(cuts) for above in (False, True)]
    return conditions


def _best(features: Features, unfair: Mask, wanted: Mask, every: Sequence[Condition]) -> Rule | None:
    held = np.array([one.holds(features) for one in every], np.float32).reshape(len(every), len(unfair))
    beam: list[tuple[Condition, ...]] = [()]
    masks, best, rule = np.ones((1, len(unfair)), bool), 0.0, Rule(())
    for _ in range(MOST):
        # All conditions after all rules of the beam at once; counts are whole numbers, so the products are exact.
        covered, hits, size = (some.astype(np.float32) @ held.T for some in (masks & unfair, masks & wanted, masks))
        score = quality(covered, hits, size, float(unfair.mean()), int(wanted.sum()))
        score[[[_says(one, conditions) for one in every] for conditions in beam]] = 0.0
        longer: dict[tuple[Condition, ...], tuple[float, Mask]] = {}
        for row, added in zip(*np.nonzero(score >= _least_of(score, MOST * BEAM)), strict=True):
            key = tuple(sorted((*beam[row], every[added]), key=lambda c: (c.feature, c.above, c.threshold)))
            longer[key] = float(score[row, added]), masks[row] & (held[added] > 0)
        beam = sorted(longer, key=lambda key: (-longer[key][0], list(map(str, key))))[:BEAM]
        if not beam or longer[beam[0]][0] <= best * (WORTH if rule.conditions else 1.0):
            break
        masks, best, rule = np.array([longer[key][1] for key in beam]), longer[beam[0]][0], Rule(beam[0])
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
