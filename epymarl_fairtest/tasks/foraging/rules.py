"""Foraging (LBF): players of different levels load food together; works for any lbforaging ForagingEnv.

State: row, col, level of each player; row, col, level of each food slot (the food in row-major order of
the field as it is now, then -1, -1, 0 for what was eaten); the sum of the levels of the food spawned at
reset, by which rewards are divided.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.tasks.contract import Array, Competence, Edit, Kernel, Task
from epymarl_fairtest.tasks.foraging.features import features
from epymarl_fairtest.tasks.foraging.field import food_slots, forget
from epymarl_fairtest.tasks.foraging.simpler import simplifications
from epymarl_fairtest.tasks.foraging.situations import course, situation
from epymarl_fairtest.tasks.layers import set_clocks, wrappers
from epymarl_fairtest.tasks.scene import Cast, Field, Fields, Thing


def _simulator(chain: list[Any]) -> Any | None:
    """lbforaging's environment, or the older copy that PyMARLzoo+ carries."""
    inner = chain[-1]
    needed = ("field", "players", "max_num_food", "_gen_valid_moves", "_make_gym_obs")
    named = any(cls.__name__ == "ForagingEnv" for cls in type(inner).__mro__)
    return inner if named and all(hasattr(inner, name) for name in needed) else None


def _bound(inner: Any, name: str, count: int) -> Array:
    """A lowest or highest level of each player or food slot; older environments have one for all, or none."""
    return np.broadcast_to(np.asarray(getattr(inner, name, 1), np.float64), count)


def _near(one: Array, other: Array) -> NDArray[np.bool_]:
    """Too close for two foods: in the eight cells around, or within two along a row or a column."""
    gap = np.abs(one[..., :2] - other[..., :2])
    near: NDArray[np.bool_] = (gap <= 1).all(axis=-1) | ((gap == 0).any(axis=-1) & (gap <= 2).all(axis=-1))
    return near


def _matches(levels: Array, low: Array, high: Array) -> NDArray[np.bool_]:
    """Can every level of a row (NaN: none) be dealt from a range of its own? The ranges come in any order.

    From the lowest level on, each takes the free range that ends first: no other choice could serve more levels.
    """
    high = np.broadcast_to(high, levels.shape)
    free, fits = np.ones(levels.shape, bool), np.ones(len(levels), bool)
    for level in np.sort(levels, axis=1).T:
        open_to = free & (low <= level[:, None]) & (level[:, None] <= high)
        taken = np.where(open_to, high, np.inf).argmin(axis=1)
        fits &= open_to.any(axis=1) | np.isnan(level)
        free[np.arange(len(levels)), taken] &= np.isnan(level)
    return fits


@lru_cache(4096)  # a page has the same levels again and again
def _cast(foods: tuple[float, ...], players: tuple[float, ...]) -> Cast:
    """What is on the field, by its levels."""
    squares = (Thing("square", f"{level:.0f}", 0.4) for level in foods)
    agents = (Thing("agent", str(n), 0.4, int(level), trail=True) for n, level in enumerate(players, 1))
    return "grid", (*squares, *agents)


class ForagingTask(Task):
    """All players are under test, and the environment's own reward is the allocation."""

    name: ClassVar[str] = "foraging"
    order: ClassVar[int] = 3
    theta: ClassVar[float] = 0.67
    restorable: bool = True
    proposable: bool = True
    distinct_distance: float = 0.5
    environments: ClassVar[Mapping[str, str]] = {
        "lbforaging-v0": "epymarl_fairtest.tasks.foraging.environment:make_foraging_env"
    }
    twins: ClassVar[str] = "foraging with full sight"
    legend: ClassVar[str] = "Squares are food with its level; the small number at an agent is the agent's level."
    actions: ClassVar[Sequence[str]] = ("none", "north", "south", "west", "east", "load")
    grid: ClassVar[bool] = True

    @classmethod
    def recognises(cls, env: Any) -> bool:
        return _simulator(wrappers(env)) is not None

    def __init__(self, env: Any) -> None:
        inner = self._simulator(wrappers(env))
        self.rows, self.cols = inner.field_size
        self.n_agents = len(inner.players)
        self.slots = inner.max_num_food
        self.state_size = 3 * self.n_agents + 3 * self.slots + 1
        # Cells are centred on whole numbers, so that every bin of the coverage grid holds whole cells.
        self.low, self.high = -0.5, max(self.rows, self.cols) - 0.5
        self._player_levels = tuple(_bound(inner, f"{end}_player_level", self.n_agents) for end in ("min", "max"))
        self._food_low, self._force_coop = _bound(inner, "min_food_level", self.slots), bool(inner.force_coop)
        self._food_high = None if inner.max_food_level is None else _bound(inner, "max_food_level", self.slots)
        # What a reset can draw of (row, col, level): food not at the border; level 0 is a slot left empty.
        low, high = self._player_levels
        players = [0, 0, low.min()], [self.rows - 1, self.cols - 1, high.max()]
        food = [1, 1, 0], [self.rows - 2, self.cols - 2, self._most_food(high[None]).max()]
        self._least, self._most = (
            np.array([one] * self.n_agents + [other] * self.slots, np.float64)
            for one, other in zip(players, food, strict=True)
        )

    @staticmethod
    def _simulator(chain: list[Any]) -> Any:
        inner = _simulator(chain)
        if inner is None:
            raise FairTestError(f"{chain[0]} holds no lbforaging ForagingEnv; task foraging needs one.")
        return inner

    def reset(self, env: Any, seed: int) -> Any:
        forget(self._simulator(wrappers(env)))
        return env.reset(seed=seed)

    def source(self, env: Any) -> Any:
        return wrappers(env)[-1]

    def read(self, env: Any) -> Array:
        inner = self._simulator(wrappers(env))
        values = food_slots(inner.field, self.slots)
        standing = [number for player in inner.players for number in (*player.position, player.level)]
        return np.array([*standing, *values, inner._food_spawned], np.float64)

    def positions(self, states: Array) -> Array:
        return self.players(states)[..., :2]

    def players(self, states: Array) -> Array:
        """row, col, level of each player: a view (..., n_agents, 3)."""
        return states[..., : 3 * self.n_agents].reshape(*states.shape[:-1], self.n_agents, 3)

    def food(self, states: Array) -> Array:
        """row, col, level of each food slot: a view (..., slots, 3)."""
        return states[..., 3 * self.n_agents : -1].reshape(*states.shape[:-1], self.slots, 3)

    def observe(self, env: Any) -> list[NDArray[np.float32]]:
        seen = self._simulator(wrappers(env))._make_gym_obs()
        if isinstance(seen[0], tuple):  # the older environment gives rewards and more behind the observations
            seen = seen[0]
        return [np.asarray(one, dtype=np.float32).ravel() for one in seen]

    def write(self, env: Any, state: Array, step: int) -> None:
        chain = wrappers(env)
        inner = self._simulator(chain)
        set_clocks(chain, step)
        inner.field = np.zeros((self.rows, self.cols), np.int32)
        for row, col, level in self.food(state).astype(np.int64).tolist():
            if level > 0:
                inner.field[row, col] = level
        for player, (row, col, level) in zip(inner.players, self.players(state).astype(np.int64).tolist(), strict=True):
            player.setup((row, col), level, (self.rows, self.cols))
            player.reward = 0
        inner.current_step = step
        inner._food_spawned = int(state[-1])
        inner._game_over = bool(inner.field.sum() == 0 or inner._max_episode_steps <= step)
        inner._gen_valid_moves()

    def perturb(self, states: Array, rng: np.random.Generator) -> tuple[Array, NDArray[np.bool_]]:
        """Rounded to cells and kept inside the field.

        A row or column of 0 to 2 never changes (2 * 1.2 rounds to 2), so a team whose players all
        stand there cannot be perturbed: every try is refused.
        """
        new = states.copy()
        old = self.positions(states)
        moved = np.rint(old * rng.uniform(0.8, 1.2, old.shape))
        self.players(new)[..., :2] = np.clip(moved, 0, [self.rows - 1, self.cols - 1])
        return new, (new != states).any(axis=1) & ~self._crowded(new)

    def start_vectors(self, states: Array) -> Array:
        """row, col, level of players and food slots, scaled from what can be drawn; empty slots are in the middle."""
        things = states[..., :-1].reshape(*states.shape[:-1], -1, 3)
        scaled = 2 * (things - self._least) / self._range() - 1
        scaled[..., :2][self._empty(things)] = 0
        return scaled.reshape(*states.shape[:-1], -1)

    def starts_from(self, vectors: Array) -> tuple[Array, NDArray[np.bool_]]:
        """Rounded to cells and levels; what no reset would draw is refused."""
        things = np.rint((vectors.reshape(len(vectors), -1, 3) + 1) / 2 * self._range()) + self._least
        empty = self._empty(things)
        drawn = ((things >= self._least) & (things <= self._most)).all(axis=2) | empty
        things[empty] = [-1, -1, 0]
        states = np.concatenate([things.reshape(len(things), -1), np.zeros((len(things), 1))], axis=1)
        states = self.as_read(states)
        states[:, -1] = self.food(states)[..., 2].sum(axis=1)
        return states, drawn.all(axis=1) & ~self._crowded(states) & self._spaced(states) & self._dealt(states)

    def simplifications(self) -> list[Edit]:
        """Food that does not matter is taken away."""
        return simplifications(self.n_agents, self.slots)

    def is_start(self, states: Array) -> NDArray[np.bool_]:
        """There is something to eat, everybody has a cell of his own, and no reset draws other numbers."""
        things = states[..., :-1].reshape(*states.shape[:-1], -1, 3)
        drawn = ((things >= self._least) & (things <= self._most)).all(axis=2) | self._empty(things)
        return drawn.all(axis=1) & (self.food(states)[..., 2] > 0).any(axis=1) & ~self._crowded(states)

    def as_read(self, states: Array) -> Array:
        """Food row by row, empty slots last."""
        states = states.copy()
        food = self.food(states)
        order = np.lexsort((food[..., 1], food[..., 0], food[..., 2] == 0), axis=1)
        food[:] = np.take_along_axis(food, order[..., None], axis=1)
        return states

    def start_places(self, starts: Array) -> Array:
        return np.concatenate([self.players(starts)[..., :2], self.food(starts)[..., :2]], axis=-2)

    def bodies_of_starts(self, size: int) -> NDArray[np.int64]:
        return np.arange(size) // 3  # row, col, level

    def _empty(self, things: Array) -> NDArray[np.bool_]:
        """Which of the players and food slots (..., 3) are slots without food?"""
        empty: NDArray[np.bool_] = (things[..., 2] == 0) & (np.arange(self.n_agents + self.slots) >= self.n_agents)
        return empty

    def _range(self) -> Array:
        return np.maximum(self._most - self._least, 1)

    def _spaced(self, states: Array) -> NDArray[np.bool_]:
        """Does food keep its distance, and does a slot stay empty only where no more food fits?"""
        food = self.food(states)
        there = food[..., 2] > 0
        first, second = np.triu_indices(self.slots, k=1)
        close = _near(food[:, first], food[:, second]) & there[:, first] & there[:, second]
        spaced = np.logical_not(close.any(axis=1))
        rows = np.flatnonzero(spaced & ~there.all(axis=1))  # few: every cell of theirs is looked at
        spaced[rows] = self._full(states[rows])
        return spaced

    def _full(self, states: Array) -> NDArray[np.bool_]:
        """Is no cell left in which another food could be placed?"""
        food, players = self.food(states), self.positions(states)
        inner = 1 + np.argwhere(np.ones((self.rows - 2, self.cols - 2))).astype(np.float64)
        taken = (_near(inner[:, None], food[:, None]) & (food[..., 2] > 0)[:, None]).any(axis=2)
        taken |= (inner[:, None] == players[:, None]).all(axis=3).any(axis=2)
        full: NDArray[np.bool_] = taken.all(axis=1)
        return full

    def _dealt(self, states: Array) -> NDArray[np.bool_]:
        """Are the levels among those that a reset deals out to players and food?"""
        levels, food = self.players(states)[..., 2], self.food(states)[..., 2]
        most = self._most_food(levels)
        least = most if self._force_coop else self._food_low
        return _matches(levels, *self._player_levels) & _matches(np.where(food > 0, food, np.nan), least, most)

    def _most_food(self, levels: Array) -> Array:
        """The highest level of each food slot where players have these levels (B, n_agents)."""
        weakest = np.sort(levels, axis=1)[:, :3].sum(axis=1, keepdims=True)
        most = weakest if self._food_high is None else self._food_high
        return np.broadcast_to(most, (len(levels), self.slots))

    def _crowded(self, states: Array) -> NDArray[np.bool_]:
        """Do two players, or a player and food, share a cell?"""
        at, food = self.positions(states), self.food(states)[..., :2]
        first, second = np.triu_indices(self.n_agents, k=1)
        together = (at[:, first] == at[:, second]).all(axis=-1).any(axis=-1)
        on_food = (at[:, :, None] == food[:, None]).all(axis=-1).any(axis=(1, 2))
        crowded: NDArray[np.bool_] = together | on_food
        return crowded

    def features(self, starts: Array) -> Array:
        return features(self.players(starts), self.food(starts))

    def situation(self, starts: Array) -> dict[str, Array]:
        return situation(self.players(starts), self.food(starts), (self.rows, self.cols))

    def course(self, states: Array, length: NDArray[np.int32]) -> dict[str, Array]:
        return course(self.players(states), self.food(states), length)

    def twin(self, env: Any, allocation: str) -> Kernel | None:
        if allocation != "env":
            return None
        from epymarl_fairtest.tasks.foraging.twin import ForagingTwin

        return ForagingTwin(env)

    def field(self, states: Array) -> Field:
        return self.fields(states[None], np.array([len(states) - 1]))[0]

    def fields(self, states: Array, steps: NDArray[np.integer[Any]]) -> Fields:
        whose, (row, col, level), there = self._foods(states)
        players = np.ascontiguousarray(self.players(states).transpose(3, 0, 2, 1))  # (3, episodes, n_agents, steps+1)
        levels, foods = players[2, :, :, 0].tolist(), level.tolist()
        ends = np.searchsorted(whose, np.arange(len(states) + 1)).tolist()
        known: dict[Any, int] = {}  # levels of food and players
        cast = [
            known.setdefault((tuple(foods[ends[n] : ends[n + 1]]), tuple(own)), len(known))
            for n, own in enumerate(levels)
        ]
        order = np.argsort(np.concatenate([whose, np.repeat(np.arange(len(states)), self.n_agents)]), kind="stable")
        at = np.empty((2, len(order), states.shape[1]))  # x and y of the food of an episode, then of its players
        for axis, (food, player) in enumerate(((col, players[1]), (row, players[0]))):
            still = np.broadcast_to(food[:, None], there.shape)
            at[axis] = np.concatenate([still, player.reshape(-1, states.shape[1])])[order]
        at[1] = self.rows - 1 - at[1]  # rows are counted from the top
        present = np.concatenate([there, np.ones((len(order) - len(there), states.shape[1]), bool)])[order]
        low, high = np.full((len(states), 2), -0.5), np.tile(np.array([self.cols, self.rows]) - 0.5, (len(states), 1))
        casts, which = [_cast(*one) for one in known], np.array(cast, np.int64)
        return Fields(casts, which, steps, at.transpose(1, 2, 0), present, low, high).played()

    def _foods(self, states: Array) -> tuple[NDArray[np.int64], Array, NDArray[np.bool_]]:
        """Of each food its episode, its row, column and level, and at which steps it is there.

        Slots move up when food goes, so food is known by its cell. Cells are numbered: np.unique of rows takes long.
        """
        row, col, level = self.food(states).transpose(3, 2, 0, 1).astype(np.int64, order="C")
        most = level.max(initial=0) + 1
        slots = np.where(level > 0, (row * self.cols + col) * most + level, -1)  # (slots, episodes, steps+1)
        known = np.sort(slots.swapaxes(0, 1).reshape(len(states), -1), axis=1)
        new = known >= 0
        new[:, 1:] &= known[:, 1:] != known[:, :-1]
        whose, food = np.nonzero(new)[0], known[new]
        there = (slots[:, whose] == food[:, None]).any(axis=0)
        cell = food // most
        return whose, np.array([cell // self.cols, cell % self.cols, food % most], np.float64), there

    @classmethod
    def rebuilt(cls, agents: int, key: str, env_args: Mapping[str, Any]) -> Task | None:
        from epymarl_fairtest.tasks.foraging.environment import make_foraging_env

        known = {name: env_args[name] for name in ("players", "field_size", "max_num_food") if name in env_args}
        guessed: dict[str, Any] = {"players": agents}
        size = re.search(r"-(\d+)x(\d+)-\d+p-(\d+)f", key)  # as lbforaging names its fields
        if size:
            rows, cols, food = map(int, size.groups())
            guessed |= {"field_size": (rows, cols), "max_num_food": food}
        if size or known.get("players", agents) != 3:  # the default levels are for three
            guessed |= {"min_player_level": 1, "max_player_level": 2}
        return cls(make_foraging_env(**guessed | known))

    def competence(self, env: Any) -> Competence:
        """Rewards are shares of the food, so all of it is 1 (decision 012: judged as it is tested)."""
        if not getattr(env.unwrapped, "_normalize_reward", True):
            raise FairTestError(
                "the environment does not normalise its rewards: how much there is depends on the episode"
            )
        return Competence("auto", least_share=0.7, most_empty=0.1)
