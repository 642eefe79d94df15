"""Who comes off badly, and whether that is shown: an exact test, on failures that are independent of each other.

A search finds one start and then many failures like it: counting executions would count that start many times. So a
vote is a natural failure (an unfair random execution), and where there are too few of these, a start: the most unfair
failure that descends from it stands for all of them (docs/decisions/023). Starts that a search chose have no vote: it
may have chosen them for the agent that comes off badly (docs/decisions/029).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core.statistics import Rate, rate_of, sign_test

ENOUGH = 10  # natural failures, to look at them alone
LEVEL = 0.01  # of the test, for all agents together
NATURAL, STARTS = "natural failures", "starts"  # what a vote is


@dataclass(frozen=True)
class Votes:
    """The failures to look at: rows of the executions, in their order."""

    unit: str  # NATURAL or STARTS
    rows: NDArray[np.int64]


def votes(unfair: NDArray[np.bool_], random: NDArray[np.bool_], start: NDArray[Any], index: NDArray[Any]) -> Votes:
    """Of executions: which were unfair, which random, the class of the start each descends from, and its index."""
    natural = np.flatnonzero(unfair & random)
    if len(natural) >= ENOUGH:
        return Votes(NATURAL, natural)
    nobody_chose = np.isin(start, start[random])
    return Votes(STARTS, most_unfair(np.flatnonzero(unfair & nobody_chose), start, index))


def most_unfair(rows: NDArray[np.int64], start: NDArray[Any], index: NDArray[Any]) -> NDArray[np.int64]:
    """Of each start among these rows the one with the lowest index, the first of equal ones."""
    ordered = rows[np.lexsort((rows, index[rows]))]
    return np.sort(ordered[np.unique(start[ordered], return_index=True)[1]])


@dataclass(frozen=True)
class WorstOff:
    """How often each agent receives least (those that tie for it all do), and who is shown to be worse off."""

    unit: str
    votes: int
    least: tuple[Rate, ...]  # one per agent; none where there is no vote
    place: int | None  # of the agent that is shown to be systematically worse off

    def as_dict(self, agents: Sequence[int]) -> dict[str, Any]:
        """As summary.json keeps it; `agents` are the numbers of the judged ones."""
        return {
            "agent": None if self.place is None else agents[self.place],
            "unit": self.unit,
            "votes": self.votes,
            "least": [
                {"agent": agent, "count": one.count, "share": one.estimate, "low": one.low, "high": one.high}
                for agent, one in zip(agents, self.least, strict=False)
            ],
        }


def worst_off(received: NDArray[np.float64], unit: str) -> WorstOff:
    """From what each agent received in each vote (votes, agents).

    An agent is shown to be systematically worse off if against every other one it is more often the one of the two
    that receives least than a coin would allow (exact sign test at LEVEL / agents). One that is only worse off than
    the average is not named: where two agents are, chance would decide between them.
    """
    if not received.size:
        return WorstOff(unit, 0, (), None)
    least = received == received.min(axis=1, keepdims=True)
    counts, agents = least.sum(axis=0), least.shape[1]
    most = int(counts.argmax())
    shown = agents > 1 and all(
        sign_test(int((least[:, most] & ~least[:, other]).sum()), int((least[:, other] & ~least[:, most]).sum()))
        <= LEVEL / agents
        for other in range(agents)
        if other != most
    )
    rates = tuple(rate_of(int(count), len(least)) for count in counts)
    return WorstOff(unit, len(least), rates, most if shown else None)


def worst_off_in(executions: Mapping[str, NDArray[Any]], unfair: NDArray[np.bool_]) -> WorstOff:
    """Of a run's executions, of which `unfair` ones count as failures."""
    if not len(unfair):
        return WorstOff(STARTS, 0, (), None)
    chosen = votes(unfair, executions["random"], executions["root_seed"], executions["index"])
    return worst_off(executions["received"][chosen.rows], chosen.unit)
