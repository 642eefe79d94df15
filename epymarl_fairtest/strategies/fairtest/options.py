"""The search's own settings. All of them are flat: `fairtest_args.rounds=2` is `fairtest_args.options.rounds=2`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from epymarl_fairtest.settings import AT_ONCE, YES_NO, Rule, between, one_of, setting, whole
from epymarl_fairtest.strategies.genetic.guidance import LEVEL, TEMPERATURE

OBJECTIVES = ("f1", "f2", "f3")


def objectives(value: Any) -> tuple[str, ...] | None:
    """[f1, f3], "f1,f3", "[f1,f3]" (as sacred hands it over) or f0; None if it is anything else."""
    if isinstance(value, str):
        value = value.strip("[]() ").replace(" ", "").split(",")
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
        return None
    names = tuple(name for name in value if name not in ("", "f0"))
    return names if set(names) <= set(OBJECTIVES) and len(set(names)) == len(names) else None


@dataclass(frozen=True)
class FairTestOptions:
    """Sizes that are null follow from the budget (plan.py)."""

    rounds: int = setting(
        whole(1),
        "rounds of the search, each with a pool of its own (R); more where that pool would exceed 7,500",
        3,
        flat=True,
    )
    generations: int = setting(whole(0), "generations per round (G)", 3, flat=True)
    candidates: str = setting(
        one_of("random", "scout"),
        "who chooses the candidates: random starts, as in the paper, or starts that scout expects to be unfair",
        "random",
        flat=True,
    )
    genetic_share: float = setting(
        between(0.01, 1), "share of a round that mutants get where scout chooses the candidates", 0.1, flat=True
    )
    pool: int | None = setting(
        whole(2, AT_ONCE, optional=True),
        "candidates per round; null: five times the offspring, or what genetic_share leaves to scout",
        None,
        flat=True,
    )
    select_ratio: float = setting(
        between(0, 1, open_low=True),
        "share of the candidate pool that the prioritisation keeps (K = ratio * pool)",
        0.2,
        flat=True,
    )
    offspring: int | None = setting(
        whole(1, AT_ONCE, optional=True),
        "mutants executed per generation, whatever the ratio; null: what the budget pays for",
        None,
        flat=True,
    )
    screen: int = setting(
        whole(1, 100),
        "mutants drawn for each one that is executed, the most promising: 1 executes all, as in the paper",
        1,
        flat=True,
    )
    crossover_ratio: float = setting(
        between(0, 10), "crossover children per generation, in units of `offspring`", 0.5, flat=True
    )
    predictor_episodes: int | None = setting(
        whole(0, AT_ONCE, optional=True),
        "random executions that train the predictor beside the training sample; null: pool / 3",
        None,
        flat=True,
    )
    prioritise: bool = setting(
        YES_NO, "ParetoSelect on f2 and f3 (Algorithm 3); off keeps the first ones instead", True, flat=True
    )
    fill: str = setting(
        one_of("crowding", "fronts"),
        "what fills the population behind the first front: Algorithm 3, or further fronts",
        "crowding",
        flat=True,
    )
    fitness: list[str] | str | tuple[str, ...] = setting(
        Rule("any of f1, f2, f3, e.g. [f1, f3]; f0 for none", lambda v: objectives(v) is not None),
        "fitness functions that guide the search",
        OBJECTIVES,
        flat=True,
    )
    f3_temperature: float | str = setting(
        TEMPERATURE,
        "softmax temperature of f3; scaled is the median Q range, the paper's is 1",
        "scaled",
        flat=True,
    )
    parents: str = setting(
        one_of("tournament", "uniform"), "how parents are drawn from the population", "tournament", flat=True
    )
    tournament: int = setting(whole(1, 1_000), "episodes per tournament", 2, flat=True)
    buckets: int = setting(whole(2, 10_000), "one-hot buckets per fairness feature (B)", 10, flat=True)
    d: float | None = setting(LEVEL, "abstraction level; null: by out-of-bag AUC", None, flat=True)

    @property
    def objectives(self) -> tuple[str, ...]:
        return objectives(self.fitness) or ()
