"""What can be drawn of an episode's states, whatever draws it: things on a field and where they are, step by step.

Pure numpy; knows no drawing tool and no environment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


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
        told = {"role": self.role, "label": self.label, "radius": round(self.radius, 3), "at": rounded(self.at)}
        if not self.present.all():
            told["present"] = self.present.astype(int).tolist()
        return told if self.level is None else told | {"level": self.level}


@dataclass(frozen=True)
class Field:
    """The things of one episode and the window that holds every one of them at every step."""

    kind: str  # plane, grid (cells around whole numbers), or none: nothing is known of places
    bodies: list[Body]
    low: Array  # (2,) corners of the window
    high: Array


def unknown_field() -> Field:
    return Field("none", [], -np.ones(2), np.ones(2))


def plane(bodies: list[Body]) -> Field:
    """A square around everything, and at least where episodes begin: from -1 to 1."""
    low = np.min([-np.ones(2), *(body.at.min(axis=0) - body.radius for body in bodies)], axis=0)
    high = np.max([np.ones(2), *(body.at.max(axis=0) + body.radius for body in bodies)], axis=0)
    middle, half = (low + high) / 2, (high - low).max() / 2 * 1.03
    return Field("plane", bodies, middle - half, middle + half)


def bodies(role: str, at: Array, radius: float, levels: list[int] | None = None) -> list[Body]:
    """One body per column of `at` (steps+1, bodies, 2); they never leave."""
    always = np.ones(len(at), bool)
    labels = [str(n + 1) if role == "agent" else "prey" if role == "prey" else "" for n in range(at.shape[1])]
    return [
        Body(role, label, radius, at[:, n], always, levels[n] if levels else None) for n, label in enumerate(labels)
    ]


def rounded(values: Array) -> Any:
    return (np.round(values, 3) + 0.0).tolist()  # no -0.0
