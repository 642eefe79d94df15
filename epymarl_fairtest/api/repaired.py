"""A repair as a notebook wants it: the verdict with its numbers, a table, a figure, and where the teams are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epymarl_fairtest.api.result import needed_pandas
from epymarl_fairtest.api.shown import picture
from epymarl_fairtest.repair.words import rows, text_of

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, repr=False, eq=False)
class Repaired:
    """What a repair was worth. `document` holds everything as plain data (repair.json, docs/repairing.md)."""

    path: Path
    document: Mapping[str, Any]

    @property
    def verdict(self) -> str:
        """`repaired`, `levelled down` (the rate falls, the worst-off agent gains nothing) or `not repaired`."""
        return str(self.document["verdict"])

    @property
    def sentence(self) -> str:
        """The verdict with its numbers, before, after and beside the control."""
        return str(self.document["sentence"])

    @property
    def teams(self) -> list[Path]:
        """The folders of the repaired teams, one for each seed: `fairtest.test` takes them."""
        return [self.path / entry["policy"] for entry in self.document["repaired"]]

    @property
    def page(self) -> Path | None:
        """The page of the repair, if it was drawn: one HTML file for any browser."""
        page = self.path / "index.html"
        return page if page.is_file() else None

    @property
    def table(self) -> pandas.DataFrame:
        """One row per team: before, control and repaired for each seed. Numbers as in repair.json. Needs pandas."""
        document = self.document
        named = [("before", document["before"]), *(("control", one) for one in document["control"])]
        named += [("repaired", one) for one in document["repaired"]]
        kept = ("seed", "weight", "verdict", "rate", "low", "high", "return", "worst_off", "best_off", "policy")
        return needed_pandas("repaired.table").DataFrame(
            [{"team": name, **{key: entry.get(key) for key in kept}} for name, entry in named]
        )

    def __str__(self) -> str:
        return text_of(self.document)

    def __repr__(self) -> str:
        return f"<Repaired in {str(self.path)!r}: {self.sentence}>"

    def _repr_html_(self) -> str:
        """The sentence, the table and the figure."""
        head, *body = rows(self.document)
        lines = ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in body]
        table = "".join(f"<th>{escape(cell)}</th>" for cell in head) + "".join(f"<tr>{line}</tr>" for line in lines)
        parts = [f"<h4>{escape(self.sentence)}</h4>", f"<table>{table}</table>"]
        figure = self.path / "trade-off.png"
        if figure.is_file():
            parts.append(picture(figure.read_bytes(), "Natural rate against return of every trained team", "png"))
        if self.page:
            parts.append(f"<p>Page: {escape(str(self.page))}</p>")
        return f"<div>{''.join(parts)}</div>"
