"""What a result gives for one failure, as it is shown in a notebook: its replay, and why it happened."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

from epymarl_fairtest.api.replaying import Difference, Replayed
from epymarl_fairtest.core.files import write_atomically
from epymarl_fairtest.report.libraries import needed_for
from epymarl_fairtest.report.scenes import Scene


@dataclass(frozen=True)
class Replay:
    """One failure, executed again in the real environment. In a notebook it is the film of that."""

    scene: Scene
    outcome: Replayed

    @property
    def id(self) -> int:
        return self.outcome.id

    @property
    def agrees(self) -> bool:
        """Did it come out the same, bit for bit?"""
        return self.outcome.agrees

    @property
    def differs(self) -> Difference | None:
        """Where it began to differ, if it did."""
        return self.outcome.differs

    @cached_property
    def gif(self) -> bytes:
        """The film."""
        return film(self.scene)

    def save(self, path: str | Path) -> Path:
        """Write the film to a file."""
        path = Path(path)
        write_atomically(path, lambda file: file.write(self.gif))
        return path

    def __str__(self) -> str:
        came = "came out the same, bit for bit" if self.agrees else f"came out otherwise ({self.outcome.differs})"
        return f"Failure {self.id}, index {self.outcome.index:.3f}: {came}."

    def _repr_html_(self) -> str:
        return f"<div>{picture(self.gif, str(self))}<p>{escape(str(self))}</p></div>"


@dataclass(frozen=True)
class Why:
    """Why failures happened, in lines; `explanation` holds the same as plain data (docs/explaining.md)."""

    lines: tuple[str, ...]
    explanation: Mapping[str, Any]

    def __str__(self) -> str:
        return "\n".join(self.lines)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return "<div>" + "".join(f"<p>{escape(line)}</p>" for line in self.lines) + "</div>"


def film(scene: Scene) -> bytes:
    with needed_for("A film"):
        from epymarl_fairtest.report import drawing
    return drawing.gif(scene)


def picture(content: bytes, words: str, kind: str = "gif") -> str:
    """For a notebook: in the page itself, and described for those who do not see it."""
    return f'<img alt="{escape(words)}" src="data:image/{kind};base64,{base64.b64encode(content).decode()}">'
