"""Wall and CPU seconds, and how they divide among named phases."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Clock:
    """Seconds since it was made, and the CPU seconds of each phase: the innermost one counts."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        self.phases: dict[str, float] = {}
        self._open: list[str] = []
        self._since = self._cpu

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        self._book()
        self._open.append(name)
        try:
            yield
        finally:
            self._book()
            self._open.pop()

    def _book(self) -> None:
        """Give the time since the last change to the phase that is open."""
        now = time.process_time()
        if self._open:
            self.phases[self._open[-1]] = self.phases.get(self._open[-1], 0.0) + now - self._since
        self._since = now

    def spent(self) -> dict[str, Any]:
        return {
            "wall_seconds": round(time.perf_counter() - self._wall, 3),
            "cpu_seconds": round(time.process_time() - self._cpu, 3),
            "phases": {name: round(seconds, 3) for name, seconds in self.phases.items()},
        }
