"""FairTest on board of a host's runner: it watches training and tests the team when training is over."""

from __future__ import annotations

from typing import Any

from epymarl_fairtest.host.hosts import Host
from epymarl_fairtest.host.plugin import Plugin


def fairtest_runner(base: type, host: Host) -> type:
    """A runner class like `base`, with FairTest."""

    class FairTestRunner(base):
        def __init__(self, args: Any, logger: Any) -> None:
            self._fairtest = Plugin(host, args, logger, parallel=not _has_own_environment(base))
            with self._fairtest.tapping():
                super().__init__(args=args, logger=logger)
            self._fairtest.connect(self)

        def run(self, *args: Any, **kwargs: Any) -> Any:
            test_mode = kwargs.get("test_mode", args[0] if args else False)
            if test_mode:
                return super().run(*args, **kwargs)
            with self._fairtest.watching(self):
                return super().run(*args, **kwargs)

        def close_env(self) -> None:
            super().close_env()
            self._fairtest.test(self)

    FairTestRunner.__name__ = FairTestRunner.__qualname__ = f"FairTest{base.__name__}"
    return FairTestRunner


def _has_own_environment(base: type) -> bool:
    """An episode runner steps its environment itself; a parallel one talks to workers through pipes."""
    return "parallel" not in base.__name__.lower()
