"""The moving picture of the README: a failure beside the course with one other decision, from a finished run."""

from __future__ import annotations

import argparse
import io
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from epymarl_fairtest.core.files import write_atomically
from epymarl_fairtest.report import drawing
from epymarl_fairtest.report.layout import task_of
from epymarl_fairtest.report.scenes import Scene, scene_of
from epymarl_fairtest.report.why import Why, whys_of
from epymarl_fairtest.store.failures import load_failures
from epymarl_fairtest.store.finished import read_run

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "images" / "unfair.gif"
INK, PAPER, HEAD, WIDE = "#22272B", "#FFFFFF", 30, 720
COLOURS = 64  # of the whole film
FRAME, PAUSE = 110, 2500  # milliseconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="a finished run whose failures were explained")
    parser.add_argument("id", type=int, nargs="?", help="a failure that one decision would have made fair")
    parser.add_argument("--out", type=Path, default=PICTURE)
    args = parser.parse_args()
    record = read_run(args.run, "failures.npz")
    episodes = load_failures(args.run / "failures.npz")
    task = task_of(args.run, record.manifest, episodes)
    avoidable = {number: why for number, why in whys_of(record, task).items() if why.decision and why.instead}
    number = args.id or min(avoidable, key=lambda one: (avoidable[one].decision or {})["p_unfair"])
    row = episodes.id.tolist().index(number)
    scene = scene_of(task, episodes, row, str(record.summary["index"]), record.theta, record.agents)
    film = gif(scene, avoidable[number])
    write_atomically(args.out, lambda file: file.write(film))
    print(f"{args.out}: {len(film):,} bytes, failure {number}, {avoidable[number].change}")
    return 0


def gif(scene: Scene, why: Why) -> bytes:
    assert why.instead is not None
    assert why.decision is not None
    instead, one = why.instead.scene, why.decision
    heads = [
        f"What happened: unfair, index {scene.index:.2f}",
        f"Agent {one['agent']} goes {one['action']} at step {one['step']}: fair, {instead.index:.2f}",
    ]
    steps = max(scene.steps, instead.steps)
    frames = []
    for step in range(steps + 1):
        sides = [drawing.frame(one, min(step, one.steps)) for one in (scene, instead)]
        frames.append(beside(sides, heads))
    palette = frames[-1].quantize(COLOURS)  # one for all: what did not move costs no bytes
    frames = [one.quantize(palette=palette, dither=Image.Dither.NONE) for one in frames]
    file = io.BytesIO()
    waits = [FRAME] * steps + [PAUSE]
    frames[0].save(file, "GIF", save_all=True, append_images=frames[1:], duration=waits, loop=0, optimize=True)
    return file.getvalue()


def beside(sides: list[Image.Image], heads: list[str]) -> Image.Image:
    """Two frames in one, each below its head."""
    wide, high = sides[0].size
    whole = Image.new("RGB", (2 * wide, high + HEAD), PAPER)
    pen = ImageDraw.Draw(whole)
    for place, (side, head) in enumerate(zip(sides, heads, strict=True)):
        whole.paste(side, (place * wide, HEAD))
        pen.text((place * wide + 12, 7), head, fill=INK, font=ImageFont.load_default(15))
    return whole.resize((WIDE, round(WIDE * whole.height / whole.width)), Image.Resampling.LANCZOS)


if __name__ == "__main__":
    raise SystemExit(main())
