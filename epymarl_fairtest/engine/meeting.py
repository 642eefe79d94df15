"""Rows of a group that meet: in the same state at the same step, drawing from the same stream, they go on alike.

So one of them is executed, and the others receive what it receives. Knows states, streams and rewards; no rules.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from epymarl_fairtest.core.episodes import Episodes, Tests

PATIENCE = 4  # steps after which a group is not looked at any more if nobody has met: in a plane nobody does
Rows = NDArray[np.int64]
Words = NDArray[np.uint64]


class Meetings:
    """Of a group without a memory, of which nobody asks more than what its agents receive. Its rows step by one clock:
    a row that begins later waits for it."""

    def __init__(self, group: Tests, forced_until: Rows, reads_last: bool) -> None:
        self._free, self._reads_last = forced_until + 1, reads_last  # the first step from which nothing is forced
        own = [group.stream, group.shift.astype(np.uint64)]
        if group.greedy is not None:
            own.append(np.packbits(group.greedy, axis=1).astype(np.uint64).T)
        self._own: Words = np.vstack(own).T
        self._found: list[tuple[int, Rows, Rows]] = []  # step, who met, and whom
        self._looked = 0

    def at_clock(self, left: NDArray[np.bool_], step: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Of the rows that are left, those that step now."""
        now: NDArray[np.bool_] = left & (step == step[left].min())
        return now

    def met(self, running: NDArray[np.bool_], step: NDArray[np.int32], states: Words, last: NDArray[np.int16]) -> Rows:
        """The running rows that go on as another one does."""
        rows = np.flatnonzero(running & (step >= self._free))
        if len(rows) < 2 or (self._looked >= PATIENCE and not self._found):
            return rows[:0]
        self._looked += 1
        keys = [states[rows], self._own[rows]]
        if self._reads_last:
            keys.append(last[rows].astype(np.uint64))
        first = first_alike(np.concatenate(keys, axis=1))
        later = np.flatnonzero(first != np.arange(len(rows)))
        if len(later):
            self._found.append((int(step[rows[0]]), rows[later], rows[first[later]]))
        return rows[later]

    def different(
        self, asked: NDArray[np.bool_], seen: NDArray[np.float32], last: NDArray[np.int16]
    ) -> tuple[Rows, Rows]:
        """Of the rows whose agents must be asked, one of each that see different things; and which of these each is."""
        rows = np.flatnonzero(asked)
        if not self._found:
            return rows, np.arange(len(rows))
        keys = seen[rows].reshape(len(rows), -1)
        if self._reads_last:
            keys = np.concatenate([keys, last[rows]], axis=1, dtype=np.float32)
        first = first_alike(keys.view(np.uint32))
        own = first == np.arange(len(rows))
        return rows[own], (np.cumsum(own) - 1)[first]

    def settle(self, episodes: Episodes, rows: Rows) -> None:
        """Who met somebody receives what it does from then on; the last to meet first, for it may have been met."""
        for step, met, whom in reversed(self._found):
            episodes.rewards[rows[met], step:] = episodes.rewards[rows[whom], step:]
            episodes.actions[rows[met], step:] = episodes.actions[rows[whom], step:]
            episodes.length[rows[met]] = episodes.length[rows[whom]]


@njit(cache=True, nogil=True)
def first_alike(keys: Words) -> Rows:
    """For each row the first one that holds the same words."""
    count, size = keys.shape
    places = 16
    while places < 2 * count:
        places *= 2
    table, first = np.full(places, -1), np.empty(count, np.int64)
    for row in range(count):
        word = np.uint64(size)
        for column in range(size):
            word = (word ^ np.uint64(keys[row, column])) * np.uint64(0x9E3779B97F4A7C15)
            word ^= word >> np.uint64(29)
        place = np.int64(word & np.uint64(places - 1))
        first[row] = row
        while table[place] >= 0:
            other, same = table[place], True
            for column in range(size):
                if keys[other, column] != keys[row, column]:
                    same = False
                    break
            if same:
                first[row] = other
                break
            place = (place + 1) & (places - 1)
        else:
            table[place] = row
    return first
