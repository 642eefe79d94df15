"""A repair in words: the sentence at its head, and its table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from epymarl_fairtest.core.numbers import percent, with_interval

Data = Mapping[str, Any]
HEAD = (
    "team",
    "seed",
    "weight",
    "natural rate",
    "return",
    "worst off",
    "best off",
    "undefined",
    "search",
    "old failures",
    "newly unfair",
)


def share(value: float | None) -> str:
    return "-" if value is None else percent(value)


def rate_of(entry: Data) -> str:
    return "-" if entry["rate"] is None else with_interval(entry["rate"], entry["low"], entry["high"])


def mean(entries: Sequence[Data], name: str) -> float | None:
    values = [entry[name] for entry in entries if entry[name] is not None]
    return sum(values) / len(values) if values else None


def sentence(document: Data) -> str:
    """The verdict with its numbers: never a gain without its control."""
    repaired, control = document["repaired"], document["control"]
    reached = sum(entry["verdict"] == document["verdict"] for entry in repaired)
    change, beside = mean(repaired, "return_change"), mean(control, "return_change")
    worst = mean(repaired, "worst_off_change")
    return (
        f"{document['verdict'].capitalize()} ({reached} of {len(repaired)} seeds): natural rate"
        f" {share(document['before']['rate'])} before, {share(mean(repaired, 'rate'))} after,"
        f" {share(mean(control, 'rate'))} with as much ordinary training; return {change or 0:+.1%}"
        f" (control {beside or 0:+.1%}), worst-off agent {worst or 0:+.1%}."
    )


def rows(document: Data) -> list[tuple[str, ...]]:
    """The table, head first: the team before, then control and repaired, seed by seed; the checkpoint last."""
    found = [HEAD, _row("before", document["before"])]
    for control, repaired in zip(document["control"], document["repaired"], strict=True):
        found += [_row("control", control), _row(repaired["verdict"], repaired)]
    if document["checkpoint"]:
        found.append(_row(f"checkpoint {document['checkpoint']['step']:,}", document["checkpoint"]))
    return found


def _row(name: str, entry: Data) -> tuple[str, ...]:
    search, again = entry.get("search") or {}, entry.get("regression") or {}
    return (
        name,
        str(entry.get("seed", "")),
        f"{entry['weight']:g}" if "weight" in entry else "",
        rate_of(entry),
        f"{entry['return']:.3f}" + (f" ({entry['return_change']:+.1%})" if "return_change" in entry else ""),
        f"{entry['worst_off']:.3f}" + (f" ({entry['worst_off_change']:+.1%})" if "worst_off_change" in entry else ""),
        f"{entry['best_off']:.3f}",
        share(entry["undefined"]),
        f"{search['distinct_failures']} of {search['failures']}" if search else "",
        f"{again['unfair']} of {again['failures']} unfair" if again else "",
        _newly_unfair(entry),
    )


def _newly_unfair(entry: Data) -> str:
    if "newly_unfair" not in entry:
        return ""
    beyond = entry.get("newly_unfair_beyond_control")
    return share(entry["newly_unfair"]) + (f" ({beyond:+.2%} on the control)" if beyond is not None else "")


def text_of(document: Data) -> str:
    """For a terminal."""
    table = rows(document)
    widths = [max(len(row[column]) for row in table) for column in range(len(HEAD))]
    lines = ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
    notes = [*document["notes"], *(f"{one['arm']} was stopped: {one['why']}" for one in document["stopped"])]
    return "\n".join([document["sentence"], "", *lines, "", document["welfare"]["why"], *notes])
