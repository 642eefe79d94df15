"""The sections of the page: what each template is given, or why there is nothing to show. Plain data, no HTML."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from epymarl_fairtest.campaign.steps import STEPS, Step
from epymarl_fairtest.campaign.steps.replay import replay_sentence
from epymarl_fairtest.core.judged import places_of
from epymarl_fairtest.core.ledger import ACCOUNTINGS, PURPOSES, is_charged
from epymarl_fairtest.core.numbers import amount, listed
from epymarl_fairtest.report import wording
from epymarl_fairtest.report.replays import Replay, Replays
from epymarl_fairtest.report.view import Link, View
from epymarl_fairtest.report.why import why_section
from epymarl_fairtest.report.wording import number

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
    "explain.json": "why failures happened: causes, decisions, situations",
    "explain.npz": "P(unfair) by step, and the other courses of failures",
    "natural.npz": "the same of random executions that were made after the search",
    "evidence.npz": "what the method kept: fitness values, ROC curves, coverage cells",
    "journal.jsonl": "one line per executed batch",
    "checksums.json": "checksums of these files",
}
Data = dict[str, Any]
Absent = str  # why a section is not shown
Drawn = Mapping[str, Sequence[str]]  # section -> its drawings, as SVG


@dataclass(frozen=True)
class Section:
    name: str  # its id on the page
    short: str  # in the list of sections
    title: str
    content: Data | Absent
    kind: str = ""  # the name of its template, where that is not its own

    @property
    def template(self) -> str:
        return f"sections/{self.kind or self.name}.html"

    @property
    def absent(self) -> str | None:
        return self.content if isinstance(self.content, str) else None

    @property
    def data(self) -> Data:
        return {} if isinstance(self.content, str) else self.content


def sections_of(view: View, replays: Replays, drawn: Drawn, chains: Sequence[Sequence[Link]]) -> list[Section]:
    """In the order of the page."""
    return [
        Section("index", "Fairness", "How fair are its episodes?", index_section(view, drawn)),
        Section("competence", "Competence", "Has the team learned its task?", competence_section(view)),
        Section("who", "Who", "Who comes off badly?", who_section(view, drawn)),
        Section("why", "Why", "Why did they happen?", why_section(view.record, {one.scene.id for one in replays.all})),
        *curve_sections(view.record.summary, drawn),
        Section("replays", "Replays", "Failures to watch", replays_section(view, replays)),
        Section("growth", "Search", "What the search found", growth_section(view, drawn)),
        *filter(None, (step_section(step, view.record.summary) for step in STEPS.values())),
        Section("rounds", "Rounds", "What the rounds chose from", rounds_section(view, drawn)),
        Section("predictor", "Predictor", "How good is the predictor?", predictor_section(view, drawn)),
        Section("coverage", "Coverage", "Where failures happen", coverage_section(view, drawn)),
        Section(
            "lineage", "Descent", "How the worst failures came about", lineage_section(view, replays, drawn, chains)
        ),
        Section("table", "Table", "All failures", table_section(view)),
        Section("run", "Run", "The run", run_section(view)),
    ]


def curve_sections(summary: Mapping[str, Any], drawn: Drawn) -> list[Section]:
    """Fairness during training, where it was measured; a team that came without its curve misses nothing."""
    if not summary.get("curve"):
        return []
    from epymarl_fairtest.report.curve import curve_content  # with matplotlib, which the other sections do without

    content = curve_content(summary["curve"], drawn)
    return [] if content is None else [Section("curve", "Training", "How fair was it while it learned?", content)]


def figure(drawing: str, caption: str, *key: tuple[str, str]) -> Data:
    """`key` is what the marks of the drawing mean: (kind of mark, words)."""
    return {"drawing": drawing, "caption": caption, "key": key}


# --- how fair, and who --------------------------------------------------------------------------------


def index_section(view: View, drawn: Drawn) -> Data | Absent:
    if "index" in view.missing:
        return view.missing["index"]
    text = [
        "The index is 1 where all agents receive the same, and falls the more unevenly they share. Random executions"
        " show the team as it is, from starts that nobody chose."
    ]
    undefined = int(view.record.summary.get("undefined", 0))
    if undefined:
        text.append(
            f"In {wording.several(undefined, 'episode')} no agent received anything: they have no index, and are"
            " neither fair nor unfair."
        )
    text.append(wording.depth_sentence(view))
    both = view.histogram is not None and view.histogram.random is not None and view.searched
    key = [("pale", "random executions"), ("outline", "all executions")] if both else []
    return {"text": text, "figure": figure(drawn["index"][0], wording.index_caption(view), *key)}


def who_section(view: View, drawn: Drawn) -> Data | Absent:
    if "who" in view.missing:
        return view.missing["who"]
    marks = ["pale", "solid"][-len(view.groups) :]
    captions = [wording.worst_caption(view), wording.share_caption(view)]
    return {
        "text": [wording.pattern_sentence(view), wording.starved_sentence(view)],
        "key": [(mark, group.name) for mark, group in zip(marks, view.groups, strict=True)],
        "figures": [figure(*one) for one in zip(drawn["who"], captions, strict=True)],
        "table": groups_table(view),
    }


def groups_table(view: View) -> Data:
    rows = [
        (
            group.name,
            [
                number(group.episodes),
                *map(wording.mean_amount, group.received.tolist(), group.received_error.tolist()),
                wording.mean_share(group.ranked[0], group.ranked_error[0]),
                wording.mean_share(group.ranked[-1], group.ranked_error[-1]),
            ],
        )
        for group in view.groups
    ]
    return {
        "name": "What agents receive",
        "caption": "What each agent received on average, and the mean share of the worst and the best off (± half of a"
        " 95% interval)",
        "columns": ["episodes", *map(wording.agent, view.places), "worst off", "best off"],
        "rows": rows,
    }


def competence_section(view: View) -> Data | Absent:
    competence = view.summary.get("competence")
    if not competence:
        return "this run compared the team with no random one"
    random = competence["random_team"]
    teams = [("this team", competence["executions"], competence["received"], competence["return"])]
    if random:
        count = random["starts"]
        teams.append(("this team, same starts", count, random["team_received"], random["team_return"]))
        teams.append(("a random team", count, random["received"], random["return"]))
    rows = [(name, [number(count), *map(amount, received), amount(sum_)]) for name, count, received, sum_ in teams]
    table = {
        "name": "Returns",
        "caption": "What each agent and the team received on average, in random executions",
        "columns": ["episodes", *map(wording.agent, view.places), "team"],
        "rows": rows,
    }
    return {"text": wording.competence_sentences(view), "table": table}


# --- replays ------------------------------------------------------------------------------------------


def replays_section(view: View, replays: Replays) -> Data | Absent:
    if "replays" in view.missing:
        return view.missing["replays"]
    marks = (
        "Rings mark agents that end nearer to the least that anyone received than to the most. A crossed circle, and"
        " the wedge below the slider, mark where an episode was changed; the dotted trail before it is its parent's."
    )
    explained = (
        "Where a failure was explained, the strip below the slider is the darker the likelier it is to end unfair from"
        " that step on, and a diamond marks the decision that would have changed it. What would have happened then"
        " plays beside it, on the same clock."
    )
    unplaced = "Nothing is known of places here: the players draw what each agent has received over time."
    players = [player(one, place) for place, one in enumerate(replays.scenes)]
    return {
        "text": [
            marks,
            explained if any(one.why for one in replays.all) else "",
            view.legend if replays.placed else unplaced,
        ],
        "worst": players[: len(replays.worst)],
        "representative": players[len(replays.worst) : len(replays.all)],
        "smallest": [small_player(one) for one in players[len(replays.all) :]],
    }


def player(one: Replay, place: int) -> Data:
    """`place` is that of its scene in the data of the page."""
    scene, final = one.scene, one.scene.received[-1].tolist()
    judged = [(n, final[n]) for n in places_of(scene.judged, len(final))]
    lowest = min(value for _, value in judged)
    least = listed([wording.agent(n) for n, value in judged if value == lowest])
    name = f"Failure {scene.id} · index {scene.index:.3f}"
    received = ", ".join(f"{wording.agent(n)} receives {amount(value)}" for n, value in enumerate(final))
    return {
        "id": scene.id,
        "anchor": f"failure-{scene.id}",
        "place": place,
        "name": name,
        "label": f"{name}: {received}",
        "how": f"{scene.happened} · start seed {scene.root_seed} · {least} worst off ({amount(lowest)})",
        "received": f"received so far{' (0 is best)' if scene.costs else ''}; ring: worse off",
        "film": one.film and data_uri("image/gif", one.film),
        "still": data_uri("image/png", one.still),
        "why": one.why.card() if one.why else None,
        "itself": f"As it was · {scene.verdict}, index {scene.index:.3f}",
    }


def small_player(one: Data) -> Data:
    """The card of a smallest example, which is no failure of the search itself."""
    name = one["name"].replace("Failure", "Smallest example of failure")
    how = one["how"].rpartition(" · ")[2]
    return one | {
        "name": name,
        "label": one["label"].replace(one["name"], name),
        "how": how,
        "anchor": f"smallest-{one['id']}",
    }


def data_uri(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


# --- the search ---------------------------------------------------------------------------------------


def growth_section(view: View, drawn: Drawn) -> Data:
    absent = view.missing.get("growth")
    return {
        "cost": f"This cost {wording.budget_sentence(view)}",
        "account": account_table(view.record.summary),
        "outcome": f"{wording.suffix_sentence(view)}{replay_sentence(view.record.summary)}",
        "figure": None if absent else figure(drawn["growth"][0], wording.growth_caption(view)),
        "absent": absent,
    }


def account_table(summary: Mapping[str, Any]) -> Data | None:
    ledger = summary.get("ledger")
    if not ledger:
        return None

    def charged(purpose: str, accounting: str) -> str:
        return "yes" if purpose in PURPOSES and is_charged(purpose, accounting) else "–"

    return {
        "name": "Account",
        "caption": "What was executed and why, and which accounting charges it",
        "columns": ["episodes", "steps", *ACCOUNTINGS],
        "rows": [
            (
                purpose.replace("_", " "),
                [number(spent["episodes"]), number(spent["steps"]), *(charged(purpose, name) for name in ACCOUNTINGS)],
            )
            for purpose, spent in ledger.items()
        ],
    }


def step_section(step: Step, summary: Mapping[str, Any]) -> Section | None:
    """What a step after the search says, if it has a title and anything to say."""
    if not step.title:
        return None
    try:
        text = [str(paragraph) for paragraph in step.section(summary)]
    except Exception as error:  # a stranger's step, which may never have seen a run like this
        why = f"the step {step.name} cannot describe this run ({type(error).__name__}: {error})"
        return Section(f"step-{step.name}", step.title, step.title, why)
    return Section(f"step-{step.name}", step.title, step.title, {"text": text}, "step") if any(text) else None


def rounds_section(view: View, drawn: Drawn) -> Data | Absent:
    if "rounds" in view.missing:
        return view.missing["rounds"]
    text = [
        "Each round executes random candidates and takes the most promising: small f2 (the predictor finds the episode"
        " unfair) and small f3 (the team is undecided). On the Pareto front are those that no other one beats in either"
        " without being worse in the other."
    ]
    if view.rounds_in_all > len(view.rounds):
        text.append(f"The first {len(view.rounds)} of {view.rounds_in_all} rounds are shown.")
    captions = map(wording.round_caption, view.rounds)
    return {
        "text": text,
        "key": [("candidate", "candidate"), ("taken", "taken into the population"), ("front", "Pareto front")],
        "figures": [figure(*one) for one in zip(drawn["rounds"], captions, strict=True)],
    }


def predictor_section(view: View, drawn: Drawn) -> Data | Absent:
    if "predictor" in view.missing:
        return view.missing["predictor"]
    text = [wording.predictor_sentence(view)]
    if "roc" in view.missing:
        return {"text": text, "figure": None, "absent": view.missing["roc"]}
    text.append(
        "Abstract states alone tell how far unfairness can be seen in what the team decides. With fairness features the"
        " forest also sees what each agent received, from which the index follows: that it is right then says little."
    )
    return {"text": text, "figure": figure(drawn["predictor"][0], wording.roc_caption(view))}


def coverage_section(view: View, drawn: Drawn) -> Data | Absent:
    if view.coverage is None:
        return view.missing["coverage"]
    captions = [wording.coverage_label(view.coverage, place) for place in range(len(view.coverage.maps))]
    return {
        "text": [wording.coverage_sentence(view.coverage)],
        "figures": [figure(*one) for one in zip(drawn["coverage"], captions, strict=True)],
    }


def lineage_section(view: View, replays: Replays, drawn: Drawn, chains: Sequence[Sequence[Link]]) -> Data | Absent:
    if "lineage" in view.missing or not chains:
        return view.missing.get("lineage", "the failures are not among the executions on record")
    shown = {one.scene.id for one in replays.all}
    content: Data = {
        "chains": [
            {
                "id": chain[-1].id,
                "shown": chain[-1].id in shown,
                "links": [
                    {
                        "kind": "unfair" if link.index <= view.theta else "fair",
                        "words": wording.link_words(link),
                        "index": "–" if math.isnan(link.index) else f"{link.index:.3f}",
                    }
                    for link in chain
                ],
            }
            for chain in chains
        ]
    }
    if "lineage" not in drawn:
        straight = "The most unfair failures come straight from their starts: nothing was changed."
        return content | {"text": [straight], "figure": None}
    others = [chain[-1].id for chain in chains] != [one.scene.id for one in replays.worst]
    changed = "The most unfair failures come straight from their starts. The next ones were changed:"
    caption = wording.lineage_caption(chains, view.theta)
    return content | {"text": [changed] if others else [], "figure": figure(drawn["lineage"][0], caption)}


# --- tables -------------------------------------------------------------------------------------------


def table_section(view: View) -> Data | Absent:
    if "table" in view.missing:
        return view.missing["table"]
    table = view.table
    columns = list(COLUMNS.items())
    columns[-1:-1] = [(f"received{n}", f"agent {place + 1}") for n, place in enumerate(view.places)]
    return {
        "text": ["Agents' columns hold what each received; the least is bold. A click on a number opens the failure."],
        "operators": sorted(set(table["operator"].tolist())),
        "columns": [
            {"name": name, "title": title, "text": name in ("operator", "status"), "sorted": name == "index"}
            for name, title in columns
        ],
        "rows": [[_cell(table, name, row) for name, _ in columns] for row in range(min(FIRST_ROWS, table["rows"]))],
    }


def _cell(table: Mapping[str, Any], name: str, row: int) -> str:
    if name.startswith("received"):
        return amount(table["received"][row][int(name[8:])])
    return str(table[name][row])


def run_section(view: View) -> Data:
    record = view.record
    manifest, summary = record.manifest, record.summary
    facts = [
        (name, manifest[key])
        for name, key in (("environment", "key"), ("algorithm", "algorithm"), ("trained with", "host"),
                          ("team", "policy"), ("digest of its weights", "policy_digest"),
                          ("training episodes kept", "training_pool"))
        if manifest.get(key) is not None
    ]  # fmt: skip
    versions = {"fairtest": manifest.get("fairtest"), "python": manifest.get("python"), **manifest.get("versions", {})}
    return {
        "command": str(manifest.get("command", "")),
        "time": f"{_cpu_seconds(summary):.1f} CPU seconds, {number(summary['executed_steps'])} environment steps.",
        "phases": phases(summary),
        "facts": [*facts, ("engine", summary.get("engine")), ("time by the clock", _clock(summary))],
        "settings": [(name, x if isinstance(x, str) else json.dumps(x)) for name, x in record.settings.items()],
        "versions": list(versions.items()),
        "files": files_of(record.path),
    }


def files_of(path: Path) -> list[Data]:
    """Of the files that the run folder holds."""
    return [
        {"name": name, "content": content, "size": _size((path / name).stat().st_size)}
        for name, content in FILES.items()
        if (path / name).is_file()
    ]


def phases(summary: Mapping[str, Any]) -> list[Data]:
    """The longest first; what would be shown as nothing is part of everything else, at the end."""
    known = sorted((summary.get("phases") or {}).items(), key=lambda item: -item[1])
    spent = {name: seconds for name, seconds in known if seconds >= 0.05}
    rest = _cpu_seconds(summary) - sum(spent.values())
    if rest >= 0.05:
        spent["everything else"] = rest
    most = max(spent.values(), default=0) or 1
    return [
        {"name": name, "width": f"{100 * seconds / most:.1f}", "seconds": f"{seconds:.1f}"}
        for name, seconds in spent.items()
    ]


def _clock(summary: Mapping[str, Any]) -> str | None:
    seconds = summary.get("wall_seconds")
    return None if seconds is None else f"{float(seconds):.1f} s"


def _cpu_seconds(summary: Mapping[str, Any]) -> float:
    return float(summary.get("cpu_seconds") or 0)


def _size(size: int) -> str:
    return f"{size / 1e6:.1f}\u00a0MB" if size >= 1e5 else f"{size / 1e3:.1f}\u00a0kB"
