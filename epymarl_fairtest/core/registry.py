"""Registries that fill themselves: our own modules below a package, then what other packages add by entry points.

Adding an entry adds one file: a module with the agreed attribute, or a package with an entry point. An entry point
that does not work is named, with its package, and everything else works.
"""

from __future__ import annotations

import logging
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

from epymarl_fairtest.core.errors import FairTestError

Entry = TypeVar("Entry")
LATER = 100  # the `order` of an entry that says nothing about it


class Registry(Mapping[str, Entry]):
    """Name -> entry, by the entries' own `order` and then by name. Filled when it is first looked at."""

    def __init__(
        self, what: str, *, package: str, attribute: str, group: str, complaint: Callable[[Any], str | None]
    ) -> None:
        """`what` is what an entry is called, `complaint` says what a foreign object lacks to be one."""
        self._what, self._package, self._attribute, self._group = what, package, attribute, group
        self._complaint = complaint
        self._entries: dict[str, Any] | None = None
        self.problems: list[str] = []  # entry points that do not work, each with its package

    def __getitem__(self, name: str) -> Entry:
        entry: Entry = self._filled()[name]
        return entry

    def __iter__(self) -> Iterator[str]:
        return iter(self._filled())

    def __len__(self) -> int:
        return len(self._filled())

    def named(self, name: str, source: str) -> Entry:
        """The entry of that name; a FairTestError that begins with `source`, where the name was given, if none."""
        entries = self._filled()
        if name in entries:
            return self[name]
        problems = "".join(f" {problem}" for problem in self.problems if name in problem)
        raise FairTestError(
            f"{source} is not a {self._what}; known are: {', '.join(entries)}.{meant(name, entries)}{problems}"
        )

    @contextmanager
    def having(self, entry: Any) -> Iterator[None]:
        """With this entry for a while, in place of one of the same name: for tests of what is not registered yet."""
        before = self._filled()
        try:
            self._entries = _ordered({**before, entry.name: entry})
            yield
        finally:
            self._entries = before

    def own(self) -> list[Any]:
        """The entries of our own modules."""
        package = import_module(self._package)
        modules = [import_module(f"{self._package}.{info.name}") for info in pkgutil.iter_modules(package.__path__)]
        return [getattr(module, self._attribute) for module in modules if hasattr(module, self._attribute)]

    def _filled(self) -> dict[str, Any]:
        if self._entries is None:
            entries = {entry.name: entry for entry in self.own()}
            self._entries = _ordered(entries)  # for a foreign module that looks at them while it is imported
            for point in entry_points(group=self._group):
                self._add(point, entries)
            self._entries = _ordered(entries)
        return self._entries

    def _add(self, point: EntryPoint, entries: dict[str, Any]) -> None:
        try:
            entry = point.load()
        except (Exception, SystemExit) as error:  # a stranger's module may fail in any way
            return self._refuse(point, f"cannot be imported ({type(error).__name__}: {error})")
        try:
            complaint = self._complaint(entry)
        except Exception as error:  # so may what it gives us
            return self._refuse(point, f"cannot be looked at ({type(error).__name__}: {error})")
        if complaint is not None:
            return self._refuse(point, complaint)
        if not isinstance(getattr(entry, "order", LATER), int):
            return self._refuse(point, f"has the order {entry.order!r}, which is not a whole number")
        if entry.name in entries:
            return self._refuse(point, f"is called {entry.name!r}, and there is a {self._what} of that name already")
        entries[entry.name] = entry

    def _refuse(self, point: EntryPoint, why: str) -> None:
        package = point.dist.name if point.dist else "an unknown package"
        problem = f"The {self._what} {point.name!r} of the package {package!r} ({point.value}) {why}; it is left out."
        self.problems.append(problem)
        logging.getLogger("fairtest").warning(problem)


def _ordered(entries: Mapping[str, Any]) -> dict[str, Any]:
    order = sorted(entries.values(), key=lambda entry: (getattr(entry, "order", LATER), entry.name))
    return {entry.name: entry for entry in order}


def missing_parts(entry: Any, kind: type, parts: Mapping[str, Callable[[Any], bool]]) -> str | None:
    """What keeps `entry` from being a `kind` whose `parts` hold; None if nothing does."""
    if not isinstance(entry, kind):
        return f"is of type {type(entry).__name__}, not {kind.__module__}.{kind.__qualname__}"
    lacking = [name for name, holds in parts.items() if not holds(getattr(entry, name, None))]
    return f"lacks {', '.join(lacking)}" if lacking else None


def is_name(value: Any) -> bool:
    return isinstance(value, str) and value.isidentifier()


def is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def nearest(name: str, known: Any) -> str:
    """What was probably meant, and everything there is."""
    return f"{meant(name, known)} Known are: {', '.join(known)}."


def meant(name: str, known: Any) -> str:
    """The sentence that names what was probably meant; empty if nothing is close."""
    close = get_close_matches(str(name), list(known), n=1, cutoff=0.5)
    return f" Did you mean {close[0]}?" if close else ""
