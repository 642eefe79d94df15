"""The documentation as a site: puts the pages together for MkDocs and builds them. A warning is an error.

python tools/site.py [--source-only]

README is the first page. A link that leaves docs/ leads to a copy: to a page where it is one, else to the file's text.
The reference of the Python interface is made from its docstrings, the gallery from runs of shipped teams.
"""

from __future__ import annotations

import argparse
import inspect
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path, PurePosixPath

import gallery  # beside this file

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
DOCS, SOURCE = ROOT / "docs", ROOT / "build" / "site-source"
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "CONTRIBUTING.md", "CHANGELOG.md": "CHANGELOG.md"}
LINK = re.compile(r"(\]\()([^)\s#:]+)(#[^)\s]*)?(\))")
INTERFACE = ("test", "resume", "load", "compare", "repair", "Result", "Replay", "Why", "Comparison", "Repaired")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source-only", action="store_true", help="put the pages together and build nothing")
    args = parser.parse_args()
    os.chdir(ROOT)  # the gallery's commands name runs as they are found from here
    shutil.rmtree(SOURCE, ignore_errors=True)
    SOURCE.mkdir(parents=True)
    for path in sorted(DOCS.rglob("*")):
        if path.is_file() and path.suffix != ".md":
            copied(path, place_of(path.relative_to(ROOT).as_posix()))
    for path in [*sorted(DOCS.rglob("*.md")), *(ROOT / name for name in PAGES)]:
        page = path.relative_to(ROOT).as_posix()
        written(place_of(page), rewritten(path.read_text(encoding="utf-8"), page))
    written("reference.md", reference())
    written("decisions.md", decisions())
    written("gallery.md", gallery.page_of(gallery.GALLERY))
    shutil.copytree(gallery.GALLERY, SOURCE / gallery.GALLERY.name)
    if args.source_only:
        return 0
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}  # an advertisement
    return subprocess.run([sys.executable, "-m", "mkdocs", "build", "--strict"], cwd=ROOT, env=quiet).returncode


def place_of(path: str) -> str:
    """Where a file of the repository is on the site."""
    if path in PAGES:
        return PAGES[path]
    return path.removeprefix("docs/") if path.startswith("docs/") else f"source/{path}.txt"


def rewritten(text: str, page: str) -> str:
    """With links as they are on the site; what they lead to outside of docs/ is copied."""

    def link(found: re.Match[str]) -> str:
        target = os.path.normpath(PurePosixPath(page).parent / found[2])
        if not (ROOT / target).exists():
            return found[0]  # MkDocs will say so
        if target not in PAGES and not target.startswith("docs/"):
            copied(ROOT / target, place_of(target))
        place = os.path.relpath(place_of(target), PurePosixPath(place_of(page)).parent)
        return f"{found[1]}{place}{found[3] or ''}{found[4]}"

    return LINK.sub(link, text)


def reference() -> str:
    """The Python interface, from signatures and docstrings."""
    import epymarl_fairtest as fairtest

    parts = [
        "# The Python interface\n\n`import epymarl_fairtest as fairtest`. [python.md](python.md) shows how it is used."
    ]
    for name in INTERFACE:
        thing = getattr(fairtest, name)
        parts.append(described(f"## fairtest.{name}", thing, f"fairtest.{name}"))
        if inspect.isclass(thing):
            members = [
                (own, part) for own, part in vars(thing).items() if not own.startswith("_") and inspect.getdoc(part)
            ]
            parts += [described(f"### {own}", part, own) for own, part in members]
    return "\n\n".join(parts) + "\n"


def described(heading: str, thing: object, name: str) -> str:
    code = getattr(thing, "__func__", thing)
    signature = f"```python\n{name}{inspect.signature(code)}\n```\n\n" if inspect.isfunction(code) else ""
    body = re.sub(r"^    (\**\w+): ", r"- `\1`: ", inspect.getdoc(thing) or "", flags=re.MULTILINE)
    body = re.sub(r"^(Args|Raises):$", r"\1:\n", body, flags=re.MULTILINE)
    return f"{heading}\n\n{signature}{body}"


def decisions() -> str:
    """A list of the decision records, by their titles."""
    lines = [
        f"- [{path.read_text(encoding='utf-8').splitlines()[0].lstrip('# ')}](decisions/{path.name})"
        for path in sorted((DOCS / "decisions").glob("*.md"))
    ]
    return "# Decisions\n\nWhat was weighed, what was measured, and what was chosen.\n\n" + "\n".join(lines) + "\n"


def copied(path: Path, place: str) -> None:
    (SOURCE / place).parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, SOURCE / place)


def written(place: str, text: str) -> None:
    (SOURCE / place).parent.mkdir(parents=True, exist_ok=True)
    (SOURCE / place).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main())
