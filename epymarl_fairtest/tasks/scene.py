"""What can be drawn of an episode's states, whatever draws it: things on a field and where they are, step by step.

Pure numpy; knows no drawing tool and no environment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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


def unknown_field() -> Field:
    return Field("none", [], -np.ones(2), np.ones(2))


def plane(bodies: list[Body]) -> Field:
    """A square around everything, and at least where episodes begin: from -1 to 1."""
    at = np.array([body.at for body in bodies]) if bodies else np.zeros((1, 1, 2))
    low, high = _windows(at[None], np.array([body.radius for body in bodies] or [0.0]))
    return Field("plane", bodies, low[0], high[0])


def _windows(at: Array, radius: Array) -> tuple[Array, Array]:
    """The corners of such squares: of places (episodes, bodies, steps+1, 2) and the radius of each body."""
    at = np.ascontiguousarray(at.transpose(3, 0, 1, 2))  # numpy takes four times as long along short rows
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


def planes(kinds: list[Kind], steps: NDArray[np.integer[Any]]) -> list[Field]:
    """`plane` of many episodes at once: what is on all of them, in the order of drawing, and the steps of each."""
    at = np.ascontiguousarray(np.concatenate([kind.at for kind in kinds], axis=2).transpose(0, 2, 1, 3))
    known = [
        (kind.shape, str(n + 1) if kind.shape == AGENT else kind.label, kind.radius, kind.trail or kind.shape == AGENT)
        for kind in kinds
        for n in range(kind.at.shape[2])
    ]
    low, high = _windows(at, np.array([radius for _, _, radius, _ in known]))
    always = np.ones(at.shape[2], bool)

    def things(places: Array, last: int) -> list[Body]:
        there = always[: last + 1]
        return [
            Body(shape, label, radius, way, there, None, trail)
            for (shape, label, radius, trail), way in zip(known, places[:, : last + 1], strict=True)
        ]

    each = zip(at, steps.tolist(), low, high, strict=True)
    return [Field("plane", things(places, last), least, most) for places, last, least, most in each]


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
