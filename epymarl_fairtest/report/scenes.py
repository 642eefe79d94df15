"""What can be drawn of one episode, whatever draws it: bodies and their places, and what each agent has received.

Knows how the states of each task are laid out. Pure numpy; knows no drawing tool and no environment.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.episode import OPERATORS, Episodes
from epymarl_fairtest.fairness import INDICES
from epymarl_fairtest.tasks.base import Array, Task

HAPPENED = {
    "seed": "from a seed",
    "state": "from a chosen start",
    "mutation": "mutated at step {step}",
    "crossover": "spliced at step {step}",
    "action": "with forced actions",
}
"""How the test was made, as a caption says it."""


@dataclass(frozen=True)
class Body:
    """One thing on the field; x grows to the right and y upwards."""

    role: str  # agent, prey, landmark (to be covered), obstacle or food
    label: str  # an agent's number, from 1; the level of food; "prey"
    radius: float
    at: Array  # (steps+1, 2)
    present: NDArray[np.bool_]  # (steps+1,)
    level: int | None = None  # of an agent that forages

    def as_json(self) -> dict[str, Any]:
        told = {"role": self.role, "label": self.label, "radius": round(self.radius, 3), "at": _rounded(self.at)}
        if not self.present.all():
            told["present"] = self.present.astype(int).tolist()
        return told if self.level is None else told | {"level": self.level}


@dataclass(frozen=True)
class Scene:
    """One episode; everything that has steps+1 rows begins with the state before the first step."""

    kind: str  # plane, grid (cells around whole numbers), or none: nothing is known of places
    low: Array  # (2,) corners of the window that holds every body at every step
    high: Array
    bodies: tuple[Body, ...]
    received: Array  # (steps+1, n_agents) by each agent so far
    course: Array  # (steps+1,) fairness index of what was received so far, NaN where it is undefined
    start_step: int  # the first step that was executed; 0: all of them
    operator: str
    id: int
    root_seed: int
    actions: NDArray[np.int16]  # (steps, n_agents)
    theta: float | None = None  # up to this index the episode is unfair

    @property
    def steps(self) -> int:
        return len(self.actions)

    @property
    def index(self) -> float:
        """Fairness index of the whole episode."""
        return float(self.course[-1])

    @property
    def happened(self) -> str:
        return HAPPENED[self.operator].format(step=self.start_step)

    @property
    def changed(self) -> bool:
        """Was an episode changed at `start_step`?"""
        return self.operator in ("mutation", "crossover")

    def as_json(self) -> dict[str, Any]:
        """Plain and small, for the player in the report; three decimals are less than a pixel."""
        return {
            "kind": self.kind,
            "low": _rounded(self.low),
            "high": _rounded(self.high),
            "bodies": [body.as_json() for body in self.bodies],
            "received": _rounded(self.received),
            "start": self.start_step,
            "operator": self.operator,
            "index": None if np.isnan(self.index) else round(self.index, 3),
            "id": self.id,
            "seed": self.root_seed,
        }


def scene_of(task: Task, episodes: Episodes, row: int, index: str = "jfi", theta: float | None = None) -> Scene:
    """The episode at `row`; `index` is the name of the fairness index that it is judged with."""
    steps = int(episodes.length[row])
    received = np.zeros((steps + 1, episodes.rewards.shape[-1]))
    np.cumsum(episodes.rewards[row, :steps], axis=0, out=received[1:])
    kind, bodies, low, high = FIELDS.get(task.name, _unknown)(task, episodes.states[row, : steps + 1])
    return Scene(
        kind,
        low,
        high,
        tuple(bodies),
        received,
        INDICES[index](received),
        int(episodes.start_step[row]),
        OPERATORS[episodes.operator[row]],
        int(episodes.id[row]),
        int(episodes.root_seed[row]),
        episodes.actions[row, :steps],
        theta,
    )


Field = tuple[str, list[Body], Array, Array]
"""kind, bodies, low, high"""


def _spread(task: Any, states: Array) -> Field:
    agents = _bodies("agent", task.positions(states), 0.15)
    return _plane([*_bodies("landmark", task.landmarks(states), 0.05), *agents])


def _tag(task: Any, states: Array) -> Field:
    agents = _bodies("agent", task.positions(states), 0.075)
    prey = _bodies("prey", task.everyone(states)[:, task.n_agents :, :2], 0.05)
    return _plane([*_bodies("obstacle", task.landmarks(states), 0.2), *prey, *agents])


def _foraging(task: Any, states: Array) -> Field:
    def places(cells: Array) -> Array:
        """row, col counted from the top left to x, y."""
        return np.stack([cells[..., 1], task.rows - 1 - cells[..., 0]], axis=-1)

    food = task.food(states)  # (steps+1, slots, 3); slots move up when food goes, so food is known by its cell
    cells = np.unique(food[food[..., 2] > 0], axis=0)
    there = (food[:, None] == cells[:, None]).all(axis=-1).any(axis=-1)  # (steps+1, foods)
    still = np.broadcast_to(places(cells), (len(states), len(cells), 2))
    foods = [Body("food", f"{cell[2]:.0f}", 0.4, still[:, n], there[:, n]) for n, cell in enumerate(cells)]
    levels = task.players(states)[0, :, 2].astype(int).tolist()
    players = _bodies("agent", places(task.players(states)), 0.4, levels)
    return "grid", foods + players, np.full(2, -0.5), np.array([task.cols - 0.5, task.rows - 0.5])


def _unknown(task: Any, states: Array) -> Field:
    return "none", [], -np.ones(2), np.ones(2)


FIELDS: dict[str, Callable[[Any, Array], Field]] = {"spread": _spread, "tag": _tag, "foraging": _foraging}
"""task -> what its states (steps+1, state_size) look like. The sizes in the plane are the simulator's own."""


def _bodies(role: str, at: Array, radius: float, levels: list[int] | None = None) -> list[Body]:
    """One body per column of `at` (steps+1, bodies, 2); they never leave."""
    always = np.ones(len(at), bool)
    labels = [str(n + 1) if role == "agent" else "prey" if role == "prey" else "" for n in range(at.shape[1])]
    return [
        Body(role, label, radius, at[:, n], always, levels[n] if levels else None) for n, label in enumerate(labels)
    ]


def _plane(bodies: list[Body]) -> Field:
    """A square around everything, and at least where episodes begin: from -1 to 1."""
    low = np.min([-np.ones(2), *(body.at.min(axis=0) - body.radius for body in bodies)], axis=0)
    high = np.max([np.ones(2), *(body.at.max(axis=0) + body.radius for body in bodies)], axis=0)
    middle, half = (low + high) / 2, (high - low).max() / 2 * 1.03
    return "plane", bodies, middle - half, middle + half


def _rounded(values: Array) -> Any:
    return (np.round(values, 3) + 0.0).tolist()  # no -0.0
