"""Code that a file names, as `module:attribute`: taken from what is installed or on PYTHONPATH, never from beside it.

A policy folder comes from anywhere, and people start programs inside it. Python looks into the current folder first.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path

from epymarl_fairtest.core.errors import FairTestError


def refuse_loose_code(source: str, name: str, *folders: Path) -> None:
    """Refuse `name` (`module:attribute`, given as `source`) if its module is in one of these or in the current folder.

    Nothing is imported. A module that cannot be found is left to whoever imports it.
    """
    module = name.partition(":")[0]
    top = module.partition(".")[0]
    if ":" not in name or module in sys.modules or top == __package__.partition(".")[0]:
        return
    for place in _places(top):
        inside = next((folder for folder in folders if place.is_relative_to(folder.resolve())), None)
        if inside is not None:
            raise FairTestError(
                f"{source} names code that lies in {str(inside)!r}, and nothing in a policy folder is ever executed."
                " If the code is yours, move it elsewhere and install it, or put its folder on PYTHONPATH."
            )
        if place == Path.cwd().resolve() and not _on_purpose(place, top):
            raise FairTestError(
                f"{source} names code in the current folder, which is not searched for code: what lies there may have"
                f" come with a policy. If it is yours, install it, or start with PYTHONPATH={str(place)!r}."
            )


def refuse_standard_library(source: str, name: str) -> None:
    """Refuse `module:attribute` of Python itself: a stranger's file could call anything of it, or open a browser."""
    if ":" in name and name.partition(":")[0].partition(".")[0] in sys.stdlib_module_names:
        raise FairTestError(f"{source} names a module of Python's own, and no environment or allocation is there.")


def _places(top: str) -> Iterator[Path]:
    """The folders that hold the module or package of this name."""
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError, AttributeError):
        return
    if spec is None:
        return
    files = list(spec.submodule_search_locations or ())
    if not files and spec.has_location and spec.origin:
        files = [spec.origin]
    for file in files:
        yield Path(file).resolve().parent


def _on_purpose(place: Path, top: str) -> bool:
    """Was this folder put on the path by somebody, not just because the program was started in it?"""
    named = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if any(entry and Path(entry).resolve() == place for entry in named):
        return True
    if "" in named[1:] or (named[:1] == [""] and len(named) > 1):  # an empty entry means the current folder
        return False
    installed = [entry for entry in sys.path[1:] if entry]
    return PathFinder.find_spec(top) is None or any(Path(entry).resolve() == place for entry in installed)
