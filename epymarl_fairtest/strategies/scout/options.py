"""Scout's own settings: how much it looks at, what it learns from, and how far apart it keeps starts."""

from __future__ import annotations

from dataclasses import dataclass

from epymarl_fairtest.settings import AT_ONCE, between, setting, whole


@dataclass(frozen=True)
class ScoutOptions:
    initial: int = setting(whole(1, AT_ONCE), "random executions that the first surrogate learns from", 100)
    batch: int = setting(whole(1, AT_ONCE), "starts that are chosen at once, at least", 50)
    growth: float = setting(
        between(0, 1), "starts that are chosen at once, as a share of all executions so far, if that is more", 0.25
    )
    unguided: float = setting(
        between(0, 1), "share of the executions that nobody chooses: they give the natural rate", 0.05
    )
    looks: int = setting(whole(1, 1_000), "starts that are looked at, per execution", 40)
    least_looks: int = setting(whole(1, AT_ONCE), "starts that are looked at for every choice, at least", 4_000)
    fresh: float = setting(
        between(0, 1, open_low=True),
        "share of them that are fresh seeds, at least; the others are bred from failing starts",
        0.17,
    )
    best: float = setting(
        between(0, 1, open_low=True),
        "share of the starts looked at that may be chosen, the most unfair ones, at least",
        0.15,
    )
    widening: float = setting(
        between(0, 1_000),
        "how much larger fresh and best get where many starts are unfair, times the natural rate",
        1.6,
    )
    frontier: float = setting(
        between(0, 1), "share of the guided executions that begin in coverage cells no failure went through", 0.1
    )
    near: float = setting(between(0, 1_000), "the smaller distance, in units of distinct_distance", 1.4)
    far: float = setting(between(0, 1_000), "the larger distance, in units of distinct_distance", 4.0)
    least_share: float = setting(
        between(0, 0.5), "the least share of either distance; the rest goes where failures are found", 0.1
    )
    least_quota: float = setting(
        between(0, 1), "the least quota of an agent that may come off worst, in units of the largest one", 0.5
    )
    radius: float = setting(
        between(0, 1_000), "failing starts within it are of one class, in units of distinct_distance", 5.0
    )
    rows: int = setting(whole(10, AT_ONCE), "executions that the surrogate learns from, at most", 4_000)
    rounds: int = setting(whole(1, 10_000), "rounds of boosting", 40)
    rate: float = setting(between(0, 1, open_low=True), "learning rate of the boosting", 0.15)
    leaves: int = setting(whole(2, 1_000), "leaves of a tree", 15)
