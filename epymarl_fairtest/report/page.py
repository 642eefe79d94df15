"""RUN/report/index.html: one file that needs nothing else. Puts the view's words, figures and films into the template.

Every text passes `escape`, wherever it comes from; the page's own policy forbids it to load or send anything.
"""

from __future__ import annotations

import base64
import hashlib
import json
from html import escape
from pathlib import Path, PurePath
from string import Template
from typing import Any

import numpy as np

from epymarl_fairtest.core.files import cannot_write, write_atomically
from epymarl_fairtest.report import wording
from epymarl_fairtest.report.drawing import AGENTS
from epymarl_fairtest.report.figures import figures_of
from epymarl_fairtest.report.replays import Replays, replays_of
from epymarl_fairtest.report.sections import sections_of
from epymarl_fairtest.report.selection import worst
from epymarl_fairtest.report.view import Link, View, lineage_of, view_of
from epymarl_fairtest.report.wording import number, percent
from epymarl_fairtest.store.finished import read_run
from epymarl_fairtest.tasks.contract import Task

STATIC = Path(__file__).resolve().parent / "static"


def make_report(run_path: Path, task: Task | None = None) -> Path:
    """Write the page of a finished run; `task`, where it is at hand, spares making it again."""
    record = read_run(run_path)
    view, replays = view_of(record), replays_of(record, task)
    content = html_of(view, replays).encode()
    path = run_path / "report" / "index.html"
    try:
        path.parent.mkdir(exist_ok=True)
    except OSError as error:
        raise cannot_write(path.parent, error) from error
    write_atomically(path, lambda file: file.write(content))
    return path


def html_of(view: View, replays: Replays) -> str:
    chains = chains_of(view, replays)
    drawn = figures_of(view, chains)
    script = (STATIC / "report.js").read_text()
    data = {"colours": AGENTS, "scenes": [one.as_json() for one in replays.all], "table": view.table}
    sections = sections_of(view, replays, drawn, chains)
    return Template((STATIC / "template.html").read_text()).substitute(
        policy=policy_of(script),
        title=escape(f"FairTest: {team_of(view)}, {view.record.summary['task']}"),
        style=(STATIC / "report.css").read_text(),
        eyebrow=eyebrow(view),
        verdict=escape(wording.verdict(view)),
        lead=escape(f"{wording.theta_sentence(view)} {wording.rate_sentence(view)}"),
        cards=cards(view),
        toc="".join(f'<li><a href="#{one.name}">{escape(one.short)}</a></li>' for one in sections),
        sections="\n".join(one.html for one in sections),
        version=escape(str(view.record.manifest.get("fairtest", ""))),
        data=safe_json(data),
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
    told = [team_of(view), f"task {summary['task']}"]
    if manifest.get("algorithm"):
        told.append(" on ".join(str(manifest[key]) for key in ("algorithm", "host") if manifest.get(key)))
    told += [f"method {summary['method']}", f"preset {summary.get('preset')}", f"seed {summary['seed']}"]
    return f"<b>FairTest</b> {escape(' · '.join(told))}"


def cards(view: View) -> str:
    summary, rate = view.record.summary, view.rate
    failures, judged = int(summary["failures"]), int(summary.get("evaluated", 0))
    distance = view.record.manifest.get("distinct_distance")
    if rate is None:
        natural = _card("Natural failure rate", "unknown", "no random executions on record", main=True)
    else:
        value, low, high = wording.estimate(rate)
        note = f"95\u00a0% interval {low} to {high}, {number(rate.executions)} random executions"
        value = value if rate.count else f"at most {high}"
        natural = _card("Natural failure rate", value, note, main=True, picture=_interval(view))
    share = f"{percent(failures / judged)} of {number(judged)} judged episodes" if judged else "no episode was judged"
    where = f"on {view.index_name}"
    if view.quantile is not None:
        where += f", {wording.quantile_words(view)}"
    return natural + "".join(
        _card(*card)
        for card in (
            ("Unfair executions", number(failures), share),
            ("Distinct failures", number(summary["distinct_failures"]),
             "paths that differ" if distance is None else f"paths further than {distance:g} apart"),
            ("Starts", number(summary["roots"]), "initial states from which a failure descends"),
            ("Coverage", percent(float(summary["coverage"])), "of the position grid, by failures"),
            ("Threshold θ", wording.threshold(view.theta), where),
            ("Budget, strict", number(summary["charged_strict"]), "episodes: all that was executed"),
            ("Budget, as the paper counts", number(summary["charged_paper"]),
             "episodes: without candidates and predictor data"),
        )
    )  # fmt: skip


def _card(name: str, value: str, note: str, *, main: bool = False, picture: str = "") -> str:
    kind = "card main" if main else "card"
    return (
        f'<div class="{kind}"><dt>{escape(name)}</dt><dd class="big">{escape(value)}</dd>'
        f'{picture}<dd class="note">{escape(note)}</dd></div>'
    )


def _interval(view: View) -> str:
    """The rate on a line from 0 to a round number above its interval."""
    assert view.rate is not None
    end = next((e * 10.0**m for m in range(-6, 1) for e in (1, 2, 5) if e * 10.0**m >= 1.25 * view.rate.high), 1.0)
    low, high, value = (100 * min(part / end, 1.0) for part in (view.rate.low, view.rate.high, view.rate.estimate))
    return (
        f'<dd class="interval" role="img" aria-label="on a line from 0 to {percent(end)}">'
        f'<i style="left:{low:.2f}%;width:{high - low:.2f}%"></i><b style="left:{value:.2f}%"></b></dd>'
    )
