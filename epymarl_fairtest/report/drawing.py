"""Scenes as pictures: the field on the left, what each agent has received on the right.

Knows Pillow and scenes. Measures are those of the result; strokes.py draws larger and reduces.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageShow

from epymarl_fairtest.report.scenes import Scene
from epymarl_fairtest.report.strokes import FINE, Part, Pen, Point, changed, draw
from epymarl_fairtest.tasks.scene import AGENT, Body

AGENTS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # told apart by everyone
INK, FAINT, STONE, LINES, PAPER, GOLD = "#22272B", "#5F6870", "#C9CFD5", "#D5DADF", "#FFFFFF", "#F0E442"
WIDTH, HEIGHT = 480, 346
FIELD = (8, 34, 312, 338)  # left, top, right, bottom
PANEL = (326, 34, 472, 338)
FADING = 16  # steps until a trail is as faint as it gets
FRAME, PAUSE = 120, 2500  # milliseconds per step, and at the end


def frame(scene: Scene, step: int) -> Image.Image:
    """The scene after `step` steps."""
    return _Painter(scene).frame(step)


def png(scene: Scene) -> bytes:
    """One still: the end, with whole trails."""
    file = io.BytesIO()
    _Painter(scene).frame(scene.steps, whole=True).save(file, "PNG")  # optimize takes five times as long, for 3%
    return file.getvalue()


def gif(scene: Scene) -> bytes:
    """One frame per step and one before the first; the last one stays."""
    palette = _palette(min(scene.received.shape[1], len(AGENTS)))
    frames, colours = _Painter(scene).frames(palette), palette.getpalette() or []
    clear = np.uint8(len(colours) // 3)
    # What did not change since the frame before is left out: a third of the bytes. Pillow's optimize takes three times
    # as long for the same.
    np.copyto(frames[1:], clear, where=frames[1:] == frames[:-1])
    first, *others = map(Image.fromarray, frames)
    for one in (first, *others):
        one.putpalette([*colours, 0, 0, 0])
    file, waits = io.BytesIO(), [FRAME] * scene.steps + [PAUSE]
    first.save(
        file, "GIF", save_all=True, append_images=others, duration=waits, loop=0,
        optimize=False, transparency=int(clear), disposal=1,
    )  # fmt: skip
    return file.getvalue()


def show(scene: Scene) -> bool:
    """Open the still in the desktop's viewer; is there one?"""
    return bool(ImageShow.show(_Painter(scene).frame(scene.steps, whole=True), f"failure {scene.id}"))


def colour(agent: int) -> str:
    return AGENTS[agent % len(AGENTS)]


class _Painter:
    """Everything about a scene that no step changes, drawn once."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.agents, self.worse = scene.field.agents, scene.worse
        left, top, right, bottom = FIELD
        spans = scene.field.high - scene.field.low
        self.scale = min((right - left) / spans[0], (bottom - top) / spans[1])
        self.corner = (left, top + self.scale * spans[1])
        # Things that never change are drawn once; the others keep their order above them.
        self.resting: list[Body] = []
        self.moving: list[Body] = []
        for body in (body for body in scene.field.bodies if body.shape != AGENT):
            still = bool((body.at == body.at[0]).all() and body.present.all())
            (self.resting if still and not self.moving else self.moving).append(body)
        self.ways = [self._way(n, body) if body.trail else [] for n, body in enumerate(self.agents)]
        self.backdrop = self._backdrop()

    # --- the frame ------------------------------------------------------------------------------------

    def frame(self, step: int, whole: bool = False) -> Image.Image:
        image = self.backdrop.copy()
        draw(image, [*self._field(step, whole), *self._account(step)])
        return image.reduce(FINE)

    def frames(self, palette: Image.Image) -> NDArray[np.uint8]:
        """(steps+1, height, width) colours of the palette. Of each frame only what differs from the one before is made,
        on either side of the picture: a quarter of it."""
        frames = np.empty((self.scene.steps + 1, HEIGHT, WIDTH), np.uint8)
        image = self.backdrop.copy()
        before: tuple[list[Part], list[Part]] = [], []
        for step, frame in enumerate(frames):
            now = self._field(step), self._account(step)
            frame[:] = frames[step - 1]
            sides = zip(before, now, strict=True)
            boxes = [box for side in sides if (box := changed(*side, image.size))] if step else [(0, 0, *image.size)]
            for box in boxes:
                image.paste(self.backdrop.crop(box), box)
            draw(image, [*now[0], *now[1]])
            for box in boxes:
                left, top, right, bottom = (edge // FINE for edge in box)
                made = image.reduce(FINE, box).quantize(palette=palette, dither=Image.Dither.NONE)
                frame[top:bottom, left:right] = np.asarray(made)
            before = now
        return frames

    def _backdrop(self) -> Image.Image:
        scene = self.scene
        pen, image = Pen(), Image.new("RGB", (FINE * WIDTH, FINE * HEIGHT), PAPER)
        pen.text((8, 17), f"failure {scene.id} · seed {scene.root_seed}", 13, INK, "lm")
        wide = pen.width(scene.happened, 13)
        pen.text((WIDTH - 8, 17), scene.happened, 13, INK, "rm")
        if scene.changed:
            _changed(pen, (WIDTH - 18 - wide, 17), 6)
        if scene.field.kind == "grid":
            for x in np.arange(scene.field.low[0], scene.field.high[0] + 1):
                pen.line([self._at((x, scene.field.low[1])), self._at((x, scene.field.high[1]))], LINES, 1)
            for y in np.arange(scene.field.low[1], scene.field.high[1] + 1):
                pen.line([self._at((scene.field.low[0], y)), self._at((scene.field.high[0], y))], LINES, 1)
        elif scene.field.kind == "plane":
            pen.box(*self._at((-1, 1)), *self._at((1, -1)), outline=LINES)
        pen.box(*FIELD, outline=FAINT)
        for body in self.resting:
            self._thing(pen, body, 0)
        self._wording(pen)
        draw(image, pen.parts)
        return image

    def _wording(self, pen: Pen) -> None:
        """The words of the panel that stay; `_account` writes the others."""
        scene, (left, top, _, bottom) = self.scene, PANEL
        if scene.theta is not None:
            pen.text((left, top + 48), f"unfair up to {scene.theta:.2f}", 12, FAINT, "lm")
        pen.text((left, top + 74), f"received so far{' (0 is best)' if scene.costs else ''}", 12, FAINT, "lm")
        verdict = "" if scene.theta is None else f"{scene.verdict}, "
        pen.text((left, bottom - 28), f"ends {verdict}{_index(scene.index)}", 15, INK, "lm")
        names = [str(n + 1) for n in np.flatnonzero(self.worse)]
        if names:
            who = f"agent {names[0]}" if len(names) == 1 else "agents " + ", ".join(names)
            pen.disc((left + 7, bottom - 9), 6, None, INK, 2)
            pen.text((left + 19, bottom - 9), f"worse off: {who}", 12, INK, "lm")

    def _at(self, place: Any) -> Point:
        """Where on the picture a place of the field is."""
        low, (left, bottom) = self.scene.field.low, self.corner
        return left + self.scale * float(place[0] - low[0]), bottom - self.scale * float(place[1] - low[1])

    # --- the field ------------------------------------------------------------------------------------

    def _field(self, step: int, whole: bool = False) -> list[Part]:
        scene, pen = self.scene, Pen()
        if scene.field.kind == "none":
            self._curves(pen, step)
            return pen.parts
        for body in self.moving:
            pen.part()
            self._thing(pen, body, step)
        for n, body in enumerate(self.agents):
            pen.part()
            if body.trail:
                self._trail(pen, n, body, step, whole)
        pen.part()
        if scene.changed and step >= scene.start_step:
            for body in self.agents:
                _changed(pen, self._at(body.at[scene.start_step]), 6)
        for n, body in sorted(enumerate(self.agents), key=lambda one: self.worse[one[0]]):  # these on top
            pen.part()
            self._agent(pen, n, body, step)
        return pen.parts

    def _thing(self, pen: Pen, body: Body, step: int) -> None:
        if body.trail:
            pen.line([self._at(place) for place in body.at[: step + 1]], STONE, 1.5)
        at = self._at(body.at[step])
        if body.present[step]:
            SHAPES.get(body.shape, _disc)(pen, at, self.scale * body.radius, body.label)
        else:
            _cross(pen, at, 4, FAINT, 1)

    def _trail(self, pen: Pen, n: int, body: Body, step: int, whole: bool) -> None:
        """The way so far, fading with age; thin where it is the parent's."""
        for t, stroke in enumerate(self.ways[n][:step]):
            age = (step - t) / max(step, 1) if whole else min((step - t) / FADING, 1.0)
            pen.again(stroke, _mixed(colour(n), PAPER, round(12 * age)))
        if whole:
            pen.disc(self._beside(n, body, 0), 3, PAPER, colour(n), 1.5)

    def _way(self, n: int, body: Body) -> Part:
        """A line for each step."""
        pen, points = Pen(), [self._beside(n, body, step) for step in range(len(body.at))]
        for step in range(len(points) - 1):
            pen.line(points[step : step + 2], colour(n), 1.5 if step < self.scene.start_step else 3)
        return pen.parts[0]

    def _beside(self, n: int, body: Body, step: int) -> Point:
        """On a grid ways lie side by side."""
        beside = 3.0 * (n - (len(self.agents) - 1) / 2) if self.scene.field.kind == "grid" else 0.0
        x, y = self._at(body.at[step])
        return x + beside, y + beside

    def _agent(self, pen: Pen, n: int, body: Body, step: int) -> None:
        x, y = self._at(body.at[step])
        radius = max(self.scale * body.radius, 9)
        if self.worse[n]:
            pen.disc((x, y), radius + 4, None, INK, 2)
        pen.disc((x, y), radius, colour(n), PAPER, 1)
        pen.text((x, y), body.label, 14, PAPER, "mm")
        if body.level is not None:
            pen.disc((x + radius - 2, y + radius - 2), 7, PAPER, INK, 1)
            pen.text((x + radius - 2, y + radius - 2), str(body.level), 11, INK, "mm")
        gained = self.scene.received[step, n] - self.scene.received[max(step - 1, 0), n]
        if self.scene.field.kind == "grid" and gained > 0:
            pen.text((x, y - radius - 9), f"+{gained:.2g}", 13, INK, "mm", PAPER)

    # --- the accounts ---------------------------------------------------------------------------------

    def _account(self, step: int) -> list[Part]:
        pen, scene, (left, top, _, bottom) = Pen(), self.scene, PANEL
        pen.text((left, top + 8), f"step {step} of {scene.steps}", 15, INK, "lm")
        pen.text((left, top + 29), f"fairness {_index(scene.course[step])}", 15, INK, "lm")
        self._bars(pen, scene.received[step], top + 84, bottom - 44)
        return pen.parts

    def _bars(self, pen: Pen, received: NDArray[np.float64], top: float, bottom: float) -> None:
        """Up is more and down is less; the scale is that of the whole episode."""
        (left, _, right, _), count = PANEL, len(received)
        least, most = min(self.scene.received.min(), 0.0), max(self.scene.received.max(), 0.0)
        levels = {n: body.level for n, body in enumerate(self.agents) if body.level is not None}
        top, bottom = top + 20, bottom - (20 if least < 0 else 38 if levels else 24)
        scale = (bottom - top) / ((most - least) or 1.0)
        zero, wide = bottom + scale * least, (right - left) / count
        pen.line([(left, zero), (right, zero)], INK, 1)
        for n, value in enumerate(received.tolist()):
            middle, end, half = left + (n + 0.5) * wide, zero - scale * value, min(0.36 * wide, 22)
            bar = (middle - half, min(end, zero), middle + half, max(end, zero))
            pen.box(*bar, fill=colour(n), outline=INK if self.worse[n] else None, width=2)
            down = -1 if value < 0 or (value == 0 and least < 0) else 1
            pen.text((middle, end - 10 * down), _number(value), 12 if count < 4 else 10, INK, "mm")
            pen.disc((middle, zero + 13 * down), 9, colour(n), None, 0)
            pen.text((middle, zero + 13 * down), str(n + 1), 13, PAPER, "mm")
            if n in levels and down > 0:
                pen.text((middle, zero + 30), f"level {levels[n]}", 11, FAINT, "mm")

    def _curves(self, pen: Pen, step: int) -> None:
        """Where nothing is known of places: what was received over time."""
        scene, (left, top, right, bottom) = self.scene, FIELD
        low, high = min(scene.received.min(), 0.0), max(scene.received.max(), 0.0)
        across, up = (right - left - 50) / max(scene.steps, 1), (bottom - top - 50) / ((high - low) or 1.0)

        def at(t: int, value: float) -> Point:
            return left + 20 + across * t, bottom - 25 - up * (value - low)

        pen.line([at(0, 0), at(scene.steps, 0)], LINES, 1)
        pen.text((right - 8, top + 12), "received, step by step", 12, FAINT, "rm")
        if scene.changed:
            pen.line([at(scene.start_step, low), at(scene.start_step, high)], FAINT, 1)
        for n, values in enumerate(scene.received[: step + 1].T.tolist()):
            points = [at(t, value) for t, value in enumerate(values)]
            pen.line(points, colour(n), 3)
            pen.disc(points[-1], 9, colour(n), INK if self.worse[n] else PAPER, 2)
            pen.text(points[-1], str(n + 1), 13, PAPER, "mm")


# --- shapes -------------------------------------------------------------------------------------------


def _disc(pen: Pen, at: Point, radius: float, label: str) -> None:
    pen.disc(at, radius, STONE, FAINT, 1)
    pen.text(at, label, 12, INK, "mm")


def _square(pen: Pen, at: Point, radius: float, label: str) -> None:
    x, y = at
    pen.box(x - radius, y - radius, x + radius, y + radius, fill=GOLD, outline=INK)
    pen.text(at, label, 14, INK, "mm")


def _diamond(pen: Pen, at: Point, radius: float, label: str) -> None:
    (x, y), radius = at, max(radius, 8)
    pen.shape([(x, y - radius), (x + radius, y), (x, y + radius), (x - radius, y)], GOLD, INK)
    pen.text((x, y + radius + 8), label, 12, INK, "mm", PAPER)


def _target(pen: Pen, at: Point, radius: float, label: str) -> None:
    (x, y), radius = at, max(3.2 * radius, 12)  # to be seen around the agent that covers it
    pen.box(x - radius, y - radius, x + radius, y + radius, outline=INK, width=1.5)
    pen.line([(x - 5, y), (x + 5, y)], INK, 1.5)
    pen.line([(x, y - 5), (x, y + 5)], INK, 1.5)
    pen.text((x, y + radius + 8), label, 12, INK, "mm", PAPER)


SHAPES: dict[str, Callable[[Pen, Point, float, str], None]] = {
    "disc": _disc,
    "square": _square,
    "diamond": _diamond,
    "target": _target,
}


def _changed(pen: Pen, at: Point, radius: float) -> None:
    """The sign of a mutation or a splice: a ring with a cross."""
    pen.disc(at, radius, PAPER, INK, 1.5)
    _cross(pen, at, 0.7 * radius, INK, 1.5)


def _cross(pen: Pen, at: Point, reach: float, fill: str, width: float) -> None:
    x, y = at
    pen.line([(x - reach, y - reach), (x + reach, y + reach)], fill, width)
    pen.line([(x - reach, y + reach), (x + reach, y - reach)], fill, width)


@cache
def _mixed(name: str, other: str, share: int) -> str:
    """`share` sixteenths of the other colour: more shades would not be seen, and cost bytes."""
    parts = [(int(name[i : i + 2], 16), int(other[i : i + 2], 16)) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(one + (two - one) * share / 16):02X}" for one, two in parts)


@cache
def _palette(agents: int) -> Image.Image:
    """The colours that are used, and some between those that touch."""
    names = [PAPER, LINES, STONE, FAINT, INK, _mixed(LINES, PAPER, 8)]
    pairs = [(INK, PAPER), (GOLD, INK), (GOLD, PAPER), *((name, PAPER) for name in AGENTS[:agents])]
    names += [_mixed(one, two, share) for one, two in pairs for share in range(0, 16, 2)]
    names += [_mixed(name, INK, share) for name in AGENTS[:agents] for share in (5, 11)]
    palette = Image.new("P", (1, 1))
    palette.putpalette([int(name[i : i + 2], 16) for name in names for i in (1, 3, 5)])
    return palette


def _index(value: float) -> str:
    return "-" if np.isnan(value) else f"{value:.2f}"


def _number(value: float) -> str:
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
