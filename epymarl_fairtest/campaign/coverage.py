"""Which share of the position grid failures went through: of all agents together, or of few at a time.

The grid of all agents grows with the power of their number: for 16 agents and 4 bins it has 4^32 cells, and no search
covers a share of it that means anything. There the pairs of agents are looked at, each with a grid of its own.
"""

from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.tasks.contract import Task

MOST_CELLS = 2**24  # some twenty times the steps of a search at the paper's scale
ALL, PAIRS, SINGLE = "all agents", "pairs of agents", "single agents"
TOGETHER = {PAIRS: 2, SINGLE: 1}  # agents that share a grid
Cells = NDArray[np.int64]


class Coverage:
    """The cells that failures went through, of one grid or of one per group of agents; each grid counts alike."""

    def __init__(self, task: Task, bins: int) -> None:
        self._task, self._bins = task, bins
        self.of = kind_of(task.n_agents, bins, task.cell_count(bins))
        self._groups = groups_of(self.of, task.n_agents)
        cells = task.cell_count(bins) if self.of == ALL else bins ** (2 * self._groups.shape[1])
        self._covered = np.zeros((len(self._groups), cells), bool)

    def add(self, states: NDArray[np.float64]) -> None:
        """States (n, state_size) that failures went through."""
        if self.of == ALL:
            self._covered[0, self._task.cells(states, self._bins)] = True
            return
        places = self._task.places(states, self._bins)
        weight = self._bins ** (2 * np.arange(self._groups.shape[1]))
        for covered, agents in zip(self._covered, self._groups, strict=True):
            covered[places[:, agents] @ weight] = True

    def share(self) -> float:
        return int(self._covered.sum()) / self._covered.size

    def cells(self) -> Cells:
        """The numbers of the covered cells, ascending; those of a group follow those of the group before it."""
        return np.flatnonzero(self._covered)


def kind_of(agents: int, bins: int, all_cells: int) -> str:
    """How many agents are looked at together: as many as leave the grids small enough to be covered."""
    if all_cells <= MOST_CELLS:
        return ALL
    small = (
        kind for kind, together in TOGETHER.items() if comb(agents, together) * bins ** (2 * together) <= MOST_CELLS
    )
    return next(small, SINGLE)


def groups_of(kind: str, agents: int) -> Cells:
    """(groups, agents in each): which agents share a grid."""
    return np.array(list(combinations(range(agents), TOGETHER.get(kind, agents))), np.int64)


def maps_of(cells: Cells, kind: str, agents: int, bins: int) -> NDArray[np.float64]:
    """(agents, bins, bins): for each agent and place of it, the covered share of the cells with the agent there."""
    groups = groups_of(kind, agents)
    together = groups.shape[1]
    group, cell = np.divmod(cells, bins ** (2 * together))
    maps = np.zeros((agents, bins, bins))
    for member in range(together):
        first, second = (cell // bins ** (2 * member + digit) % bins for digit in (0, 1))
        np.add.at(maps, (groups[group, member], first, second), 1)
    maps /= comb(agents - 1, together - 1) * bins ** (2 * (together - 1))
    return maps
