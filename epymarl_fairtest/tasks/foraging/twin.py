"""The twin of foraging: lbforaging's rules for teams that see the whole field."""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from epymarl_fairtest.tasks.kernels.seeds import WORDS, next_integer, next_permutation, seed_stream
from epymarl_fairtest.tasks.layers import wrappers
from epymarl_fairtest.tasks.mpe.physics import Array

Levels = NDArray[np.int64]
NONE, NORTH, SOUTH, WEST, EAST, LOAD = range(6)
ATTEMPTS = 1000  # upstream gives up spawning after this many


class ForagingTwin:
    sees_only = True

    def __init__(self, env: Any) -> None:
        inner = wrappers(env)[-1]
        if inner._grid_observation or not inner._observe_agent_levels or inner.sight < max(inner.field_size):
            raise ValueError("a team that does not see the whole field")
        if inner.force_coop:
            raise ValueError("forced cooperation")
        self._rows, self._cols = inner.field_size
        self._players, self._slots = len(inner.players), inner.max_num_food
        self._limit, self._penalty = int(inner._max_episode_steps), float(inner.penalty)
        self._normalised = bool(inner._normalize_reward)
        self._player_levels = inner.min_player_level.astype(np.int64), inner.max_player_level.astype(np.int64)
        self._food_levels = inner.min_food_level.astype(np.int64)
        fixed = inner.max_food_level
        # -1: the most that the three weakest players can load together
        self._most_food = np.full(self._slots, -1, np.int64) if fixed is None else fixed.astype(np.int64)

    def reset(self, seeds: NDArray[np.int64], states: Array) -> None:
        _reset(
            seeds, np.zeros(WORDS, np.uint64), np.zeros(self._players, np.int64), np.zeros(self._slots, np.int64),
            np.zeros((self._rows, self._cols), np.int64), states, self._players, self._slots, *self._player_levels,
            self._food_levels, self._most_food,
        )  # fmt: skip

    def observe(self, states: Array, running: NDArray[np.bool_], seen: NDArray[np.float32]) -> None:
        _observe(states, running, seen, self._players, self._slots)

    def step(
        self, states: Array, running: NDArray[np.bool_], actions: NDArray[np.int16], rewards: Array,
        over: NDArray[np.bool_], steps: NDArray[np.int32],
    ) -> None:  # fmt: skip
        _step(
            states, running, actions, rewards, over, steps, np.zeros((3, self._players), np.int64), self._rows,
            self._cols, self._players, self._slots, self._limit, self._penalty, self._normalised,
        )  # fmt: skip


@njit(cache=True, nogil=True)
def _reset(
    seeds: NDArray[np.int64], stream: NDArray[np.uint64], order: Levels, food_order: Levels, field: Levels,
    states: Array, players: int, slots: int, least: Levels, most: Levels, least_food: Levels, most_food: Levels,
) -> None:  # fmt: skip
    rows, cols = field.shape
    zero, one = np.int64(0), np.int64(1)  # literals would be compiled for, each by itself
    for world in range(len(seeds)):
        seed_stream(np.uint64(seeds[world]), stream)
        state = states[world]
        for row in range(rows):
            for col in range(cols):
                field[row, col] = 0
        # players: levels in a random order, then cells until a free one is drawn
        next_permutation(stream, order)
        for player in range(players):
            for _ in range(ATTEMPTS):
                row, col = next_integer(stream, zero, rows), next_integer(stream, zero, cols)
                if _free(state, row, col, player):
                    level = next_integer(stream, least[order[player]], most[order[player]] + 1)
                    state[3 * player], state[3 * player + 1], state[3 * player + 2] = row, col, level
                    break
        weakest = _weakest_three(state, players)
        # food: never at the border, never close to other food, never under a player
        next_permutation(stream, food_order)
        placed, attempts, food = 0, 0, 0
        while placed < slots and attempts < ATTEMPTS:
            attempts += 1
            row, col = next_integer(stream, one, rows - 1), next_integer(stream, one, cols - 1)
            if _near_food(field, row, col, rows, cols) or not _free(state, row, col, players):
                continue
            slot = food_order[placed]
            low = least_food[slot]
            high = np.int64(weakest) if most_food[slot] < 0 else most_food[slot]
            field[row, col] = low if low == high else next_integer(stream, low, high + 1)
            food += field[row, col]
            placed += 1
        _store_food(state, field, players, slots)
        state[-1] = food


@njit(cache=True, nogil=True, inline="always")
def _weakest_three(state: Array, players: int) -> float:
    """The levels of the three weakest players together. (Numba takes a second to compile `np.sort`.)"""
    together = 0.0
    for player in range(players):
        weaker = 0
        for other in range(players):
            level = state[3 * other + 2]
            weaker += level < state[3 * player + 2] or (level == state[3 * player + 2] and other < player)
        if weaker < 3:
            together += state[3 * player + 2]
    return together


@njit(cache=True, nogil=True, inline="always")
def _free(state: Array, row: int, col: int, players: int) -> bool:
    for player in range(players):
        if state[3 * player] == row and state[3 * player + 1] == col:
            return False
    return True


@njit(cache=True, nogil=True, inline="always")
def _near_food(field: Levels, row: int, col: int, rows: int, cols: int) -> bool:
    """Food in the eight cells around, or within two steps along the row or the column?"""
    for r in range(row - 2, row + 3):
        for c in range(col - 2, col + 3):
            if 0 <= r < rows and 0 <= c < cols and abs((r - row) * (c - col)) < 2 and field[r, c] > 0:
                return True
    return False


@njit(cache=True, nogil=True, inline="always")
def _store_food(state: Array, field: Levels, players: int, slots: int) -> None:
    """The food of the field into the state's slots, row by row."""
    slot = 0
    for row in range(field.shape[0]):
        for col in range(field.shape[1]):
            if field[row, col] > 0:
                at = 3 * (players + slot)
                state[at], state[at + 1], state[at + 2] = row, col, field[row, col]
                slot += 1
    for empty in range(slot, slots):
        at = 3 * (players + empty)
        state[at], state[at + 1], state[at + 2] = -1.0, -1.0, 0.0


@njit(cache=True, nogil=True)
def _observe(states: Array, running: NDArray[np.bool_], seen: NDArray[np.float32], players: int, slots: int) -> None:
    for world in range(len(states)):
        if not running[world]:
            continue
        state = states[world]
        for me in range(players):
            out = seen[world, me]
            for i in range(3 * slots):
                out[i] = state[3 * players + i]
            at = 3 * slots
            for i in range(3):
                out[at + i] = state[3 * me + i]
            at += 3
            for other in range(players):
                if other != me:
                    for i in range(3):
                        out[at + i] = state[3 * other + i]
                    at += 3


@njit(cache=True, nogil=True, inline="always")
def _food_at(state: Array, row: Any, col: Any, players: int, slots: int) -> int:
    """The slot of the food in a cell, -1 for none."""
    for slot in range(slots):
        at = 3 * (players + slot)
        if state[at + 2] > 0 and state[at] == row and state[at + 1] == col:
            return slot
    return -1


@njit(cache=True, nogil=True, inline="always")
def _food_beside(state: Array, row: Any, col: Any, players: int, slots: int) -> int:
    """The slot of food next to a cell; the spawn rules leave at most one."""
    for slot in range(slots):
        at = 3 * (players + slot)
        if state[at + 2] > 0 and abs(state[at] - row) + abs(state[at + 1] - col) == 1:
            return slot
    return -1


@njit(cache=True, nogil=True)
def _step(
    states: Array, running: NDArray[np.bool_], actions: NDArray[np.int16], rewards: Array, over: NDArray[np.bool_],
    steps: NDArray[np.int32], wanted: Levels, rows: int, cols: int, players: int, slots: int, limit: int,
    penalty: float, normalised: bool,
) -> None:  # fmt: skip
    target_row, target_col = wanted[0], wanted[1]
    loads = wanted[2]  # slot of the food a player loads, -1 for none
    for world in range(len(states)):
        if not running[world]:
            continue
        state = states[world]
        # where everybody wants to go; an impossible action does nothing
        for player in range(players):
            row, col = np.int64(state[3 * player]), np.int64(state[3 * player + 1])
            action = actions[world, player]
            loads[player] = _food_beside(state, row, col, players, slots) if action == LOAD else -1
            to_row = row - (action == NORTH) + (action == SOUTH)
            to_col = col - (action == WEST) + (action == EAST)
            inside = 0 <= to_row < rows and 0 <= to_col < cols
            if not inside or _food_at(state, to_row, to_col, players, slots) >= 0:
                to_row, to_col = row, col
            target_row[player], target_col[player] = to_row, to_col
        # nobody moves to a cell that two want; a player who alone wants a cell moves, even onto one who was held up
        for player in range(players):
            alone = True
            for other in range(players):
                if other != player and target_row[other] == target_row[player]:
                    alone = alone and target_col[other] != target_col[player]
            if alone:
                state[3 * player], state[3 * player + 1] = target_row[player], target_col[player]
        # each food is loaded by all who load it together, if their levels suffice
        for player in range(players):
            rewards[world, player] = 0.0
        eaten = False
        for slot in range(slots):
            at = 3 * (players + slot)
            food, strength, anybody = state[at + 2], 0.0, False
            for player in range(players):
                if loads[player] == slot:
                    strength += state[3 * player + 2]
                    anybody = True
            if not anybody:
                continue
            for player in range(players):
                if loads[player] == slot:
                    if strength < food:
                        rewards[world, player] -= penalty
                    elif normalised:
                        rewards[world, player] = state[3 * player + 2] * food / (strength * state[-1])
                    else:
                        rewards[world, player] = state[3 * player + 2] * food
            if strength >= food:
                state[at + 2] = 0.0
                eaten = True
        if eaten:
            _close_ranks(state, players, slots)
        left = 0.0
        for slot in range(slots):
            left += state[3 * (players + slot) + 2]
        over[world] = left == 0 or steps[world] + 1 >= limit


@njit(cache=True, nogil=True, inline="always")
def _close_ranks(state: Array, players: int, slots: int) -> None:
    """Eaten food leaves its slot; the food behind it moves up, as observations show it."""
    kept = 0
    for slot in range(slots):
        at, to = 3 * (players + slot), 3 * (players + kept)
        if state[at + 2] > 0:
            state[to], state[to + 1], state[to + 2] = state[at], state[at + 1], state[at + 2]
            kept += 1
    for slot in range(kept, slots):
        to = 3 * (players + slot)
        state[to], state[to + 1], state[to + 2] = -1.0, -1.0, 0.0
