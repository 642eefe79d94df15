"""RUN/report/index.html: one file that needs nothing else. Puts the view's words, figures and films into the templates.

The templates escape every text, wherever it comes from. What they take as it is ("safe") is ours: drawings, static
files, and the data of the script. The page's own policy forbids it to load or send anything.
"""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from epymarl_fairtest.campaign.cautions import amount, cautions
from epymarl_fairtest.campaign.coverage import ALL
from epymarl_fairtest.campaign.selection import worst
from epymarl_fairtest.campaign.steps.explain.words import first_sentence
from epymarl_fairtest.core.files import make_folder, remove_left_over, write_atomically
from epymarl_fairtest.core.statistics import Rate
from epymarl_fairtest.report import wording
from epymarl_fairtest.report.drawing import AGENTS
from epymarl_fairtest.report.figures import figures_of
from epymarl_fairtest.report.replays import Replays, replays_of
from epymarl_fairtest.report.sections import Data, sections_of
from epymarl_fairtest.report.view import Link, View, lineage_of, view_of
from epymarl_fairtest.report.wording import number, percent
from epymarl_fairtest.store.finished import read_run
from epymarl_fairtest.tasks.contract import Task

HERE = Path(__file__).resolve().parent
STATIC, TEMPLATES = HERE / "static", HERE / "templates"


def make_report(run_path: Path, task: Task | None = None) -> Path:
    """Write the page of a finished run; `task`, where it is at hand, spares making it again."""
    record = read_run(run_path)
    view, replays = view_of(record), replays_of(record, task)
    content = html_of(view, replays).encode()
    path = run_path / "report" / "index.html"
    make_folder(path.parent)
    remove_left_over(path.parent)
    write_atomically(path, lambda file: file.write(content))
    return path


def html_of(view: View, replays: Replays) -> str:
    chains = chains_of(view, replays)
    drawn = figures_of(view, chains)
    style, script = ((STATIC / name).read_text(encoding="utf-8") for name in ("report.css", "report.js"))
    data = {"colours": AGENTS, "scenes": [one.as_json() for one in replays.scenes], "table": view.table}
    templates = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    return templates.get_template("page.html").render(
        policy=policy_of(script),
        title=f"FairTest: {team_of(view)}, {view.record.summary['task']}",
        style=style,
        eyebrow=eyebrow(view),
        verdict=wording.verdict(view),
        cautions=cautions(view.summary),
        lead=f"{wording.theta_sentence(view)} {wording.rate_sentence(view)}",
        why=first_sentence(explained) if (explained := view.record.explanation) and explained["explained"] else "",
        cards=cards(view),
        sections=sections_of(view, replays, drawn, chains),
        version=view.record.manifest.get("fairtest", ""),
        json=safe_json(data),
        script=script,
    )


def chains_of(view: View, replays: Replays) -> list[list[Link]]:
    """The descent of the most unfair failures; of the most unfair changed ones where none of those was changed."""
    executions, failures = view.record.executions, view.record.failures
    if not failures:
        return []
    chains = [lineage_of(executions, one.scene.id) for one in replays.worst]
    born = np.flatnonzero((failures["parent"] >= 0) & (failures["status"] != "unstable"))
    if all(len(chain) < 2 for chain in chains) and len(born):
        rows = born[worst(failures["index"][born], len(chains), failures["root_seed"][born])]
        chains = [lineage_of(executions, failure) for failure in failures["id"][rows].tolist()]
    return [chain for chain in chains if chain]


def policy_of(script: str) -> str:
    """Nothing from anywhere; of scripts this very one, so that not even a hole in the escaping would run another."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:;"
        " base-uri 'none'; form-action 'none'"
    )


def safe_json(value: Any) -> str:
    """JSON that cannot end the element it stands in."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


# --- first screen -------------------------------------------------------------------------------------


def team_of(view: View) -> str:
    manifest = view.record.manifest
    return PurePath(str(manifest.get("policy", ""))).name or str(manifest.get("algorithm", "team"))


def eyebrow(view: View) -> str:
    summary, manifest = view.record.summary, view.record.manifest
    parts = [team_of(view), f"task {summary['task']}"]
    if manifest.get("algorithm"):
        parts.append(" on ".join(str(manifest[key]) for key in ("algorithm", "host") if manifest.get(key)))
    parts += [f"method {summary['method']}", f"preset {summary.get('preset')}", f"seed {summary['seed']}"]
    return " · ".join(parts)


def cards(view: View) -> list[Data]:
    summary = view.record.summary
    failures, judged = int(summary["failures"]), int(summary.get("evaluated", 0))
    distance = view.record.manifest.get("distinct_distance")
    among = f"of {number(judged)} judged episodes, most of them chosen by the search: no rate"
    if not view.searched:
        among = f"of {number(judged)} random executions"
    where = f"on {view.index_name}"
    if view.quantile is not None:
        where += f", {wording.quantile_words(view)}"
    others = (
        ("Different failures", number(summary["distinct_failures"]),
         _how_different(distance, summary.get("distinct_failures_wide"))),
        ("Starts", number(wording.starts(summary)), "from which failures descend"),
        ("Unfair executions", number(failures), among if judged else "no episode was judged"),
        ("Coverage", percent(float(summary["coverage"])),
         f"of the position grid of {summary.get('coverage_of') or ALL}, by failures"),
        ("Threshold θ", wording.threshold(view.theta), where),
        ("Budget", number(summary["charged_strict"]),
         f"episodes, all that was executed; {number(summary['charged_paper'])} as the paper counts"),
    )  # fmt: skip
    return [
        rate_card(view.rate),
        *(card(*one) for one in others[:3]),
        *return_card(view),
        *(card(*one) for one in others[3:]),
    ]


def return_card(view: View) -> list[Data]:
    """What the team received, where it is on record."""
    competence = view.summary.get("competence")
    if not competence:
        return []
    random, note = competence["random_team"], "of the team, in random executions"
    if random:
        note = f"a random team {amount(random['return'])}, from the same starts"
    return [card("Return", amount(competence["return"]), note)]


def card(name: str, value: str, note: str, *, main: bool = False, interval: Data | None = None) -> Data:
    return {"name": name, "value": value, "note": note, "main": main, "interval": interval}


def _how_different(distance: float | None, wide: int | None) -> str:
    text = "paths that differ" if distance is None else f"paths further than {distance:g} apart"
    return text if wide is None else f"{text}; {number(wide)} at three times the distance"


def rate_card(rate: Rate | None) -> Data:
    name = "Natural rate"
    if rate is None:
        return card(name, "unknown", "no random executions on record", main=True)
    value, low, high = wording.estimate(rate)
    note = f"95\u00a0% interval {low} to {high}, {number(rate.executions)} random executions"
    return card(name, value if rate.count else f"at most {high}", note, main=True, interval=interval_of(rate))


def interval_of(rate: Rate) -> Data:
    """The rate on a line from 0 to a round number above its interval, in percent of the line."""
    end = next((e * 10.0**m for m in range(-6, 1) for e in (1, 2, 5) if e * 10.0**m >= 1.25 * rate.high), 1.0)
    low, high, value = (100 * min(part / end, 1.0) for part in (rate.low, rate.high, rate.estimate))
    return {"end": percent(end), "left": f"{low:.2f}", "width": f"{high - low:.2f}", "value": f"{value:.2f}"}
