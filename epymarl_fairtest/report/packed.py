"""Every failure of the table, small enough to be part of the page: its row, and its steps for a player.

Numbers as bytes in base64. Rows are plain arrays. Steps are differences in blocks, deflated, and read when a row is
opened; blocks stop where the page is full. `Table` and `Block` in report.js are the way back.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core.judged import Agents
from epymarl_fairtest.report.operators import operator_named
from epymarl_fairtest.report.scenes import Played, worse_off
from epymarl_fairtest.tasks.contract import Array
from epymarl_fairtest.tasks.scene import Cast, Fields, Thing

FINE = 100  # parts of a unit of the field: about a pixel
SHADES = 250  # parts of the most that an agent has received
BLOCK = 250  # episodes: what opening a row reads at once
DEFLATED = 6  # 9 takes five times as long for 1.5% less
MOST_CASTS = 4096  # that are remembered from block to block
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


def packed(played: Iterable[Played], judged: Agents, room: int) -> list[str]:
    """As many blocks of BLOCK episodes as there is room for, in characters."""
    blocks = []
    for some in played:
        block = _block(some, judged)
        room -= len(block)
        if room < 0:
            break
        blocks.append(block)
    return blocks


def _block(played: Played, judged: Agents) -> str:
    """Plain facts as JSON, a zero, and all numbers: first the lowest byte of each, then the next, four in all.

    All episodes of a block at once: a page has thousands, and numpy takes as long for a short array as for a long one.
    """
    fields, length = played.fields, played.fields.steps.astype(np.int64) + 1
    bodies = _Bodies.of(fields, length)
    paid = _Runs.cut(played.received[np.arange(played.received.shape[1]) < length[:, None]], length)
    most = np.maximum.reduceat(np.abs(paid.rows).max(axis=1), paid.first)
    units = np.array([float(f"{unit:.4g}") for unit in np.where(most == 0, 1.0, most) / SHADES])
    whole = _numbers(fields, bodies, paid.divided(units))
    folded = np.where(whole < 0, -2 * whole - 1, 2 * whole).astype("<u4")  # small either way
    planes = folded.view(np.uint8).reshape(-1, 4).T.tobytes()
    casts, which = _casts(fields, bodies)
    worse = ["".join("01"[one] for one in row) for row in worse_off(paid.rows[paid.last], judged).tolist()]
    facts = list(map(list, zip(which, (paid.length - 1).tolist(), units.tolist(), worse, strict=True)))
    head = json.dumps({"casts": casts, "scenes": facts}, separators=(",", ":"), allow_nan=False)
    return _text(zlib.compress(head.encode() + b"\0" + planes, DEFLATED))


@dataclass(frozen=True)
class _Runs:
    """Arrays of the same columns, one below the other."""

    rows: NDArray[Any]  # (rows in all, columns)
    length: Ints  # of each
    first: Ints  # its first row

    @classmethod
    def cut(cls, rows: NDArray[Any], length: Ints) -> _Runs:
        return cls(rows, length, np.cumsum(length) - length)

    @property
    def last(self) -> Ints:
        return self.first + self.length - 1

    def divided(self, units: Array) -> _Runs:
        return replace(self, rows=self.rows / np.repeat(units, self.length)[:, None])

    def differences(self, times: int = 1) -> Ints:
        """Down each column, the first row as it is: things move little, and payments change little."""
        bends = _whole(self.rows)
        for _ in range(times):
            before = np.roll(bends, 1, axis=0)
            before[self.first] = 0
            bends -= before
        return bends

    def write(self, values: Ints, to: Ints, at: Ints) -> None:
        """Each array into `to` at its place, one column after the other."""
        within = np.arange(len(values)) - np.repeat(self.first, self.length)
        for column in range(values.shape[1]):
            to[np.repeat(at + column * self.length, self.length) + within] = values[:, column]


@dataclass(frozen=True)
class _Bodies:
    """The bodies of all episodes of a block, one episode after the other."""

    count: Ints  # in each episode
    at: _Runs  # of one that rests its first place alone
    rests: NDArray[np.bool_]
    present: _Runs  # of those that leave
    leaves: NDArray[np.bool_]

    @classmethod
    def of(cls, fields: Fields, length: Ints) -> _Bodies:
        count, present = fields.sizes, fields.present
        at, bodies = _Runs.cut(fields.at, np.repeat(length, count)), bool(count.any())
        x, y = at.rows.T
        still = (x == np.repeat(x[at.first], at.length)) & (y == np.repeat(y[at.first], at.length))
        rests = np.logical_and.reduceat(still, at.first) if bodies else np.empty(0, bool)
        leaves = ~np.logical_and.reduceat(present, at.first) if bodies else np.empty(0, bool)
        told = ~np.repeat(rests, at.length)
        told[at.first] = True
        places = _Runs.cut(at.rows[told], np.where(rests, 1, at.length))
        leaving = _Runs.cut(present[np.repeat(leaves, at.length), None], at.length[leaves])
        return cls(count, places, rests, leaving, leaves)


def _numbers(fields: Fields, bodies: _Bodies, paid: _Runs) -> Ints:
    """Of each episode the corners of its window; of each body x, y and presence; what each agent has received."""
    agents = paid.rows.shape[1]
    sizes = 2 * bodies.at.length  # of what is told of each body
    sizes[bodies.leaves] += bodies.present.length
    after = np.concatenate([[0], np.cumsum(sizes)])
    ends = np.cumsum(bodies.count)
    drawn = after[ends] - after[ends - bodies.count]  # numbers of the bodies of each episode
    first = np.cumsum(4 + drawn + agents * paid.length) - (4 + drawn + agents * paid.length)
    numbers = np.empty(int(first[-1] + 4 + drawn[-1] + agents * paid.length[-1]), np.int64)
    corners = np.concatenate([fields.low, fields.high], axis=1)
    numbers[first[:, None] + np.arange(4)] = _whole(corners * FINE)
    place = after[:-1] + np.repeat(first + 4 - after[ends - bodies.count], bodies.count)
    bodies.at.write(replace(bodies.at, rows=bodies.at.rows * FINE).differences(), numbers, place)
    behind = (place + 2 * bodies.at.length)[bodies.leaves]
    bodies.present.write(bodies.present.rows.astype(np.int64), numbers, behind)
    paid.write(paid.differences(2), numbers, first + 4 + drawn)
    return numbers


def _casts(fields: Fields, bodies: _Bodies) -> tuple[list[Any], list[int]]:
    """What no step changes, each kind once, and which of them each episode has."""
    casts: dict[str, int] = {}
    told, ends = np.stack([bodies.rests, bodies.leaves], axis=1), np.cumsum(bodies.count)
    which = [
        casts.setdefault(_cast(fields.casts[cast], told[first:end].tobytes()), len(casts))
        for cast, first, end in zip(fields.cast.tolist(), (ends - bodies.count).tolist(), ends.tolist(), strict=True)
    ]
    return list(map(json.loads, casts)), which


@lru_cache(MOST_CASTS)
def _cast(cast: Cast, told: bytes) -> str:
    """As JSON; of each thing it is told whether it rests, and whether it leaves."""
    kind, things = cast
    bodies = [_body(*thing) for thing in zip(things, told[::2], told[1::2], strict=True)]
    return json.dumps([kind, bodies], separators=(",", ":"))


def _body(thing: Thing, rests: int, leaves: int) -> dict[str, Any]:
    """Which of its numbers there are, too: one place if it rests, no presence if it stays."""
    plain: dict[str, Any] = {"shape": thing.shape, "label": thing.label, "radius": round(thing.radius, 3)}
    if thing.level is not None:
        plain["level"] = thing.level
    known = {"rests": rests, "leaves": leaves, "trail": thing.trail}
    return plain | {name: 1 for name, holds in known.items() if holds}


def _whole(values: Array) -> Ints:
    return np.rint(values).astype(np.int64)
