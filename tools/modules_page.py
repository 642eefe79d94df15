"""docs/modules.md from the modules: what each one knows, in the first line of its docstring, folder by folder.

python tools/modules_page.py [--check | --write]

Prints the page, says whether docs/modules.md is it (exit code 1 if not), or writes it.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "modules.md"
PACKAGE = "epymarl_fairtest"
BESIDE = ("benchmarks", "tools")  # nothing in the package imports them
HEAD = """\
# Modules

What every module knows, in the first line of its own docstring. Who may import whom is in
[architecture.md](architecture.md#folders). This page is generated: `python tools/modules_page.py --write`."""


def first_line(file: Path) -> str:
    """What a module says about itself; a module that says nothing stops the page."""
    said = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))
    if not said:
        raise SystemExit(f"{file} has no docstring: its first line says what the module knows")
    return said.splitlines()[0].replace("|", "\\|")


def row(file: Path, folder: Path) -> str:
    """A line of a table: a package by its folder, a module by its file."""
    is_package = file.name == "__init__.py" and file.parent != folder
    name = f"{file.parent.relative_to(folder).as_posix()}/" if is_package else file.relative_to(folder).as_posix()
    return f"| [`{name}`](../{file.relative_to(ROOT).as_posix()}) | {first_line(file)} |"


def section(title: str, folder: Path, files: list[Path]) -> str:
    """A folder: what it is, and a table of what is in it."""
    own = folder / "__init__.py"
    intro = [first_line(own), ""] if own in files else []
    order = sorted((file for file in files if file != own), key=lambda file: (file.parent, file.name))
    return "\n".join(
        [f"## {title}", "", *intro, "| module | what it knows |", "|---|---|", *(row(f, folder) for f in order)]
    )


def page() -> str:
    package = ROOT / PACKAGE
    parts = [section(PACKAGE, package, sorted(package.glob("*.py")))]
    for folder in sorted(path.parent for path in package.glob("*/__init__.py")):
        parts.append(section(folder.name, folder, sorted(folder.rglob("*.py"))))
    for name in BESIDE:
        parts.append(section(name, ROOT / name, sorted((ROOT / name).glob("*.py"))))
    return "\n\n".join([HEAD, *parts]) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--check", action="store_true", help="exit code 1 if docs/modules.md differs")
    what.add_argument("--write", action="store_true", help="write docs/modules.md")
    given = parser.parse_args()
    new = page()
    if given.check:
        now = PAGE.read_text(encoding="utf-8") if PAGE.is_file() else ""
        old, ours = now.splitlines(), new.splitlines()
        print(*difflib.unified_diff(old, ours, "docs/modules.md", "the modules", lineterm=""), sep="\n", end="")
        return int(now != new)
    if given.write:
        PAGE.write_text(new, encoding="utf-8")
    else:
        print(new, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
