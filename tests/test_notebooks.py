"""The example notebooks: kept without outputs, and every cell runs, in order, wherever it is opened."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).resolve().parent.parent / "docs" / "notebooks").glob("*.ipynb"))
every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def cells(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return found


def code(path: Path) -> list[str]:
    return ["".join(cell["source"]) for cell in cells(path) if cell["cell_type"] == "code"]


def shown(source: str, names: dict[str, Any]) -> Any:
    """Execute a cell; the value of its last line, as a notebook would show it."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    return None if last is None else eval(compile(ast.Expression(last.value), "cell", "eval"), names)


def test_there_is_one_for_each_question() -> None:
    assert {path.stem for path in NOTEBOOKS} == {"how-often", "where", "why", "what-now"}


@every_notebook
def test_a_notebook_is_kept_without_outputs(path: Path) -> None:
    for cell in cells(path):
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None
    assert len({cell["id"] for cell in cells(path)}) == len(cells(path))
    assert "".join(cells(path)[0]["source"]).startswith("# ")


@pytest.mark.docs
@every_notebook
def test_every_cell_runs(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    rich = 0
    for source in code(path):
        value = shown(source, names)
        for name in ("_repr_html_", "_repr_png_"):
            rich += bool(getattr(value, name, str)())
    assert rich, "something is shown"
    if path.stem == "what-now":
        assert "exit code" in capsys.readouterr().out
        assert (tmp_path / "test_fairness_regression.py").is_file()
