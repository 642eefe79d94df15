"""Strokes as data: of a film only what differs from the frame before is drawn, reduced and coloured again.

Knows Pillow; nothing of scenes. What is drawn is FINE times as large as the result, which smooths edges.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from itertools import chain, zip_longest
from typing import Any, NamedTuple

from PIL import Image, ImageDraw, ImageFont

FINE = 2  # pixels drawn per pixel of the result

Point = tuple[float, float]
Box = tuple[float, float, float, float]  # left, top, right, bottom


class Stroke(NamedTuple):
    how: str  # a method of ImageDraw
    what: tuple[Any, ...]  # its arguments
    box: Box  # outside of which it draws nothing


Part = list[Stroke]  # what is drawn of one thing: strokes of two frames are compared within their part, one by one


class Pen:
    """Collects strokes, in the measures of the result."""

    def __init__(self) -> None:
        self.parts: list[Part] = [[]]

    def part(self) -> None:
        """What follows is of another thing."""
        self.parts.append([])

    def line(self, points: list[Point], fill: str, width: float) -> None:
        if len(points) > 1:
            fine = [(FINE * x, FINE * y) for x, y in points]
            (left, right), (top, bottom) = ((min(values), max(values)) for values in zip(*fine, strict=True))
            self._add("line", (fine, fill, round(FINE * width), "curve"), (left, top, right, bottom), FINE * width)

    def again(self, line: Stroke, fill: str) -> None:
        """A line in another colour."""
        points, _, *more = line.what
        self.parts[-1].append(Stroke(line.how, (points, fill, *more), line.box))

    def disc(self, at: Point, radius: float, fill: str | None, outline: str | None, width: float) -> None:
        (x, y), radius = (FINE * at[0], FINE * at[1]), FINE * radius
        corners = (x - radius, y - radius, x + radius, y + radius)
        self._add("ellipse", (corners, fill, outline, round(FINE * width)), corners)

    def box(
        self, left: float, top: float, right: float, bottom: float, *,
        fill: str | None = None, outline: str | None = None, width: float = 1,
    ) -> None:  # fmt: skip
        corners = (FINE * left, FINE * top, FINE * right, FINE * bottom)
        self._add("rectangle", (corners, fill, outline, round(FINE * width)), corners)

    def shape(self, corners: list[Point], fill: str, outline: str) -> None:
        fine = [(FINE * x, FINE * y) for x, y in corners]
        (left, right), (top, bottom) = ((min(values), max(values)) for values in zip(*fine, strict=True))
        self._add("polygon", (fine, fill, outline, FINE), (left, top, right, bottom), FINE)

    def text(self, at: Point, words: str, size: int, fill: str, anchor: str, around: str | None = None) -> None:
        for stroke, ink in ((0, fill),) if around is None else ((2 * FINE, around), (0, fill)):
            (x, y), mask = _stamp(words, FINE * size, anchor, stroke)
            left, top = round(FINE * at[0]) + x, round(FINE * at[1]) + y
            self._add("bitmap", ((left, top), mask, ink), (left, top, left + mask.width, top + mask.height))

    def width(self, words: str, size: int) -> float:
        return float(_font(FINE * size).getlength(words, "L")) / FINE

    def _add(self, how: str, what: tuple[Any, ...], box: Box, beyond: float = 0) -> None:
        """Nothing is drawn outside of this box and so many pixels around it, and what rounding adds."""
        left, top, right, bottom = box
        beyond += 2
        box = (left - beyond, top - beyond, right + beyond, bottom + beyond)
        self.parts[-1].append(Stroke(how, what, box))


def draw(image: Image.Image, parts: Iterable[Part]) -> None:
    pen = ImageDraw.Draw(image)
    for how, what, _ in chain.from_iterable(parts):
        getattr(pen, how)(*what)


def changed(before: list[Part], now: list[Part], size: tuple[int, int]) -> tuple[int, int, int, int] | None:
    """The box of a picture of this size, in whole pixels of the result, outside of which both look the same; None:
    everywhere."""
    parts: Iterator[tuple[Part, Part]] = zip_longest(before, now, fillvalue=[])
    boxes = [stroke.box for pair in parts for stroke in _different(*pair)]
    if not boxes:
        return None
    lefts, tops, rights, bottoms = zip(*boxes, strict=True)
    left, top = (FINE * max(math.floor(min(edges) / FINE), 0) for edges in (lefts, tops))
    right, bottom = (
        min(FINE * math.ceil(max(edges) / FINE), end) for edges, end in zip((rights, bottoms), size, strict=True)
    )
    return (left, top, right, bottom) if left < right and top < bottom else None


def _different(one: Part, other: Part) -> Iterator[Stroke]:
    """All other strokes are the same in both, in the same order."""
    for pair in zip_longest(one, other):
        if pair[0] != pair[1]:
            yield from filter(None, pair)


@lru_cache(10_000)
def _stamp(words: str, size: int, anchor: str, stroke: int) -> tuple[tuple[int, int], Image.Image]:
    """Where words begin beside their place, and which pixels they cover: frames repeat most of them."""
    font = _font(size)
    left, top, right, bottom = (round(edge) for edge in font.getbbox(words, anchor=anchor, stroke_width=stroke))
    mask = Image.new("L", (max(right - left, 1), max(bottom - top, 1)))
    ImageDraw.Draw(mask).text((-left, -top), words, 255, font, anchor, stroke_width=stroke)
    return (left, top), mask


@cache
def _font(size: int) -> Any:
    """Pillow's own: no font need be installed."""
    return ImageFont.load_default(size)
