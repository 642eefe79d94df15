"""Rows of a group that are alike. Who sees the same and remembers the same is asked once, without a memory even at
different steps; who is in the same state at the same step and draws from the same stream goes on alike, so one is
executed and the others receive what it receives.

Knows states, streams, what is seen and rewards; no rules.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from epymarl_fairtest.core.episodes import Tests
from epymarl_fairtest.team.contract import Policy

SOME = 8  # words of the second array that tell rows apart quickly; all of them decide
PATIENCE = 4  # times that nobody is found alike, after which a group is not looked at any more
WORTH = 1 / 16  # of the rows, that must be known already for keeping answers not to be in vain
ANSWERS, BYTES = 2**16, 2**27  # that are kept of a group, and what they may fill; more are forgotten together
Rows = NDArray[np.int64]
Mask = NDArray[np.bool_]
NOBODY: Rows = np.empty(0, np.int64)
Words = NDArray[np.uint32]


class Meetings:
    """Of a group of which nobody asks more than what its agents receive. Its rows step by one clock: a row that begins
    later waits for it."""

    def __init__(self, group: Tests, forced_until: Rows, policy: Policy, limit: int) -> None:
        self._free = forced_until + 1  # the first step from which nothing is forced
        self._remembers, self._reads_last = policy.hidden_size > 0, getattr(policy, "reads_last", True)
        own = [group.stream, group.shift.astype(np.uint64)]
        if group.greedy is not None:
            own += list(np.packbits(group.greedy, axis=1).astype(np.uint64).T)
        self._own = _words(np.stack(own, axis=1))
        self.clock = -1  # the step that is taken
        self._found: list[tuple[int, Rows, Rows]] = []  # step, who met, and whom
        self._paid = np.empty((limit, len(group), policy.n_agents))  # by step, as long as somebody may meet somebody
        self._in_vain = {"met": 0, "asked": 0, "before": 0}
        self._policy, self._answers = policy, Answers(policy, self._reads_last)

    def at_clock(self, left: Mask, step: NDArray[np.int32]) -> Mask:
        """Of the rows that are left, those that step now."""
        now: Mask = left & (step == self.clock + 1)
        if not now.any():  # nobody goes on: the next to begin
            now = left & (step == step[left].min())
        self.clock = int(step[now.argmax()])
        return now

    def met(self, running: Mask, step: NDArray[np.int32], states: NDArray[np.float64], last: NDArray[np.int16]) -> Rows:
        """The running rows that go on as another one does."""
        if self._remembers or self._in_vain["met"] >= PATIENCE:  # what is remembered differs once they have differed
            return NOBODY
        rows = np.flatnonzero(running & (step >= self._free))
        first = self._first_alike("met", rows, _words(states), self._own, last)
        later = np.flatnonzero(first != np.arange(len(rows)))
        if len(later):
            self._found.append((int(step[rows[0]]), rows[later], rows[first[later]]))
        return rows[later]

    def different(
        self, asked: Mask, seen: NDArray[np.float32], last: NDArray[np.int16], hidden: NDArray[np.float32]
    ) -> tuple[Rows, Rows | None]:
        """One row of each that the policy must be asked about, and whose answer each that is asked about has; None:
        its own."""
        rows = np.flatnonzero(asked)
        if not self._remembers:  # answers are kept, as long as that is worth it
            return rows, None
        first = self._first_alike("asked", rows, _words(seen), _words(hidden), last)
        own = first == np.arange(len(rows))
        return (rows, None) if own.all() else (rows[own], (np.cumsum(own) - 1)[first])

    def ask(
        self, rows: Rows, seen: NDArray[np.float32], last: NDArray[np.int16], hidden: NDArray[np.float32]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """What the policy says of these rows, and what they remember then."""
        if self._remembers or self._in_vain["before"] >= PATIENCE or not len(rows):
            return ask_policy(self._policy, rows, seen, last, hidden)
        scores, known = self._answers.about(rows, seen, last)
        self._in_vain["before"] = 0 if known >= WORTH * len(rows) else self._in_vain["before"] + 1
        return scores, hidden[rows]

    def _first_alike(self, what: str, rows: Rows, one: Words, other: Words, last: NDArray[np.int16]) -> Rows:
        """For each of these rows the first one of which the same is known; the last actions are if they count."""
        alone = np.arange(len(rows))
        if len(rows) < 2 or self._in_vain[what] >= PATIENCE:
            return alone
        first = first_alike(rows, one, other, last if self._reads_last else last[:, :0])
        self._in_vain[what] = self._in_vain[what] + 1 if (first == alone).all() else 0
        return first

    def keep(self, rewards: NDArray[np.float64]) -> None:
        """What running rows receive now, for those who meet them."""
        if self._found or not (self._remembers or self._in_vain["met"] >= PATIENCE):
            self._paid[self.clock] = rewards

    def settle(self, totals: NDArray[np.float64], length: NDArray[np.int32]) -> None:
        """Who met somebody receives what it does from then on; the last to meet first, for it may have been met."""
        for step, met, whom in reversed(self._found):
            receive_alike(self._paid, step, met, whom, totals, length)


def ask_policy(
    policy: Policy, rows: Rows, seen: NDArray[np.float32], last: NDArray[np.int16], hidden: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The policy about these rows of a group, or about the whole group as it is."""
    if len(rows) == len(seen):
        return policy.forward(seen, last, hidden)
    return policy.forward(seen[rows], last[rows], hidden[rows])


class Answers:
    """What a policy without a memory said of what was seen: it says the same again."""

    def __init__(self, policy: Policy, reads_last: bool) -> None:
        agents = policy.n_agents
        self._policy, self._reads_last, self._count = policy, reads_last, 0
        self._room = min(ANSWERS, BYTES // (4 * agents * (policy.obs_size + policy.n_actions + 1)))
        self._seen = np.empty((self._room, agents * policy.obs_size), np.uint32)
        self._last = np.empty((self._room, agents if reads_last else 0), np.int16)
        self._scores = np.empty((self._room, agents, policy.n_actions), np.float32)
        self._table = np.full(0, -1)

    def about(self, rows: Rows, seen: NDArray[np.float32], last: NDArray[np.int16]) -> tuple[NDArray[np.float32], int]:
        """The scores of these rows, and how many of them were known."""
        nothing = np.empty((len(rows), self._policy.n_agents, 0), np.float32)
        if self._count + len(rows) > self._room or not len(self._table):
            self._table, self._count = np.full(4 * ANSWERS, -1), 0
        if len(rows) > self._room:
            return self._policy.forward(seen[rows], last[rows], nothing)[0], 0
        before = self._count
        read = last if self._reads_last else last[:, :0]
        places, new = recalled(rows, _words(seen), read, self._table, self._seen, self._last, before)
        self._count += len(new)
        self._scores[before : self._count] = self._policy.forward(seen[new], last[new], nothing[: len(new)])[0]
        return self._scores[places], len(rows) - len(new)


def _words(values: NDArray[Any]) -> Words:
    """Rows of numbers as rows of bits."""
    return np.ascontiguousarray(values).reshape(len(values), -1).view(np.uint32)


def first_alike(rows: Rows, one: Words, other: Words, last: NDArray[np.int16]) -> Rows:
    """For each of these rows which of them is the first that holds the same in all three."""
    table, first = np.full(max(16, 2 ** (2 * len(rows) - 1).bit_length()), -1), np.empty(len(rows), np.int64)
    _find_alike(rows, one, other, last, table, first)
    return first


@njit(cache=True, nogil=True)
def _find_alike(rows: Rows, one: Words, other: Words, last: NDArray[np.int16], table: Rows, first: Rows) -> None:
    places = len(table)
    for number in range(len(rows)):
        row, word = rows[number], np.uint64(1)
        for column in range(one.shape[1]):
            word = _mixed(word, one[row, column])
        for column in range(min(other.shape[1], SOME)):
            word = _mixed(word, other[row, column])
        place = np.int64(word & np.uint64(places - 1))
        first[number] = number
        while table[place] >= 0:
            before = rows[table[place]]
            if _alike(one, row, one, before) and _alike(other, row, other, before) and _alike(last, row, last, before):
                first[number] = table[place]
                break
            place = (place + 1) & (places - 1)
        else:
            table[place] = number


@njit(cache=True, nogil=True)
def receive_alike(
    paid: NDArray[np.float64], step: int, met: Rows, whom: Rows, totals: NDArray[np.float64], length: NDArray[np.int32]
) -> None:
    """Add to each that met somebody, from that step on, what that one receives, one step after the other."""
    for number in range(len(met)):
        one, other = met[number], whom[number]
        length[one] = length[other]
        for now in range(step, length[one]):
            for agent in range(totals.shape[1]):
                paid[now, one, agent] = paid[now, other, agent]
                totals[one, agent] += paid[now, one, agent]


def recalled(
    rows: Rows, seen: Words, last: NDArray[np.int16], table: Rows, kept: Words, kept_last: NDArray[np.int16], count: int
) -> tuple[Rows, Rows]:
    """Where what each of these rows sees is kept, and which rows were added to it behind the first `count`."""
    places, new = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
    added = _recall(rows, seen, last, table, kept, kept_last, count, places, new)
    return places, new[:added]


@njit(cache=True, nogil=True)
def _recall(
    rows: Rows, seen: Words, last: NDArray[np.int16], table: Rows, kept: Words, kept_last: NDArray[np.int16],
    count: int, places: Rows, new: Rows,
) -> int:  # fmt: skip
    added = 0
    for number in range(len(rows)):
        row, word = rows[number], np.uint64(1)
        for column in range(seen.shape[1]):
            word = _mixed(word, seen[row, column])
        at = np.int64(word & np.uint64(len(table) - 1))
        while table[at] >= 0 and not (_alike(kept, table[at], seen, row) and _alike(kept_last, table[at], last, row)):
            at = (at + 1) & (len(table) - 1)
        if table[at] < 0:
            table[at] = count + added
            for column in range(seen.shape[1]):  # one by one: a slice needs text for an error message compiled
                kept[table[at], column] = seen[row, column]
            for column in range(last.shape[1]):
                kept_last[table[at], column] = last[row, column]
            new[added] = row
            added += 1
        places[number] = table[at]
    return added


@njit(cache=True, nogil=True)
def _mixed(word: np.uint64, value: np.uint32) -> np.uint64:
    word = (word ^ np.uint64(value)) * np.uint64(0x9E3779B97F4A7C15)
    return word ^ (word >> np.uint64(29))


@njit(cache=True, nogil=True)
def _alike(values: NDArray[Any], one: int, others: NDArray[Any], other: int) -> bool:
    for column in range(values.shape[1]):  # noqa: SIM110 (a generator is not compiled as well)
        if values[one, column] != others[other, column]:
            return False
    return True
