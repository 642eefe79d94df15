"""A small chart as an element of the page: axes, ticks and marks, written as SVG in the page's own colours and font.

Knows numbers and SVG, nothing of runs. The page's charts are simple, and matplotlib takes a second to import.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Any

INK, QUIET, GRID, ACCENT, PAPER = (f"var(--{name})" for name in ("ink", "quiet", "grid", "accent", "paper"))
LARGEST = 1.5  # pixels per point: text is as large in small drawings as in wide ones
POINTS = 72  # to the inch
TEXT, SMALL = 9.5, 8.5  # sizes of words, in points
CHARACTER = 0.62  # of the size of the text: how wide one is, about
STEPS = (1, 2, 2.5, 5, 10)
DASHED, DOTTED = "4 3", "1 2"
ANCHORS = {"left": "start", "center": "middle", "right": "end"}
DROPS = {"top": 0.8, "middle": 0.35, "bottom": -0.2}  # of the size: how far below its place a text's line is

Span = tuple[float, float]
Ticks = Sequence[tuple[float, str]]


def ticks(span: Span, most: int, label: Callable[[float], str], *, whole: bool = False) -> Ticks:
    """At most `most` steps of a round size within the span; of `whole` numbers where only these make sense."""
    low, high = span
    if not high > low:
        return [(low, label(low))]
    size = 10.0 ** math.floor(math.log10((high - low) / most))
    sizes = (size * step for size in (size, 10 * size) for step in STEPS)
    step = next(one for one in sizes if (high - low) / one <= most and (not whole or one == round(one)))
    values = [n * step for n in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]
    return [(value, label(value)) for value in values]


class Chart:
    """Marks are drawn in the order in which they are given, within the axes; sizes are inches, widths are points."""

    def __init__(
        self, width: float, height: float, across: Span, up: Span, *, x: Ticks = (), y: Ticks = (),
        labels: tuple[str, str], grid: str = "y", title: str = "", box: bool = False,
    ) -> None:  # fmt: skip
        self._size = (POINTS * width, POINTS * height)
        self._across, self._up = across, up
        room = max((_room(words) for _, words in y), default=0.0)
        self._left, self._right = 21 + room, self._size[0] - max(8.0, _room(x[-1][1]) / 2 if x else 0.0)
        self._top, self._bottom = 22.0 if title else 7.0, self._size[1] - (33 if x else 20)
        self._parts: list[str] = []
        self._frame(x, y, grid, box)
        middle = ((self._left + self._right) / 2, (self._top + self._bottom) / 2)
        self._words((middle[0], self._size[1] - 5), labels[0], TEXT, "center", "bottom")
        self._words((4, middle[1]), labels[1], TEXT, "center", "top", f' transform="rotate(-90 4 {middle[1]:.1f})"')
        if title:
            self._words((self._left, 14), title, TEXT, "left", "bottom", ' font-weight="bold"')

    def element(self, description: str) -> str:
        """`description` is what is read aloud instead of the drawing."""
        (width, height), style = self._size, f"max-width:{LARGEST * self._size[0]:.0f}px"
        return (
            f'<svg class="drawn" style="{style}" role="img" aria-label="{escape(description)}"'
            f' viewBox="0 0 {width:g} {height:g}">{"".join(self._parts)}</svg>'
        )

    # --- marks ----------------------------------------------------------------------------------------

    def line(self, points: Iterable[Any], colour: str, width: float, dash: str = "") -> None:
        """Through these (x, y); where one is undefined, there is a gap."""
        path, pen = [], "M"
        for at, height in points:
            known = math.isfinite(at) and math.isfinite(height)
            if known:
                x, y = self._at(at, height)
                path.append(f"{pen}{x:.1f} {y:.1f}")
            pen = "L" if known else "M"
        self._stroke("".join(path), colour, width, dash)

    def steps(self, edges: Sequence[float], values: Sequence[float], colour: str, *, fill: float = 0) -> None:
        """A histogram: an outline, or filled as densely as `fill` says."""
        x, y = self._at(edges[0], 0)
        path = f"M{x:.1f} {y:.1f}"
        for value, edge in zip(values, edges[1:], strict=True):
            x, y = self._at(edge, value)
            path += f"V{y:.1f}H{x:.1f}"
        path += f"V{self._at(0, 0)[1]:.1f}"
        if fill:
            self._parts.append(f'<path d="{path}Z" fill="{colour}" fill-opacity="{fill:g}"/>')
        else:
            self._stroke(path, colour, 1.6)

    def area(self, corners: Iterable[Any], colour: str, fill: float = 1) -> None:
        places = " ".join(f"{x:.1f},{y:.1f}" for x, y in (self._at(*corner) for corner in corners))
        self._parts.append(f'<polygon points="{places}" fill="{colour}" fill-opacity="{fill:g}"/>')

    def box(self, across: Span, up: Span, colour: str, fill: float = 1) -> None:
        (left, top), (right, bottom) = self._at(across[0], up[1]), self._at(across[1], up[0])
        self._parts.append(
            f'<rect x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" height="{bottom - top:.1f}"'
            f' fill="{colour}" fill-opacity="{fill:g}"/>'
        )

    def dots(
        self, points: Iterable[Any], size: float, colour: str, *,
        fill: float = 1, edge: str = "none", width: float = 0, shape: str = "o",
    ) -> None:  # fmt: skip
        """Marks of `size` points across: o, s(quare), D(iamond) or ^."""
        places = (self._at(*point) for point in points if all(map(math.isfinite, point)))
        marks = "".join(_mark(shape, x, y, size / 2) for x, y in places)
        line = f' stroke="{edge}" stroke-width="{width:g}"' if width else ""
        self._parts.append(f'<g fill="{colour}" fill-opacity="{fill:g}"{line}>{marks}</g>')

    def text(
        self, at: Any, words: str, *, beside: Span = (0, 0), size: float = SMALL,
        align: str = "center", upright: str = "middle", behind: bool = False,
    ) -> None:  # fmt: skip
        """Words at a place, `beside` points to the right of it and below it; `behind`: on paper of their own."""
        x, y = self._at(*at)
        paper = f' stroke="{PAPER}" stroke-width="3" paint-order="stroke"' if behind else ""
        self._words((x + beside[0], y + beside[1]), words, size, align, upright, paper)

    # --- axes -----------------------------------------------------------------------------------------

    def _frame(self, x: Ticks, y: Ticks, grid: str, box: bool) -> None:
        tick = 0 if grid == "both" else 3
        for value, words in x:
            at = self._at(value, 0)[0]
            if grid == "both":
                self._stroke(f"M{at:.1f} {self._top:.1f}V{self._bottom:.1f}", GRID, 0.8)
            elif grid != "bars":
                self._stroke(f"M{at:.1f} {self._bottom:.1f}v{tick}", QUIET, 0.8)
            self._words((at, self._bottom + 5), words, TEXT, "center", "top")
        for value, words in y:
            at = self._at(0, value)[1]
            self._stroke(f"M{self._left:.1f} {at:.1f}H{self._right:.1f}", GRID, 0.8)
            if tick:
                self._stroke(f"M{self._left:.1f} {at:.1f}h-{tick}", QUIET, 0.8)
            self._words((self._left - 5, at), words, TEXT, "right", "middle")
        around = f"H{self._right:.1f}V{self._top:.1f}Z" if box else f"H{self._right:.1f}"
        self._stroke(f"M{self._left:.1f} {self._top:.1f}V{self._bottom:.1f}{around}", QUIET, 0.8)

    def _at(self, across: float, up: float) -> tuple[float, float]:
        (low, high), (least, most) = self._across, self._up
        x = self._left + (self._right - self._left) * (float(across) - low) / ((high - low) or 1)
        return x, self._bottom - (self._bottom - self._top) * (float(up) - least) / ((most - least) or 1)

    def _stroke(self, path: str, colour: str, width: float, dash: str = "") -> None:
        dashes = f' stroke-dasharray="{" ".join(f"{width * float(d):g}" for d in dash.split())}"' if dash else ""
        self._parts.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="{width:g}"{dashes}/>')

    def _words(self, at: Span, words: str, size: float, align: str, upright: str, more: str = "") -> None:
        x, y = at[0], at[1] + DROPS[upright] * size
        self._parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}px" fill="{INK}" text-anchor="{ANCHORS[align]}"{more}>'
            f"{escape(words)}</text>"
        )


def _room(words: str) -> float:
    """How wide they are at most, about: fonts differ."""
    return CHARACTER * TEXT * (len(words) + 0.5 * words.count("%"))


def _mark(shape: str, x: float, y: float, r: float) -> str:
    if shape == "s":
        return f'<rect x="{x - r:.1f}" y="{y - r:.1f}" width="{2 * r:.1f}" height="{2 * r:.1f}"/>'
    if shape in "D^":
        corners = [(0, -r), (r, 0), (0, r), (-r, 0)] if shape == "D" else [(0, -r), (r, r), (-r, r)]
        return f'<polygon points="{" ".join(f"{x + a:.1f},{y + b:.1f}" for a, b in corners)}"/>'
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{r:.2g}"/>'
