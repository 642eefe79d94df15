"""A finished run as a notebook wants it: numbers, a DataFrame of failures, arrays, a figure, replays and reasons."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.api.explaining import explain_run
from epymarl_fairtest.api.replaying import replay
from epymarl_fairtest.api.shown import Replay, Why, film, picture
from epymarl_fairtest.campaign.cautions import cautions, worst_off_sentence
from epymarl_fairtest.campaign.steps.explain import words
from epymarl_fairtest.campaign.summary import summary_table
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.statistics import Rate
from epymarl_fairtest.report import wording
from epymarl_fairtest.report.layout import task_of
from epymarl_fairtest.report.libraries import needed_for
from epymarl_fairtest.report.scenes import scene_of
from epymarl_fairtest.report.view import View, view_of
from epymarl_fairtest.store.checksum import verify
from epymarl_fairtest.store.failures import load_failures
from epymarl_fairtest.store.finished import FinishedRun
from epymarl_fairtest.store.read import read_arrays
from epymarl_fairtest.team.contract import Team

if TYPE_CHECKING:
    import pandas

    from epymarl_fairtest.report.plots import Plot

STEPPED = {"states": 1, "actions": 0, "rewards": 0, "q": 0}  # arrays with a row per step, and how many rows more


@dataclass(frozen=True, repr=False, eq=False)
class Result:
    """What a test found. Rows of `failures` are numbered from 0, the most unfair first; methods take that number."""

    record: FinishedRun
    team: Team | None = None  # where the run was made here

    # --- numbers ---

    @property
    def path(self) -> Path:
        """The run folder."""
        return self.record.path

    @property
    def page(self) -> Path | None:
        """The run's page, if it was drawn: one HTML file for any browser."""
        page = self.path / "report" / "index.html"
        return page if page.is_file() else None

    @property
    def summary(self) -> dict[str, Any]:
        """Everything that was counted (summary.json)."""
        return self.record.summary

    @property
    def natural_rate(self) -> Rate | None:
        """How often the team is unfair when nobody searches: `estimate`, `low` and `high` (95%), `executions`."""
        return self.record.natural_rate()

    @property
    def verdict(self) -> str:
        """In a sentence."""
        return wording.verdict(self._view)

    @property
    def worst_off(self) -> str:
        """Who comes off badly, if anybody is shown to."""
        return worst_off_sentence(self.summary["worst_off"])

    # --- tables and arrays ---

    @cached_property
    def failures(self) -> pandas.DataFrame:
        """One row per unfair episode, the most unfair first: failures.csv. Needs pandas."""
        pandas = needed_pandas("result.failures")
        path = self.path / "failures.csv"
        verify(path)
        table = pandas.read_csv(path)
        received = self.record.failures.get("received")
        if received is not None and "received_1" not in table:  # a run of an earlier version
            for agent, column in enumerate(received.T, 1):
                table[f"received_{agent}"] = column
        return table.sort_values("index", kind="stable", ignore_index=True)

    @cached_property
    def executions(self) -> pandas.DataFrame:
        """One row per judged episode, fair or not, in the order of execution. Needs pandas."""
        pandas = needed_pandas("result.executions")
        columns = dict(self.record.judged)
        received = columns.pop("received")
        each = {f"received_{agent}": column for agent, column in enumerate(received.T, 1)}
        return pandas.DataFrame({**columns, **each})

    def arrays(self, row: int | None = None, *, id: int | None = None) -> dict[str, NDArray[Any]]:
        """The columns of failures.npz, rows as in `failures`; of one failure, its steps without the padding."""
        columns = read_arrays(self._failures_file())
        if row is None and id is None:
            order = self._order
            return {name: column[order] for name, column in columns.items()}
        at = self._place(row, id, "arrays")
        length = int(columns["length"][at])
        return {
            name: column[at][: length + STEPPED[name]] if name in STEPPED else column[at]
            for name, column in columns.items()
        }

    # --- pictures and reasons ---

    def plot_index(self) -> Plot:
        """How the fairness index is distributed: in random executions, and in all that were judged."""
        with needed_for("plot_index()"):
            from epymarl_fairtest.report.plots import index_plot
        return index_plot(self._view)

    def replay(self, row: int = 0, *, id: int | None = None, policy: str | Path | None = None) -> Replay:
        """Execute a failure again in the real environment, and draw it.

        Args:
            row: of `failures`; 0 is the most unfair one.
            id: the column `id` instead.
            policy: the folder of the team, if it has moved, or of another one to put at the same start.
        """
        number = int(self._ids[self._place(row, id, "replay")])
        given = None if policy is None else Path(policy)
        done = replay(self.record, [number], _warn, policy=given, team=None if given else self.team)
        return Replay(done.scene(0), done.outcomes[0])

    def why(self, row: int | None = None, *, id: int | None = None) -> Why:
        """Why failures happened, taken together; with a row or an id, why that one did (executed now if it must be)."""
        explained = self.record.explanation
        if row is None and id is None:
            if not explained or not explained["explained"]:
                raise FairTestError(
                    f"The run {str(self.path)!r} was not explained (explain=0, or it found no failure). Ask for one"
                    f" failure, why(0), or explain it with: fairtest explain {self.path}"
                )
            first = explained["situations"][0] if explained["situations"] else None
            rows = words.summary_rows({**explained, "situation": first})
            return Why(tuple(f"{name.strip()}: {text}" for name, text in rows), explained)
        number = int(self._ids[self._place(row, id, "why")])
        entry = next((one for one in (explained or {}).get("failures", ()) if one["id"] == number), None)
        if entry is None:
            outcome, _ = explain_run(self.record, [number], _warn, team=self.team)
            (entry,) = outcome.documents["explain.json"]["failures"]
        return Why(tuple(words.paragraphs(entry)), entry)

    # --- as it is shown ---

    def __str__(self) -> str:
        return summary_table(self.summary, self.path)

    def __repr__(self) -> str:
        return f"<Result of {str(self.path)!r}: {self.verdict}>"

    def _repr_html_(self) -> str:
        """The verdict, what to be careful about, the figure, and the film of the most unfair failure."""
        with needed_for("A result in a notebook"):
            from epymarl_fairtest.report.plots import index_plot
        explanation = self.record.explanation
        lines = [
            self.worst_off,
            words.first_sentence(explanation) if explanation and explanation["explained"] else "",
            *(f"Take care: {caution}" for caution in cautions(self.summary)),
            f"Page: {self.page}" if self.page else "",
        ]
        parts = [f"<h4>{escape(self.verdict)}</h4>", *(f"<p>{escape(line)}</p>" for line in lines if line)]
        if self._view.histogram is not None:
            parts.append(picture(index_plot(self._view)._repr_png_(), "How the fairness index is distributed", "png"))
        if len(self._ids):
            episodes = load_failures(self._failures_file())
            task = self.team.task if self.team else task_of(self.path, self.record.manifest, episodes)
            scene = scene_of(
                task, episodes, int(self._order[0]), self.summary["index"], self.record.theta, self.record.agents
            )
            caption = f"The most unfair failure, id {scene.id}, index {scene.index:.3f}"
            parts.append(f"<p>{picture(film(scene), caption)}<br>{escape(caption)}</p>")
        return f"<div>{''.join(parts)}</div>"

    # --- within ---

    @cached_property
    def _view(self) -> View:
        return view_of(self.record)

    @property
    def _ids(self) -> NDArray[np.int64]:
        ids: NDArray[np.int64] = self.record.failures.get("id", np.empty(0, np.int64))
        return ids

    @cached_property
    def _order(self) -> NDArray[np.int64]:
        """Rows of the file, the most unfair first."""
        return np.argsort(self.record.failures.get("index", np.empty(0)), kind="stable")

    def _failures_file(self) -> Path:
        path = self.path / "failures.npz"
        if not path.is_file():
            raise FairTestError(self.record.missing["failures.npz"])
        return path

    def _place(self, row: Any, number: Any, what: str) -> int:
        """Where this failure is in the file."""
        given, count = row if number is None else number, len(self._ids)
        self._failures_file()
        if isinstance(given, bool) or not isinstance(given, int | np.integer):
            raise FairTestError(f"{what}({given!r}): give the row of a failure, a whole number, or its id=.")
        if not count:
            raise FairTestError(f"{what}(): the run {str(self.path)!r} found no failures.")
        if number is None:
            if not 0 <= given < count:
                raise FairTestError(f"{what}({given}): result.failures has rows 0 to {count - 1}.")
            return int(self._order[given])
        found = np.flatnonzero(self._ids == given)
        if not len(found):
            raise FairTestError(
                f"{what}(id={given}): no failure of {str(self.path)!r} has that id; the column id of result.failures"
                " lists them."
            )
        return int(found[0])


def needed_pandas(what: str) -> Any:
    try:
        import pandas
    except ModuleNotFoundError as error:
        raise FairTestError(
            f"{what} needs pandas, which is not installed here: pip install 'epymarl-fairtest[notebook]' (or pandas)."
            + (" result.arrays() gives the same without it." if what.startswith("result.") else "")
        ) from error
    return pandas


def _warn(message: str) -> None:
    import warnings

    warnings.warn(message, stacklevel=3)
