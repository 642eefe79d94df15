"""RUN/report/index.html: one file that needs nothing else. Puts the view's words, figures and films into the templates.

The data of its script are in the page, too; `one_file` has what is common to all pages.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from epymarl_fairtest.campaign.cautions import cautions
from epymarl_fairtest.campaign.selection import worst
from epymarl_fairtest.core.files import make_folder, remove_left_over, write_atomically
from epymarl_fairtest.report import opening, wording
from epymarl_fairtest.report.drawing import AGENTS
from epymarl_fairtest.report.figures import figures_of
from epymarl_fairtest.report.one_file import STATIC, one_file
from epymarl_fairtest.report.packed import packed_table
from epymarl_fairtest.report.replays import Replays, replays_of
from epymarl_fairtest.report.sections import Section, sections_of
from epymarl_fairtest.report.view import Link, View, lineage_of, view_of
from epymarl_fairtest.store.finished import read_run
from epymarl_fairtest.tasks.contract import Task


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
    run = shlex.quote(str(view.record.path))
    scenes = [one.as_json() for one in replays.scenes]
    data = {"run": run, "colours": AGENTS, "scenes": scenes, "table": packed_table(view.table)}
    sections = sections_of(view, replays, drawn, chains)
    search = next(place for place, section in enumerate(sections) if section.name == "growth")
    sections.insert(search, Section("numbers", "Numbers", "In numbers", {"cards": opening.cards(view)}))
    return one_file(
        "page.html",
        f"FairTest: {team_of(view)}, {view.record.summary['task']}",
        script=(STATIC / "report.js").read_text(encoding="utf-8"),
        eyebrow=eyebrow(view),
        verdict=wording.verdict(view),
        cautions=cautions(view.summary),
        lead=f"{wording.theta_sentence(view)} {wording.rate_sentence(view)}",
        answers=opening.answers(view),
        commands=opening.commands(view),
        sections=sections,
        version=view.record.manifest.get("fairtest", ""),
        json=safe_json(data),
        packed=replays.packed,
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
        known = (str(manifest[key]).partition(" (")[0] for key in ("algorithm", "host") if manifest.get(key))
        parts.append(" on ".join(known))  # what a host's name adds in brackets stands at the page's end
    parts += [f"method {summary['method']}", f"preset {summary.get('preset')}", f"seed {summary['seed']}"]
    return " · ".join(parts)
