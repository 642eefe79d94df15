"""A small chart as an element of the page: axes, ticks and marks, written as SVG in the page's own colours and font.

Knows numbers and SVG, nothing of runs. The page's charts are simple, and matplotlib takes a second to import.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from xml.etree.ElementTree import Element, SubElement, tostring

INK, QUIET, GRID, ACCENT, PAPER = (f"var(--{name})" for name in ("ink", "quiet", "grid", "accent", "paper"))
LARGEST = 1.5  # pixels per point: text is as large in small drawings as in wide ones
POINTS = 72  # to the inch
TEXT, SMALL = 9.5, 8.5  # sizes of words, in points
CHARACTER = 0.62  # of the size of the text: how wide one is, about
STEPS = (1, 2, 2.5, 5, 10)
DASHED, DOTTED = "4 3", "1 2"
ANCHORS = {"left": "start", "center": "middle", "right": "end"}
DROPS = {"top": 0.8, "middle": 0.35, "bottom": -0.2}  # of the size: how far below its place a text's line is
NOTHING: Mapping[str, str] = {}

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
        self._marks = Element("g")
        self._frame(x, y, grid, box)
        middle = ((self._left + self._right) / 2, (self._top + self._bottom) / 2)
        self._words((middle[0], self._size[1] - 5), labels[0], TEXT, "center", "bottom")
        self._words((4, middle[1]), labels[1], TEXT, "center", "top", {"transform": f"rotate(-90 4 {middle[1]:.1f})"})
        if title:
            self._words((self._left, 14), title, TEXT, "left", "bottom", {"font-weight": "bold"})

    def element(self, description: str) -> str:
        """`description` is what is read aloud instead of the drawing."""
        width, height = self._size
        attributes = {
            "class": "drawn",
            "style": f"max-width:{LARGEST * width:.0f}px",
            "role": "img",
            "aria-label": description,
            "viewBox": f"0 0 {width:g} {height:g}",
        }
        drawing = Element("svg", attributes)
        drawing.extend(self._marks)
        return tostring(drawing, encoding="unicode")

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
            self._mark("path", d=f"{path}Z", fill=colour, fill_opacity=f"{fill:g}")
        else:
            self._stroke(path, colour, 1.6)

    def area(self, corners: Iterable[Any], colour: str, fill: float = 1) -> None:
        places = " ".join(f"{x:.1f},{y:.1f}" for x, y in (self._at(*corner) for corner in corners))
        self._mark("polygon", points=places, fill=colour, fill_opacity=f"{fill:g}")

    def box(self, across: Span, up: Span, colour: str, fill: float = 1) -> None:
        (left, top), (right, bottom) = self._at(across[0], up[1]), self._at(across[1], up[0])
        size = {"width": f"{right - left:.1f}", "height": f"{bottom - top:.1f}"}
        self._mark("rect", x=f"{left:.1f}", y=f"{top:.1f}", **size, fill=colour, fill_opacity=f"{fill:g}")

    def dots(
        self, points: Iterable[Any], size: float, colour: str, *,
        fill: float = 1, edge: str = "none", width: float = 0, shape: str = "o",
    ) -> None:  # fmt: skip
        """Marks of `size` points across: o, s(quare), D(iamond) or ^."""
        line = {"stroke": edge, "stroke_width": f"{width:g}"} if width else {}
        group = self._mark("g", fill=colour, fill_opacity=f"{fill:g}", **line)
        for point in points:
            if all(map(math.isfinite, point)):
                _dot(group, shape, *self._at(*point), size / 2)

    def text(
        self, at: Any, words: str, *, beside: Span = (0, 0), size: float = SMALL,
        align: str = "center", upright: str = "middle", behind: bool = False,
    ) -> None:  # fmt: skip
        """Words at a place, `beside` points to the right of it and below it; `behind`: on paper of their own."""
        x, y = self._at(*at)
        paper = {"stroke": PAPER, "stroke-width": "3", "paint-order": "stroke"} if behind else {}
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
        dashes = {"stroke_dasharray": " ".join(f"{width * float(d):g}" for d in dash.split())} if dash else {}
        self._mark("path", d=path, fill="none", stroke=colour, stroke_width=f"{width:g}", **dashes)

    def _words(
        self, at: Span, words: str, size: float, align: str, upright: str, more: Mapping[str, str] = NOTHING
    ) -> None:
        x, y = at[0], at[1] + DROPS[upright] * size
        place = {"x": f"{x:.1f}", "y": f"{y:.1f}", "font_size": f"{size:g}px"}
        self._mark("text", **place, fill=INK, text_anchor=ANCHORS[align], **more).text = words

    def _mark(self, name: str, **attributes: str) -> Element:
        return _within(self._marks, name, **attributes)


def _room(words: str) -> float:
    """How wide they are at most, about: fonts differ."""
    return CHARACTER * TEXT * (len(words) + 0.5 * words.count("%"))


def _dot(group: Element, shape: str, x: float, y: float, r: float) -> None:
    if shape == "s":
        across = f"{2 * r:.1f}"
        _within(group, "rect", x=f"{x - r:.1f}", y=f"{y - r:.1f}", width=across, height=across)
    elif shape in "D^":
        corners = [(0, -r), (r, 0), (0, r), (-r, 0)] if shape == "D" else [(0, -r), (r, r), (-r, r)]
        _within(group, "polygon", points=" ".join(f"{x + a:.1f},{y + b:.1f}" for a, b in corners))
    else:
        _within(group, "circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=f"{r:.2g}")


def _within(parent: Element, name: str, **attributes: str) -> Element:
    """An element more; `fill_opacity` is SVG's fill-opacity."""
    return SubElement(parent, name, {key.replace("_", "-"): value for key, value in attributes.items()})
