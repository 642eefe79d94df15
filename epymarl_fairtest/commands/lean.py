"""scikit-learn without what no run uses: pandas, and tables in scipy's docstrings. Only in a process of our own."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any

WHAT, UNUSED = "sklearn", "pandas"


@contextmanager
def lean_imports() -> Iterator[None]:
    """Whoever asks for scikit-learn first gets it in half the time; it works as it always does.

    scikit-learn imports pandas if it is there, and then does not use it; and scipy.stats, which parses some 500
    docstrings in order to add a table to each. In a training, or in somebody's notebook, nothing is left out.
    """
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path) if fullname == WHAT else None
        if spec is None or spec.origin is None or not isinstance(spec.loader, SourceFileLoader):
            return None
        spec.loader = _Loader(fullname, spec.origin)
        return spec


class _Loader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        with _hidden(UNUSED), _plain_docstrings():
            super().exec_module(module)


@contextmanager
def _hidden(name: str) -> Iterator[None]:
    """As if a package were not installed, unless somebody has imported it already."""
    if name in sys.modules:
        yield
        return
    modules: dict[str, Any] = sys.modules
    modules[name] = None
    try:
        yield
    finally:
        del modules[name]


@contextmanager
def _plain_docstrings() -> Iterator[None]:
    """scipy's docstrings stay as they are written; nothing happens in a version that does not add to them."""
    try:
        module: Any = import_module("scipy._lib._array_api")
        adding = module.xp_capabilities
    except (ImportError, AttributeError):
        yield
        return
    module.xp_capabilities = lambda *_, **__: lambda function: function
    try:
        yield
    finally:
        module.xp_capabilities = adding
