"""Rules of at most three conditions on named features that tell unfair executions from others. Knows numbers only.

A beam search over conditions: the best few rules are lengthened by one condition at a time. It is deterministic, and a
longer rule must be clearly better than a shorter one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
        first = max(rule.conditions, key=lambda one: quality(one.holds(features), unfair, unfair))
        every = [one for one in every if (one.feature, one.above) != (first.feature, first.above)]
    return rules


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
    held = {one: one.holds(features) for one in every}
    beam: list[tuple[float, tuple[Condition, ...], Mask]] = [(0.0, (), np.ones(len(unfair), bool))]
    best: tuple[float, tuple[Condition, ...]] = (0.0, ())
    for _ in range(MOST):
        longer: dict[tuple[Condition, ...], tuple[float, Mask]] = {}
        for _, conditions, mask in beam:
            used = {(one.feature, one.above) for one in conditions}
            for one in every:
                if (one.feature, one.above) not in used:
                    together = mask & held[one]
                    key = tuple(sorted((*conditions, one), key=lambda c: (c.feature, c.above, c.threshold)))
                    longer[key] = quality(together, unfair, wanted), together
        ranked = sorted(((score, key, mask) for key, (score, mask) in longer.items()),
                        key=lambda one: (-one[0], list(map(str, one[1]))))  # fmt: skip
        beam = ranked[:BEAM]
        if not beam or beam[0][0] <= best[0] * (WORTH if best[1] else 1.0):
            break
        best = beam[0][0], beam[0][1]
    return Rule(best[1]) if best[1] else None


def quality(covered: Mask, unfair: Mask, wanted: Mask) -> float:
    """How much more often than usual what is covered is unfair, times a power of the wanted share that is covered."""
    hits, size = int((covered & wanted).sum()), int(covered.sum())
    if hits < FEWEST:
        return 0.0
    gain = float((covered & unfair).sum() / size - unfair.mean())
    recall = hits / max(int(wanted.sum()), 1)
    return float(max(gain, 0.0) * recall**BREADTH)
