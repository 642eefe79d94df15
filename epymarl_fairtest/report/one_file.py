"""A template and its values as one HTML file that needs nothing else: the head that all pages share.

The templates escape every text, wherever it comes from. What they take as it is ("safe") is ours: drawings, static
files, and the data of the script. A page's own policy forbids it to load or send anything.
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

HERE = Path(__file__).resolve().parent
STATIC, TEMPLATES = HERE / "static", HERE / "templates"


def one_file(template: str, title: str, *, script: str = "", **values: Any) -> str:
    """The page. `script` is the only one that may run in it."""
    kept = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    style = (STATIC / "report.css").read_text(encoding="utf-8")
    return kept.get_template(template).render(
        title=title, policy=policy_of(script), style=style, script=script, **values
    )


def policy_of(script: str) -> str:
    """Nothing from anywhere; of scripts this very one, so that not even a hole in the escaping would run another."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:;"
        " base-uri 'none'; form-action 'none'"
    )
