"""The gallery of the site: pages of FairTest as they are, made from shipped teams and a repair whose numbers are kept.

    python tools/gallery.py   # into build/gallery; `make docs` does it, too

A run is made once (`make clean` forgets it); its page is drawn each time, so that it is today's.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
GALLERY = Path("build") / "gallery"
RUNS: dict[str, str] = {  # shipped team -> what it does
    "lbf-qmix": "Foraging: three agents gather food that some of them can load only together",
    "mpe-qmix": "Spread: three agents cover three landmarks",
    "pp-qmix": "Tag: three predators hunt a prey, and each wants to be near it",
}
BESIDE = "lbf-iql"  # the same task as the first one
SETTINGS: dict[str, Any] = {"seed": 1, "explain": 20, "progress": False}
REPAIR = ROOT / "docs" / "studies" / "repair" / "lbf-qmix.json"
STYLE = "width:100%;height:36rem;border:1px solid #8884"
FRAME = f'<iframe src="{{page}}" title="{{title}}" loading="lazy" style="{STYLE}"></iframe>'
BEGIN = """---
hide: [navigation, toc]
---

# Gallery

Pages that FairTest writes, live: scroll in them, play a failure, open any row. Each is one file that loads nothing from
elsewhere. They were made from the shipped teams when this site was built.
"""


def main() -> int:
    os.chdir(ROOT)  # the commands on the pages name runs as they are found from here
    print(page_of(GALLERY))
    return 0


def page_of(folder: Path) -> str:
    """Make everything in `folder`; the page that shows it, for a site in which `folder` lies beside it."""
    import epymarl_fairtest as fairtest
    from epymarl_fairtest.repair.words import rows
    from epymarl_fairtest.report.repair import page_of as repair_page
    from epymarl_fairtest.report.several import make_side_by_side

    shown = [BEGIN]
    for team, words in RUNS.items():
        place = run_of(folder, team)
        shown.append(entry(words, f"{fairtest.load(place).verdict}", f"{folder.name}/{team}/report/index.html"))
    both = [run_of(folder, team) for team in (next(iter(RUNS)), BESIDE)]
    side = make_side_by_side(both, folder / "side-by-side.html")
    several = "Natural rates on one scale, who comes off badly and why in each: `fairtest report RUN RUN`."
    shown.append(entry("Two teams side by side", several, f"{folder.name}/{side.name}"))
    document = json.loads(REPAIR.read_text(encoding="utf-8"))
    (folder / "repair.html").write_text(repair_page(document, rows(document)), encoding="utf-8")
    shown.append(entry("A team repaired", document["sentence"], f"{folder.name}/repair.html"))
    return "\n".join(shown)


def run_of(folder: Path, team: str) -> Path:
    """The run of a shipped team, and its page as it is drawn today."""
    import epymarl_fairtest as fairtest
    from epymarl_fairtest.report.page import make_report

    place = folder / team
    if not (place / "summary.json").is_file():
        known = (place / "manifest.json").is_file()
        fairtest.resume(place) if known else fairtest.test(f"policies/{team}", out=place, **SETTINGS)
    make_report(place)
    return place


def entry(title: str, words: str, page: str) -> str:
    return f"## {title}\n\n{words} [Open the page]({page})\n\n{FRAME.format(page=page, title=title)}\n"


if __name__ == "__main__":
    raise SystemExit(main())
