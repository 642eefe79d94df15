"""Every failure of the table, small enough to be part of the page: its row, and its steps for a player.

Numbers as bytes in base64. Rows are plain arrays. Steps are differences in blocks, deflated, and read when a row is
opened; blocks stop where the page is full. `Table` and `Block` in report.js are the way back.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.report.operators import operator_named
from epymarl_fairtest.report.scenes import Scene
from epymarl_fairtest.tasks.contract import Array
from epymarl_fairtest.tasks.scene import Body

FINE = 100  # parts of a unit of the field: about a pixel
SHADES = 250  # parts of the most that an agent has received
BLOCK = 250  # scenes: what opening a row reads at once
NAMES = ("operator", "status")  # columns of words
Ints = NDArray[np.int64]


# --- rows ---------------------------------------------------------------------------------------------


def packed_table(table: Mapping[str, Any]) -> dict[str, Any]:
    """Columns as [type, base64]; columns of words as numbers of `names`, operators with what a player says of them."""
    columns, names = {}, {}
    for name, values in table.items():
        if name == "rows":
            continue
        if name in NAMES:
            names[name], values = np.unique(values, return_inverse=True)
        columns[name] = _typed(np.asarray(values))
    words = {name: known.tolist() for name, known in names.items()}
    operators = [operator_named(name) for name in words.get("operator", ())]
    shown = [{"caption": one.caption, "changes": one.changes} for one in operators]
    packing = {"fine": FINE, "block": BLOCK}  # of the steps
    return {"rows": table["rows"], "columns": columns, "names": words, "operators": shown, **packing}


def _typed(values: NDArray[Any]) -> list[str]:
    """In the smallest type that a browser has for it, without loss; amounts in single precision."""
    if values.ndim > 1:
        values = values.astype(np.float32)
    elif values.dtype.kind in "iu" and values.dtype != np.uint64 and len(values):
        values = values.astype(np.promote_types(np.min_scalar_type(values.min()), np.min_scalar_type(values.max())))
    return [values.dtype.str[1:], _text(values.astype(values.dtype.newbyteorder("<")).tobytes())]


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()


# --- steps --------------------------------------------------------------------------------------------


def packed(scenes: Iterable[Scene], room: int) -> list[str]:
    """As many blocks of scenes as there is room for, in characters."""
    left, blocks = iter(scenes), []
    while some := list(islice(left, BLOCK)):
        block = _block(some)
        room -= len(block)
        if room < 0:
            break
        blocks.append(block)
    return blocks


def _block(scenes: list[Scene]) -> str:
    """Plain facts as JSON, a zero, and all numbers: first the lowest byte of each, then the next, four in all."""
    casts: dict[str, int] = {}
    facts: list[list[Any]] = []
    numbers: list[Ints] = []
    for scene in scenes:
        cast = json.dumps([scene.field.kind, [_body(body) for body in scene.field.bodies]], separators=(",", ":"))
        most = float(np.abs(scene.received).max()) or 1.0
        worse = "".join("01"[one] for one in scene.worse.astype(int))
        unit = float(f"{most / SHADES:.4g}")
        facts.append([casts.setdefault(cast, len(casts)), scene.steps, unit, worse])
        numbers += _numbers(scene, unit)
    whole = np.concatenate(numbers)
    folded = np.where(whole < 0, -2 * whole - 1, 2 * whole).astype("<u4")  # small either way
    planes = folded.view(np.uint8).reshape(-1, 4).T.tobytes()
    head = json.dumps({"casts": list(map(json.loads, casts)), "scenes": facts}, separators=(",", ":"), allow_nan=False)
    return _text(zlib.compress(head.encode() + b"\0" + planes, 9))


def _body(body: Body) -> dict[str, Any]:
    """What no step changes, and which of its numbers there are: one place if it rests, no presence if it stays."""
    plain: dict[str, Any] = {"shape": body.shape, "label": body.label, "radius": round(body.radius, 3)}
    if body.level is not None:
        plain["level"] = body.level
    known = {"rests": _rests(body), "leaves": not body.present.all(), "trail": body.trail}
    return plain | {name: 1 for name, holds in known.items() if holds}


def _rests(body: Body) -> bool:
    return bool((body.at == body.at[0]).all())


def _numbers(scene: Scene, unit: float) -> list[Ints]:
    """Corners of the window; of each body x, y and presence; what each agent has received."""
    found = [_whole(np.concatenate([scene.field.low, scene.field.high]) * FINE)]
    for body in scene.field.bodies:
        found.append(_differences(body.at[:1] * FINE if _rests(body) else body.at * FINE))
        if not body.present.all():
            found.append(body.present.astype(np.int64))
    return [*found, _differences(scene.received / unit, 2)]


def _whole(values: Array) -> Ints:
    return np.rint(values).astype(np.int64)


def _differences(columns: Array, times: int = 1) -> Ints:
    """Down each column (n, columns), one column after the other: things move little, and payments change little."""
    bends = _whole(columns)
    for _ in range(times):
        bends[1:] -= bends[:-1].copy()
    return bends.T.ravel()
