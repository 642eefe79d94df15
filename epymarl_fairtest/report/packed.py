"""The failures of the table that have no player of their own, small enough to be part of the page.

Places in hundredths, and of every row of numbers the differences of its differences: bodies move smoothly, so that
these are nearly all small, and deflate does the rest. `unpack` in report.js is the way back.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from epymarl_fairtest.report.scenes import Scene
from epymarl_fairtest.tasks.contract import Array
from epymarl_fairtest.tasks.scene import Body

FINE = 100  # parts of a unit of the field: about a pixel
SHADES = 500  # parts of the most that an agent has received


def packed(scenes: Iterable[Scene]) -> str:
    """All scenes as one text; nothing where there are none."""
    small = [_small(scene) for scene in scenes]
    if not small:
        return ""
    content = json.dumps(small, separators=(",", ":"), allow_nan=False).encode()
    return base64.b64encode(zlib.compress(content, 9)).decode()


def _small(scene: Scene) -> dict[str, Any]:
    most = float(np.abs(scene.received).max()) or 1.0
    return scene.outline() | {
        "seed": str(scene.root_seed),
        "changed": scene.changed,
        "happened": scene.happened,
        "worse": scene.worse.astype(int).tolist(),
        "bodies": [_body(body) for body in scene.field.bodies],
        "unit": most / SHADES,
        "received": _differences(scene.received / most * SHADES),
    }


def _body(body: Body) -> dict[str, Any]:
    """Without its places where it never moves, but for the first."""
    moves = bool((body.at != body.at[0]).any())
    places = body.at if moves else body.at[:1]
    plain: dict[str, Any] = {"shape": body.shape, "label": body.label, "radius": round(body.radius, 3)}
    plain["at"] = _differences(places * FINE)
    if not body.present.all():
        plain["present"] = body.present.astype(int).tolist()
    if body.level is not None:
        plain["level"] = body.level
    return plain | {"trail": 1} if body.trail else plain


def _differences(columns: Array) -> list[list[int]]:
    """Of each column (n, columns)."""
    bends = np.rint(columns).astype(np.int64)
    bends[1:] -= bends[:-1].copy()
    bends[1:] -= bends[:-1].copy()
    plain: list[list[int]] = bends.T.tolist()
    return plain
