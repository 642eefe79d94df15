"""docs/modules.md is what the modules say about themselves."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "tools")
    return importlib.import_module("modules_page")


@pytest.fixture(scope="module")
def page() -> str:
    """It takes a second to be made."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "tools")
        made: str = importlib.import_module("modules_page").page()
        return made


def test_the_committed_page_is_the_generated_one(page: str) -> None:
    """`python tools/modules_page.py --write` mends it."""
    assert (ROOT / "docs" / "modules.md").read_text(encoding="utf-8") == page


def test_every_module_is_on_the_page(page: str) -> None:
    package = ROOT / "epymarl_fairtest"
    headings = {package / "__init__.py", *package.glob("*/__init__.py")}
    for file in package.rglob("*.py"):
        name = file.parent.name if file in headings else file.relative_to(ROOT).as_posix()
        assert (f"\n## {name}\n" if file in headings else f"](../{name})") in page


def test_a_page_that_differs_is_noticed_and_written_anew(
    tool: ModuleType, page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tool, "page", lambda: page)
    monkeypatch.setattr(tool, "PAGE", tmp_path / "modules.md")
    for option, code in (("--check", 1), ("--write", 0), ("--check", 0)):
        monkeypatch.setattr(sys, "argv", ["modules_page.py", option])
        assert tool.main() == code
    (tmp_path / "modules.md").write_text(page.replace("## core", "## centre"), encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["modules_page.py", "--check"])
    capsys.readouterr()
    assert tool.main() == 1
    assert "-## centre\n+## core" in capsys.readouterr().out


def test_a_module_without_a_docstring_is_named(tool: ModuleType, tmp_path: Path) -> None:
    silent = tmp_path / "silent.py"
    silent.write_text("X = 1\n")
    with pytest.raises(SystemExit, match=r"silent\.py has no docstring"):
        tool.first_line(silent)
