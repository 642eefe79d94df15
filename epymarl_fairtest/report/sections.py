"""The sections of the page: what the view holds as HTML, or why it is not there. Every text passes `escape`."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from epymarl_fairtest.campaign.steps.replay import replay_sentence
from epymarl_fairtest.core.ledger import ACCOUNTINGS, PURPOSES, is_charged
from epymarl_fairtest.report import wording
from epymarl_fairtest.report.replays import Replay, Replays
from epymarl_fairtest.report.view import MOST_ROWS, Link, View
from epymarl_fairtest.report.wording import number, percent

FIRST_ROWS = 25  # of the table, for readers without scripts
COLUMNS = {
    "id": "failure",
    "index": "index",
    "operator": "made by",
    "start_step": "at step",
    "length": "steps",
    "root_seed": "start seed",
    "parent": "parent",
    "status": "replay",
}
FILES = {
    "summary.json": "the numbers of this page",
    "manifest.json": "versions, settings, seed, team and command",
    "failures.csv": "one line per unfair execution",
    "failures.npz": "the same with states, actions, rewards and Q-values",
    "executions.npz": "one row per judged episode",
    "evidence.npz": "what the method kept: fitness values, ROC curves, coverage cells",
    "journal.jsonl": "one line per executed batch",
    "checksums.json": "checksums of these files",
}
Drawn = dict[str, list[str]]


@dataclass(frozen=True)
class Section:
    name: str
    short: str  # in the list of sections
    title: str
    body: str

    @property
    def html(self) -> str:
        heading = f'<h2 id="{self.name}-title">{escape(self.title)}</h2>'
        return f'<section id="{self.name}" aria-labelledby="{self.name}-title">{heading}{self.body}</section>'


def sections_of(view: View, replays: Replays, drawn: Drawn, chains: Sequence[Sequence[Link]]) -> list[Section]:
    """In the order of the page."""
    return [
        Section("index", "Fairness", "How fair are its episodes?", index_section(view, drawn)),
        Section("who", "Who", "Who comes off badly?", who_section(view, drawn)),
        Section("gallery", "Replays", "Failures to watch", gallery_section(view, replays)),
        Section("growth", "Search", "What the search found", growth_section(view, drawn)),
        Section("rounds", "Rounds", "What the rounds chose from", rounds_section(view, drawn)),
        Section("predictor", "Predictor", "How good is the predictor?", predictor_section(view, drawn)),
        Section("coverage", "Coverage", "Where failures happen", coverage_section(view, drawn)),
        Section(
            "lineage", "Descent", "How the worst failures came about", lineage_section(view, replays, drawn, chains)
        ),
        Section("table", "Table", "All failures", table_section(view)),
        Section("run", "Run", "The run", run_section(view)),
    ]


def data_uri(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def paragraph(told: str) -> str:
    return f"<p>{escape(told)}</p>"


def absent(why: str) -> str:
    return f'<p class="absent">Not shown: {escape(why)}.</p>'


def key_of(*items: tuple[str, str]) -> str:
    """What the marks of a drawing mean: (kind of mark, words)."""
    return (
        '<ul class="key">' + "".join(f'<li><i class="{kind}"></i>{escape(told)}</li>' for kind, told in items) + "</ul>"
    )


def beside(drawing: str, caption: str, text: str, key: str = "") -> str:
    """The drawing with its caption on the left, text on the right; below each other on a narrow screen."""
    figure = f"<figure>{key}{drawing}<figcaption>{escape(caption)}</figcaption></figure>"
    return f'<div class="beside">{figure}<div class="text">{text}</div></div>'


def panels(drawings: Sequence[str], captions: Sequence[str]) -> str:
    """Drawings side by side, each with its caption."""
    figures = "".join(
        f"<figure>{drawing}<figcaption>{escape(caption)}</figcaption></figure>"
        for drawing, caption in zip(drawings, captions, strict=True)
    )
    return f'<div class="panels">{figures}</div>'


def index_section(view: View, drawn: Drawn) -> str:
    if "index" in view.missing:
        return absent(view.missing["index"])
    told = paragraph(
        "The index is 1 where all agents receive the same, and falls the more unevenly they share. Ordinary episodes"
        " are random executions: the team as it is, from starts that nobody chose."
    )
    undefined = int(view.record.summary.get("undefined", 0))
    if undefined:
        told += paragraph(
            f"In {wording.several(undefined, 'episode')} no agent received anything: they have no index, and are"
            " neither fair nor unfair."
        )
    told += paragraph(wording.depth_sentence(view))
    both = view.histogram is not None and view.histogram.ordinary is not None and not view.record.random.all()
    key = key_of(("pale", "ordinary episodes"), ("outline", "all executions")) if both else ""
    return beside(drawn["index"][0], wording.index_caption(view), told, key)


def who_section(view: View, drawn: Drawn) -> str:
    if "who" in view.missing:
        return absent(view.missing["who"])
    marks = [("pale", view.groups[0].name)] if len(view.groups) > 1 else []
    key = key_of(*marks, ("solid", view.groups[-1].name))
    captions = [wording.worst_caption(view), wording.share_caption(view)]
    told = paragraph(wording.pattern_sentence(view)) + paragraph(wording.starved_sentence(view))
    return told + key + panels(drawn["who"], captions) + groups_table(view)


def groups_table(view: View) -> str:
    agents = "".join(f"<th scope=col>{wording.agent(n)}</th>" for n in range(view.agents))
    rows = "".join(
        f"<tr><th scope=row>{escape(group.name)}</th><td>{number(group.episodes)}</td>"
        + "".join(f"<td>{wording.amount(x)}</td>" for x in group.received.tolist())
        + f"<td>{percent(float(group.ranked[0]))}</td><td>{percent(float(group.ranked[-1]))}</td></tr>"
        for group in view.groups
    )
    head = (
        f"<tr><td></td><th scope=col>episodes</th>{agents}<th scope=col>worst off</th><th scope=col>best off</th></tr>"
    )
    caption = "<caption>What each agent received on average, and the mean share of the worst and the best off</caption>"
    return scrolling("What agents receive", f"<table>{caption}<thead>{head}</thead><tbody>{rows}</tbody></table>")


def scrolling(name: str, content: str) -> str:
    """Wide tables scroll in a frame of their own, by keyboard too."""
    return f'<div class="scroll" role="region" aria-label="{escape(name)}" tabindex="0">{content}</div>'


def gallery_section(view: View, replays: Replays) -> str:
    if "gallery" in view.missing:
        return absent(view.missing["gallery"])
    told = paragraph(
        "Rings mark agents that end nearer to the least that anyone received than to the most. A crossed circle, and"
        " the wedge below the slider, mark where an episode was changed; the dotted trail before it is its parent's."
    )
    if replays.placed:
        told += paragraph(view.legend)
    else:
        told += paragraph("Nothing is known of places here: the players draw what each agent has received over time.")
    told += '<p class="needs-script">Keys in a selected player: space plays, arrows step, Home and End jump.</p>'
    first = len(replays.worst)
    return (
        f"{told}<h3>Most unfair, each from another start</h3>{players(replays.worst, 0)}"
        + (f"<h3>Representative</h3>{paragraph(REPRESENTATIVE)}{players(replays.representative, first)}"
           if replays.representative else "")
    )  # fmt: skip


REPRESENTATIVE = "Medoids of the failures' trajectories, the largest group first: each stands for failures like it."


def players(shown: Sequence[Replay], first: int) -> str:
    return f'<div class="gallery">{"".join(player(one, first + n) for n, one in enumerate(shown))}</div>'


def player(one: Replay, place: int) -> str:
    scene, final = one.scene, one.scene.received[-1].tolist()
    least = wording.listed([wording.agent(n) for n, value in enumerate(final) if value == min(final)])
    how = f"{scene.happened} · start seed {scene.root_seed} · {least} worst off ({wording.amount(min(final))})"
    told = ", ".join(f"{wording.agent(n)} receives {wording.amount(value)}" for n, value in enumerate(final))
    name = f"Failure {scene.id} · index {scene.index:.3f}"
    label = escape(f"{name}: {told}")
    cost = " (0 is best)" if scene.received.max() <= 0 > scene.received.min() else ""
    size = f'width="480" height="346" alt="{label}"'
    film = "" if one.film is None else f'<img class="gif" {size} src="{data_uri("image/gif", one.film)}">'
    return (
        f'<article class="player" id="failure-{scene.id}" data-scene="{place}" role="group" aria-label="{label}">'
        f'<h4>{name}</h4><p class="how">{escape(how)}</p>'
        '<div class="screen needs-script"><canvas aria-hidden="true"></canvas>'
        f'<div class="bars"><p class="paid">received so far{cost}</p></div></div>'
        '<div class="controls needs-script"></div>'
        f'{film}<img class="still" {size} src="{data_uri("image/png", one.still)}"></article>'
    )


def growth_section(view: View, drawn: Drawn) -> str:
    told = paragraph(f"This cost {wording.budget_sentence(view)}") + ledger_table(view.record.summary)
    told += paragraph(f"{wording.suffix_sentence(view)}{replay_sentence(view.record.summary)}")
    if "growth" in view.missing:
        return told + absent(view.missing["growth"])
    return beside(drawn["growth"][0], wording.growth_caption(view), told)


def ledger_table(summary: dict[str, Any]) -> str:
    ledger = summary.get("ledger") or {}
    rows = "".join(
        f"<tr><th scope=row>{escape(purpose)}</th><td>{number(spent['episodes'])}</td><td>{number(spent['steps'])}</td>"
        + "".join(
            f"<td>{'yes' if purpose in PURPOSES and is_charged(purpose, name) else '–'}</td>" for name in ACCOUNTINGS
        )
        + "</tr>"
        for purpose, spent in ledger.items()
    )
    head = "<td></td>" + "".join(f"<th scope=col>{title}</th>" for title in ("episodes", "steps", *ACCOUNTINGS))
    caption = "<caption>What was executed and why, and which accounting charges it</caption>"
    return (
        scrolling("Account", f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>")
        if rows
        else ""
    )


def rounds_section(view: View, drawn: Drawn) -> str:
    if "rounds" in view.missing:
        return absent(view.missing["rounds"])
    key = key_of(("candidate", "candidate"), ("taken", "taken into the population"), ("front", "Pareto front"))
    told = paragraph(
        "Each round executes random candidates and takes the most promising: small f2 (the predictor finds the episode"
        " unfair) and small f3 (the team is undecided). On the Pareto front are those that no other one beats in either"
        " without being worse in the other."
    )
    if view.rounds_in_all > len(view.rounds):
        told += paragraph(f"The first {len(view.rounds)} of {view.rounds_in_all} rounds are shown.")
    return told + key + panels(drawn["rounds"], [wording.round_caption(one) for one in view.rounds])


def predictor_section(view: View, drawn: Drawn) -> str:
    if "predictor" in view.missing:
        return absent(view.missing["predictor"])
    told = paragraph(wording.predictor_sentence(view))
    if "roc" in view.missing:
        return told + absent(view.missing["roc"])
    told += paragraph(
        "Abstract states alone tell how far unfairness can be seen in what the team decides; with fairness features the"
        " forest also sees what each agent received."
    )
    return beside(drawn["predictor"][0], wording.roc_caption(view), told)


def coverage_section(view: View, drawn: Drawn) -> str:
    if "coverage" in view.missing:
        return absent(view.missing["coverage"])
    assert view.coverage is not None
    captions = [wording.coverage_label(view.coverage, place) for place in range(len(view.coverage.maps))]
    return paragraph(wording.coverage_sentence(view.coverage)) + panels(drawn["coverage"], captions)


def lineage_section(view: View, replays: Replays, drawn: Drawn, chains: Sequence[Sequence[Link]]) -> str:
    if "lineage" in view.missing or not chains:
        return absent(view.missing.get("lineage", "the failures are not among the executions on record"))
    shown = {one.scene.id for one in replays.all}

    def title(n: int, failure: int) -> str:
        told = f"{n}. Failure {failure}"
        return f'<a href="#failure-{failure}">{told}</a>' if failure in shown else told

    items = "".join(
        f"<li>{title(n, chain[-1].id)}<ol>"
        + "".join(
            f'<li class="{"unfair" if link.index <= view.theta else "fair"}">{escape(wording.link_words(link))}'
            f" <b>{'–' if math.isnan(link.index) else f'{link.index:.3f}'}</b></li>"
            for link in chain
        )
        + "</ol></li>"
        for n, chain in enumerate(chains, 1)
    )
    listed = f'<ol class="descent">{items}</ol>'
    if "lineage" not in drawn:
        return paragraph("The most unfair failures come straight from their starts: nothing was changed.") + listed
    told = ""
    if [chain[-1].id for chain in chains] != [one.scene.id for one in replays.worst]:
        told = paragraph("The most unfair failures come straight from their starts. The next ones were changed:")
    return beside(drawn["lineage"][0], wording.lineage_caption(chains, view.theta), told + listed)


# --- tables -------------------------------------------------------------------------------------------


def table_section(view: View) -> str:
    if "table" in view.missing:
        return absent(view.missing["table"])
    table = view.table
    columns = list(COLUMNS.items())
    columns[-1:-1] = [(f"received{n}", f"agent {n + 1}") for n in range(len(table["received"][0]))]
    head = "".join(
        f'<th scope="col" data-column="{name}"{" class=text" if name in ("operator", "status") else ""}'
        f'{" aria-sort=ascending" if name == "index" else ""}><button type="button">{escape(title)}</button></th>'
        for name, title in columns
    )
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(_cell(table, name, row))}</td>" for name, _ in columns) + "</tr>"
        for row in range(min(FIRST_ROWS, table["rows"]))
    )
    operators = "".join(f"<option>{escape(name)}</option>" for name in sorted(set(table["operator"])))
    cut = ""
    if table["rows"] < table["total"]:
        rest = f"{number(MOST_ROWS)} of {number(table['total'])}"
        cut = f" These are the {rest} failures with the lowest index; failures.csv has all."
    return (
        paragraph(f"Agents' columns hold what each received; the least is bold.{cut}")
        + f"""<form class="filters" id="filters"><label>Made by<select name="operator">
<option value="">any</option>{operators}</select></label>
<label>Text<input type="search" name="text" placeholder="id, seed, replay …"></label>
<label>Index from<input type="number" name="low" min="0" max="1" step="any"></label>
<label>to<input type="number" name="high" min="0" max="1" step="any"></label>
<button type="reset">Reset</button></form>"""
        + scrolling(
            "Table of failures",
            f'<table id="failures"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>',
        )
        + '<div class="pager"><button type="button" id="before">Previous</button><button type="button" id="after">Next'
        '</button><span id="count" role="status"></span></div>'
    )


def _cell(table: dict[str, Any], name: str, row: int) -> str:
    if name.startswith("received"):
        return wording.amount(table["received"][row][int(name[8:])])
    return str(table[name][row])


def run_section(view: View) -> str:
    record = view.record
    manifest, summary = record.manifest, record.summary
    command = str(manifest.get("command", ""))
    facts = [
        (name, manifest[key])
        for name, key in (("environment", "key"), ("algorithm", "algorithm"), ("trained with", "host"),
                          ("team", "policy"), ("digest of its weights", "policy_digest"),
                          ("training episodes kept", "training_pool"))
        if manifest.get(key) is not None
    ]  # fmt: skip
    facts += [("engine", summary.get("engine")), ("wall seconds", summary.get("wall_seconds"))]
    settings = [(name, x if isinstance(x, str) else json.dumps(x)) for name, x in record.settings.items()]
    versions = {"fairtest": manifest.get("fairtest"), "python": manifest.get("python"), **manifest.get("versions", {})}
    files = "".join(
        f'<tr><th scope=row><a href="../{name}">{name}</a></th><td>{escape(told)}</td>'
        f"<td class=size>{_size(size)}</td></tr>"
        for name, told, size in files_of(record.path)
    )
    return (
        "<h3>To repeat it</h3>"
        + f"<pre><code>{escape(command)}</code></pre>"
        + paragraph("The same seed gives the same failures. A run folder is never overwritten: choose another one.")
        + "<h3>CPU time</h3>"
        + phases(summary)
        + "<h3>Team and environment</h3>"
        + plain_table(facts)
        + f"<details><summary>Settings</summary>{plain_table(settings)}</details>"
        + f"<details><summary>Versions</summary>{plain_table(versions.items())}</details>"
        + f'<h3>Files</h3><div class="scroll"><table class="plain"><tbody>{files}</tbody></table></div>'
    )


def files_of(path: Path) -> list[tuple[str, str, int]]:
    """Name, content and size of the files that lie in the run folder."""
    return [(name, told, (path / name).stat().st_size) for name, told in FILES.items() if (path / name).is_file()]


def plain_table(rows: Any) -> str:
    body = "".join(
        f"<tr><th scope=row>{escape(str(name))}</th><td>{escape(str(told))}</td></tr>" for name, told in rows
    )
    return f'<div class="scroll"><table class="plain"><tbody>{body}</tbody></table></div>'


def phases(summary: dict[str, Any]) -> str:
    spent, total = dict(summary.get("phases") or {}), float(summary.get("cpu_seconds") or 0)
    rest = total - sum(spent.values())
    if rest > 0:
        spent["everything else"] = rest
    most = max(spent.values(), default=0) or 1
    rows = "".join(
        f'<span>{escape(name)}</span><i style="width:{100 * seconds / most:.1f}%"></i><b>{seconds:.1f} s</b>'
        for name, seconds in sorted(spent.items(), key=lambda item: -item[1])
    )
    told = paragraph(f"{total:.1f} CPU seconds, {number(summary['executed_steps'])} environment steps.")
    return f'{told}<div class="phases">{rows}</div>'


def _size(size: int) -> str:
    return f"{size / 1e6:.1f}\u00a0MB" if size >= 1e5 else f"{size / 1e3:.1f}\u00a0kB"
