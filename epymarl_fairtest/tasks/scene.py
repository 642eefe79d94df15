"""What can be drawn of an episode's states, whatever draws it: things on a field and where they are, step by step.

Pure numpy; knows no drawing tool and no environment.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


AGENT = "agent"  # the shape of the agents under test


@dataclass(frozen=True)
class Body:
    """One thing on the field; x grows to the right and y upwards."""

    shape: str  # agent, disc, square, diamond or target (a place to be covered); a drawer takes any other for a disc
    label: str  # an agent's number, from 1; what tells another thing apart, or nothing
    radius: float
    at: Array  # (steps+1, 2)
    present: NDArray[np.bool_]  # (steps+1,); where something is gone, a cross is left
    level: int | None = None  # a small number beside an agent
    trail: bool = False  # is the way so far drawn?

    def as_json(self) -> dict[str, Any]:
        plain = {"shape": self.shape, "label": self.label, "radius": round(self.radius, 3), "at": rounded(self.at)}
        if not self.present.all():
            plain["present"] = self.present.astype(int).tolist()
        if self.level is not None:
            plain["level"] = self.level
        return plain | {"trail": True} if self.trail else plain


@dataclass(frozen=True)
class Field:
    """The things of one episode and the window that holds every one of them at every step."""

    kind: str  # plane (marked from -1 to 1), grid (cells around whole numbers), open, or none: no places are known
    bodies: list[Body]  # in the order of drawing; agents come in their own order and are drawn last
    low: Array  # (2,) corners of the window
    high: Array

    @property
    def agents(self) -> list[Body]:
        return [body for body in self.bodies if body.shape == AGENT]


class Thing(NamedTuple):
    """What no step changes of a body."""

    shape: str
    label: str
    radius: float
    level: int | None = None
    trail: bool = False


Cast = tuple[str, tuple[Thing, ...]]  # the kind of a field, and what is on it in the order of drawing


@dataclass(frozen=True)
class Fields:
    """The fields of many episodes as arrays, of which a field is made when it is asked for: a page has thousands.

    Rows are those of the first body of the first episode, then of its second, and so on.
    """

    casts: list[Cast]
    cast: NDArray[np.int64]  # (episodes,) which of them
    steps: NDArray[np.integer[Any]]  # (episodes,) each body has one row more
    at: Array  # (rows, 2)
    present: NDArray[np.bool_]  # (rows,)
    low: Array  # (episodes, 2)
    high: Array

    @classmethod
    def of(cls, fields: Fields | list[Field], steps: NDArray[np.integer[Any]]) -> Fields:
        if isinstance(fields, Fields):
            return fields
        known: dict[Cast, int] = {}
        cast = [known.setdefault(cast_of(one), len(known)) for one in fields]
        bodies = [body for one in fields for body in one.bodies]
        at = np.concatenate([np.empty((0, 2)), *(body.at for body in bodies)])
        present = np.concatenate([np.empty(0, bool), *(body.present for body in bodies)])
        low, high = (np.array([getattr(one, name) for one in fields]) for name in ("low", "high"))
        return cls(list(known), np.array(cast, np.int64), steps, at, present, low, high)

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """How many bodies each has."""
        return np.array([len(things) for _, things in self.casts], np.int64)[self.cast]

    @cached_property
    def _ends(self) -> NDArray[np.int64]:
        return np.cumsum(self.sizes * (self.steps + 1))

    def __len__(self) -> int:
        return len(self.cast)

    def __getitem__(self, which: int) -> Field:
        (kind, things), rows, end = self.casts[self.cast[which]], self.steps[which] + 1, self._ends[which]
        parts = [slice(end - rows * n, end - rows * (n - 1)) for n in range(len(things), 0, -1)]
        bodies = [
            Body(thing.shape, thing.label, thing.radius, self.at[own], self.present[own], thing.level, thing.trail)
            for thing, own in zip(things, parts, strict=True)
        ]
        return Field(kind, bodies, self.low[which], self.high[which])

    def played(self) -> Fields:
        """The same without what comes after an end: `at` and `present` (bodies, most steps+1, ...) become rows."""
        x_y, present = self.at.reshape(-1, 2).T, self.present.reshape(-1)  # all x, then all y: as they are packed
        if (self.steps + 1 < self.at.shape[1]).any():
            there = np.flatnonzero(np.arange(self.at.shape[1]) <= np.repeat(self.steps, self.sizes)[:, None])
            x_y, present = x_y[:, there], present[there]
        return replace(self, at=x_y.T, present=present)


def cast_of(field: Field) -> Cast:
    return field.kind, tuple(Thing(b.shape, b.label, b.radius, b.level, b.trail) for b in field.bodies)


def unknown_field() -> Field:
    return Field("none", [], -np.ones(2), np.ones(2))


def plane(bodies: list[Body]) -> Field:
    """A square around everything, and at least where episodes begin: from -1 to 1."""
    at = np.array([body.at for body in bodies]) if bodies else np.zeros((1, 1, 2))
    low, high = _windows(at.transpose(2, 0, 1)[:, None], np.array([body.radius for body in bodies] or [0.0]))
    return Field("plane", bodies, low[0], high[0])


def _windows(at: Array, radius: Array) -> tuple[Array, Array]:
    """The corners of such squares: of places (2, episodes, bodies, steps+1) and the radius of each body."""
    low = np.minimum(-1, (at.min(axis=3) - radius).min(axis=2))
    high = np.maximum(1, (at.max(axis=3) + radius).max(axis=2))
    middle, half = (low + high) / 2, (high - low).max(axis=0) / 2 * 1.03
    return (middle - half).T, (middle + half).T


@dataclass(frozen=True)
class Kind:
    """Bodies alike, in many episodes; they never leave. Agents are numbered and have trails."""

    shape: str
    at: Array  # (episodes, steps+1, bodies, 2)
    radius: float
    label: str = ""
    trail: bool = False


def planes(kinds: list[Kind], steps: NDArray[np.integer[Any]]) -> Fields:
    """`plane` of many episodes at once: what is on all of them, in the order of drawing, and the steps of each."""
    count, (episodes, rows) = sum(kind.at.shape[2] for kind in kinds), kinds[0].at.shape[:2]
    at = np.empty((2, episodes, count, rows))  # numpy takes four times as long along short rows
    np.concatenate([kind.at.transpose(3, 0, 2, 1) for kind in kinds], axis=2, out=at)
    things = tuple(
        Thing(kind.shape, str(n + 1) if kind.shape == AGENT else kind.label, kind.radius,
              trail=kind.trail or kind.shape == AGENT)
        for kind in kinds
        for n in range(kind.at.shape[2])
    )  # fmt: skip
    low, high = _windows(at, np.array([thing.radius for thing in things]))
    each, same = at.reshape(2, -1, rows).transpose(1, 2, 0), np.zeros(episodes, np.int64)
    return Fields([("plane", things)], same, steps, each, np.ones(each.shape[:2], bool), low, high).played()


def bodies(
    shape: str, at: Array, radius: float, label: str = "", *, levels: list[int] | None = None, trail: bool = False
) -> list[Body]:
    """One body per column of `at` (steps+1, bodies, 2); they never leave. Agents are numbered and have trails."""
    always, agents = np.ones(len(at), bool), shape == AGENT
    return [
        Body(
            shape,
            str(n + 1) if agents else label,
            radius,
            at[:, n],
            always,
            level=levels[n] if levels else None,
            trail=trail or agents,
        )
        for n in range(at.shape[1])
    ]


def rounded(values: Array) -> Any:
    return (np.round(values, 3) + 0.0).tolist()  # no -0.0
