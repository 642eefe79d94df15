"""Warehouse (RWARE): robots bring requested shelves to the goals; works for any rware Warehouse without messages.

The state is what simulator.py says it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium.spaces import Box, flatten
from numpy.typing import NDArray

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.tasks.contract import Allocation, Array, Task, env_reward
from epymarl_fairtest.tasks.layers import set_clocks, wrappers
from epymarl_fairtest.tasks.scene import Body, Field, bodies
from epymarl_fairtest.tasks.warehouse.features import course, features, situation
from epymarl_fairtest.tasks.warehouse.simulator import (
    BROUGHT,
    FACING,
    RANDOM,
    ROBOT,
    SHELF,
    WORD,
    is_warehouse,
    read_state,
    write_state,
)

OWN_ID = re.compile(r"(rware:)?rware(-img|-imgdict)?(-Nd)?-(tiny|small|medium|large)-\d+ag(-easy|-hard)?-v\d+")
LAYOUT = (
    "shelf_columns", "column_height", "shelf_rows", "n_agents", "sensor_range", "request_queue_size",
    "max_inactivity_steps", "max_steps", "layout",
)  # fmt: skip


def deliveries(state: Array, reward: Array) -> Array:
    """1 to each robot that brings a requested shelf, also where all are paid for it or half is paid later.

    Where all are paid, a robot that comes to another goal in that very step, with a shelf that nobody asked for, is
    counted as well: the simulator does not tell them apart.
    """
    robots = state[..., : ROBOT * reward.shape[-1]].reshape(*reward.shape, ROBOT)
    return np.where(reward > 0, robots[..., BROUGHT], 0.0)


def _different(numbers: NDArray[Any]) -> NDArray[np.bool_]:
    """In which rows (B, n) is no number there twice?"""
    different: NDArray[np.bool_] = np.all(np.diff(np.sort(numbers, axis=1), axis=1) > 0, axis=1)
    return different


class WarehouseTask(Task):
    """Everybody is under test. Each robot is paid for what it delivers, unless the warehouse was made to pay all."""

    name: ClassVar[str] = "warehouse"
    order: ClassVar[int] = 7
    theta: ClassVar[float] = 0.80
    restorable: bool = True
    proposable: bool = True
    distinct_distance: float = 0.5
    allocations: ClassVar[Mapping[str, Allocation]] = {"env": env_reward, "deliveries": deliveries}
    suggested_allocation: ClassVar[str] = "deliveries"
    legend: ClassVar[str] = (
        "Diamonds are the goals, squares the shelves that are requested; the small number at a robot is the shelf that"
        " it carries at the start."
    )
    actions: ClassVar[Sequence[str]] = ("none", "forward", "turn left", "turn right", "load or unload")
    grid: ClassVar[bool] = True

    @classmethod
    def recognises(cls, env: Any) -> bool:
        return is_warehouse(wrappers(env)[-1])

    def __init__(self, env: Any) -> None:
        inner = self._simulator(env)
        self.rows, self.cols = (int(size) for size in inner.grid_size)
        self.n_agents, self._queue = int(inner.n_agents), int(inner.request_queue_size)
        homes = np.argwhere(np.asarray(inner.highways) == 0)  # row by row, as the simulator numbers its shelves
        self._homes = (homes[:, 0] * self.cols + homes[:, 1]).astype(np.float64)
        self._goals = np.array([(y, x) for x, y in inner.goals], np.float64)
        self._cut = ROBOT * self.n_agents, ROBOT * self.n_agents + len(homes)
        self.state_size = self._cut[1] + self._queue + 1 + RANDOM
        self.low, self.high = -0.5, max(self.rows, self.cols) - 0.5
        self._most = np.array([self.rows - 1, self.cols - 1, 3.0])  # row, col and direction

    @staticmethod
    def _simulator(env: Any) -> Any:
        inner = wrappers(env)[-1]
        if not is_warehouse(inner):
            raise FairTestError(f"{env} holds no rware Warehouse; task warehouse needs one.")
        return inner

    # --- the parts of a state

    def robots(self, states: Array) -> Array:
        """A view (..., n_agents, ROBOT)."""
        return states[..., : self._cut[0]].reshape(*states.shape[:-1], self.n_agents, ROBOT)

    def shelves(self, states: Array) -> Array:
        """The cells of the shelves: a view (..., shelves)."""
        return states[..., self._cut[0] : self._cut[1]]

    def wanted(self, states: Array) -> NDArray[np.int64]:
        """The numbers of the requested shelves (..., requests)."""
        return states[..., self._cut[1] : self._cut[1] + self._queue].astype(np.int64)

    def requests(self, states: Array) -> Array:
        """Where the requested shelves are: (..., requests, 2)."""
        cells = np.take_along_axis(self.shelves(states), self.wanted(states) - 1, axis=-1)
        return np.stack([cells // self.cols, cells % self.cols], axis=-1)

    def positions(self, states: Array) -> Array:
        return self.robots(states)[..., :2]

    # --- the simulator

    def source(self, env: Any) -> Any:
        return wrappers(env)[-1]

    def read(self, env: Any) -> Array:
        inner = self._simulator(env)
        if not inner.agents:
            inner.reset(seed=0)  # nothing is there before the first one
        return read_state(inner)

    def write(self, env: Any, state: Array, step: int) -> None:
        chain = wrappers(env)
        set_clocks(chain, step)
        if not chain[-1].agents:
            chain[-1].reset(seed=0)
        write_state(chain[-1], state, step)

    def observe(self, env: Any) -> list[NDArray[np.float32]]:
        inner = self._simulator(env)
        seen = zip(inner.observation_space, [inner._make_obs(agent) for agent in inner.agents], strict=True)
        rows = [one if isinstance(space, Box) else flatten(space, one) for space, one in seen]
        return [np.asarray(row, np.float32).ravel() for row in rows]

    # --- changing states

    def perturb(self, states: Array, rng: np.random.Generator) -> tuple[Array, NDArray[np.bool_]]:
        """Rounded to cells and kept inside; what a robot carries comes along."""
        new, old = states.copy(), self.positions(states)
        moved = np.rint(old * rng.uniform(0.8, 1.2, old.shape))
        self.robots(new)[..., :2] = np.clip(moved, 0, self._most[:2])
        self._take_along(new)
        self.robots(new)[..., BROUGHT] = 0
        changed = (self.positions(new) != old).any(axis=(1, 2))
        return new, changed & self._possible(new)

    def _take_along(self, states: Array) -> None:
        """Carried shelves to where their robots are."""
        robots = self.robots(states)
        rows, number = np.nonzero(robots[..., SHELF])
        carried = robots[rows, number]
        self.shelves(states)[rows, carried[:, SHELF].astype(np.int64) - 1] = self._cells(carried)

    def _cells(self, at: Array) -> Array:
        cells: Array = at[..., 0] * self.cols + at[..., 1]
        return cells

    def _possible(self, states: Array) -> NDArray[np.bool_]:
        """Everybody and every shelf has a cell of its own, and what is delivered at once is not there yet."""
        robots, cells = self._cells(self.positions(states)), self.shelves(states)
        apart = _different(robots) & _different(cells)
        waiting = np.isin(self._cells(self.requests(states)), self._cells(self._goals)).any(axis=1)
        possible: NDArray[np.bool_] = apart & ~waiting
        return possible

    def start_vectors(self, states: Array) -> Array:
        """Row, col and direction of the robots, the requested shelves, and the random numbers of what comes."""
        robots = self.robots(states)[..., : FACING + 1] / self._most
        wanted = (self.wanted(states) - 1) / (len(self._homes) - 1)
        chance = states[..., -RANDOM:] / WORD
        return 2 * np.concatenate([robots.reshape(*states.shape[:-1], -1), wanted, chance], axis=-1) - 1

    def starts_from(self, vectors: Array) -> tuple[Array, NDArray[np.bool_]]:
        """All shelves at home; what no reset would draw is refused."""
        places, halves = 3 * self.n_agents, (vectors + 1) / 2
        states = np.zeros((len(vectors), self.state_size))
        drawn = halves[:, :places].reshape(len(vectors), -1, 3) * self._most
        self.robots(states)[..., : FACING + 1] = np.rint(drawn)
        self.shelves(states)[:] = self._homes
        wanted = states[:, self._cut[1] : self._cut[1] + self._queue]
        wanted[:] = np.rint(halves[:, places : places + self._queue] * (len(self._homes) - 1)) + 1
        chance = states[:, -RANDOM:]
        chance[:] = np.clip(np.rint(halves[:, -RANDOM:] * WORD), 0, WORD - 1)
        chance[:, 4] += (chance[:, 4] + 1) % 2  # the increment of such a generator is odd
        chance[:, 8] = np.minimum(chance[:, 8], 1)
        fine = (np.abs(vectors) <= 1).all(axis=1)
        states[~fine] = 0
        return states, fine & self.is_start(states)

    def is_start(self, states: Array) -> NDArray[np.bool_]:
        finite: NDArray[np.bool_] = np.all(np.isfinite(states), axis=1)
        states = np.where(finite[:, None], states, 0.0)
        wanted, empty = self.wanted(states), self.robots(states)[..., SHELF:] == 0
        known = np.all((wanted >= 1) & (wanted <= len(self._homes)), axis=1) & _different(wanted)
        start: NDArray[np.bool_] = finite & known & np.all(empty, axis=(1, 2))
        start[start] = self._possible(states[start])
        return start

    def start_places(self, starts: Array) -> Array:
        return np.concatenate([self.positions(starts), self.requests(starts)], axis=-2)

    def bodies_of_starts(self, size: int) -> NDArray[np.int64]:
        """Robots, then each request, then the random numbers as one."""
        counts = [3] * self.n_agents + [1] * self._queue + [RANDOM]
        return np.repeat(np.arange(len(counts)), counts)

    # --- what it means

    def features(self, starts: Array) -> Array:
        return features(self.robots(starts), self.requests(starts), self._goals)

    def situation(self, starts: Array) -> dict[str, Array]:
        return situation(self.robots(starts), self.requests(starts), self._goals)

    def course(self, states: Array, length: NDArray[np.int32]) -> dict[str, Array]:
        return course(self.robots(states), self.wanted(states), length)

    def field(self, states: Array) -> Field:
        def places(cells: Array) -> Array:
            """row, col counted from the top left to x, y."""
            return np.stack([cells[..., 1], self.rows - 1 - cells[..., 0]], axis=-1)

        goals = np.broadcast_to(self._goals, (len(states), *self._goals.shape))
        wanted, always = places(self.requests(states)), np.ones(len(states), bool)
        shelves = [Body("square", "", 0.4, wanted[:, n], always) for n in range(self._queue)]
        carried = self.robots(states)[0, :, SHELF].astype(int).tolist()
        robots = bodies("agent", places(self.positions(states)), 0.35, levels=carried if any(carried) else None)
        things = [*bodies("diamond", places(goals), 0.45), *shelves, *robots]
        return Field("grid", things, np.full(2, -0.5), np.array([self.cols - 0.5, self.rows - 0.5]))

    @classmethod
    def rebuilt(cls, agents: int, key: str, env_args: Mapping[str, Any]) -> Task | None:
        """Only from rware's own names: a folder may come from anybody."""
        if not OWN_ID.fullmatch(key):
            return None
        import gymnasium

        known = {name: env_args[name] for name in LAYOUT if name in env_args}
        return cls(gymnasium.make(f"rware:{key.removeprefix('rware:')}", disable_env_checker=True, **known))
