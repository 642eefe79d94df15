"""Which agent could have prevented a failure: Shapley values of the agents' best deviations.

The game: agents that lower P(unfair) clearly by acting as the team's policy says all along may do so; where there is
none, every agent with a clear decision may deviate by its best one. A coalition's value is by how much P(unfair) falls
when its members deviate together. Exact for up to EXACT agents, sampled orders beyond.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import factorial

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.campaign.steps.explain.acting import Acting
from epymarl_fairtest.campaign.steps.explain.arms import Decision
from epymarl_fairtest.campaign.steps.explain.cases import Asking, Cases, Plans
from epymarl_fairtest.campaign.steps.explain.sharing import on_streams

EXACT = 6  # agents
ORDERS = 64  # that are sampled where there are more agents
STREAMS = 16
APART = 0.2  # by which the greatest value must exceed the next, for an agent to be named
ONE, OWN = "one decision", "the team's own policy"
Coalition = frozenset[int]


@dataclass(frozen=True)
class Responsibility:
    value: dict[int, float]  # by agent, from 0: by how much P(unfair) falls thanks to it
    error: dict[int, float]  # half the width of its 95% interval; 0 where it is exact
    by: dict[int, str]  # how it would deviate
    agent: int | None  # the one that is named; None: no single agent is responsible


@dataclass(frozen=True)
class Game:
    """One case: who may deviate how, and the coalitions whose value is needed."""

    case: int
    decisions: dict[int, Decision | Acting]  # by agent
    orders: list[list[int]] | None  # sampled ones; None: all of them

    @property
    def agents(self) -> list[int]:
        return sorted(self.decisions)

    def begin(self, cases: Cases) -> int:
        """Where the first of them deviates."""
        first = int(cases.first[self.case])
        return min(one.step if isinstance(one, Decision) else first for one in self.decisions.values())

    @property
    def coalitions(self) -> list[Coalition]:
        return coalitions(self.agents, self.orders)

    def plans(self, cases: Cases) -> NDArray[np.int16]:
        """Members of each coalition deviate; the others do what they did at those steps."""
        plans = cases.unforced(len(self.coalitions))
        for plan, members in zip(plans, self.coalitions, strict=True):
            for agent, one in self.decisions.items():
                if isinstance(one, Decision):
                    plan[one.step, agent] = one.action if agent in members else one.instead_of
        return plans

    def acting(self, cases: Cases) -> NDArray[np.bool_]:
        """(coalitions, agents): who acts as the team's policy says."""
        acting = np.zeros((len(self.coalitions), cases.episodes.actions.shape[-1]), bool)
        for row, members in zip(acting, self.coalitions, strict=True):
            row[[agent for agent in members if isinstance(self.decisions[agent], Acting)]] = True
        return acting


def responsibilities(
    cases: Cases, shown: Sequence[Decision], checked: Sequence[Decision], acting: Mapping[int, Mapping[int, Acting]]
) -> Asking[dict[int, Responsibility]]:
    """Of every case in which a deviation lowers P(unfair) clearly."""
    games = [
        Game(case, decisions, _orders(cases, case, sorted(decisions)))
        for case, decisions in sorted(best_of_agents(shown, checked, acting).items())
    ]
    if not games:
        return {}
    sizes = [len(game.coalitions) for game in games]
    case = np.repeat([game.case for game in games], sizes)
    begin = np.repeat([game.begin(cases) for game in games], sizes)
    plans = np.concatenate([game.plans(cases) for game in games])
    acts = np.concatenate([game.acting(cases) for game in games])
    drawn = cases.streams("responsibility", STREAMS)[case]
    received = yield from on_streams(cases, drawn, case, begin, Plans(plans), greedy=acts)
    unfair = cases.context.judge.unfair(received).mean(axis=1)
    parts = np.split(unfair, np.cumsum(sizes)[:-1])
    return {game.case: responsibility(game, part.tolist()) for game, part in zip(games, parts, strict=True)}


def responsibility(game: Game, unfair: Sequence[float]) -> Responsibility:
    """From P(unfair) of each of the game's coalitions."""
    p_of = dict(zip(game.coalitions, unfair, strict=True))
    value, error = shapley(game.agents, lambda some: p_of[frozenset()] - p_of[some], game.orders)
    ranked = [*sorted(value.values(), reverse=True), 0.0]
    named = max(game.agents, key=lambda agent: value[agent]) if ranked[0] - ranked[1] >= APART else None
    by = {agent: ONE if isinstance(game.decisions[agent], Decision) else OWN for agent in game.agents}
    return Responsibility(value, error, by, named)


def _orders(cases: Cases, case: int, agents: Sequence[int]) -> list[list[int]] | None:
    if len(agents) <= EXACT:
        return None
    generator = cases.context.generator("explain", "orders", int(cases.episodes.id[case]))
    return [[agents[n] for n in generator.permutation(len(agents))] for _ in range(ORDERS)]


def best_of_agents(
    shown: Sequence[Decision], checked: Sequence[Decision], acting: Mapping[int, Mapping[int, Acting]]
) -> dict[int, dict[int, Decision | Acting]]:
    """By case and agent. What the team wanted comes first, as with slips; then what is shown; then the clear decision
    that lowered P(unfair) most at the first look, the earlier one of equals."""
    best: dict[int, dict[int, Decision | Acting]] = {case: dict(agents) for case, agents in acting.items()}
    for one in (*shown, *sorted(checked, key=lambda one: (one.case, one.agent, -one.drop, one.step))):
        if one.case not in acting:
            best.setdefault(one.case, {}).setdefault(one.agent, one)
    return best


def coalitions(agents: Sequence[int], orders: Sequence[Sequence[int]] | None = None) -> list[Coalition]:
    """All of them, or those that the orders go through."""
    if orders is None:
        return [frozenset(some) for size in range(len(agents) + 1) for some in combinations(agents, size)]
    seen = {frozenset(order[:size]) for order in orders for size in range(len(agents) + 1)}
    return sorted(seen, key=lambda some: (len(some), sorted(some)))


def shapley(
    agents: Sequence[int], worth: Callable[[Coalition], float], orders: Sequence[Sequence[int]] | None = None
) -> tuple[dict[int, float], dict[int, float]]:
    """Each agent's mean contribution over all orders in which agents may join, or over these; and its error."""
    if orders is None:
        count = len(agents)
        value = dict.fromkeys(agents, 0.0)
        for some in coalitions(agents):
            weight = (
                factorial(len(some)) * factorial(count - len(some) - 1) / factorial(count) if len(some) < count else 0
            )
            for agent in set(agents) - some:
                value[agent] += weight * (worth(some | {agent}) - worth(some))
        return value, dict.fromkeys(agents, 0.0)
    gains: dict[int, list[float]] = {agent: [] for agent in agents}
    for order in orders:
        for size, agent in enumerate(order):
            gains[agent].append(worth(frozenset(order[: size + 1])) - worth(frozenset(order[:size])))
    means = {agent: float(np.mean(some)) for agent, some in gains.items()}
    return means, {agent: 1.96 * float(np.std(some, ddof=1)) / len(some) ** 0.5 for agent, some in gains.items()}
