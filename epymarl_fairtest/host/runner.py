"""FairTest on board of a host's runner: it watches training and tests the team when training is over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import wraps
from typing import Any

from epymarl_fairtest.host.aside import PluginError
from epymarl_fairtest.host.hosts import Host
from epymarl_fairtest.host.plugin import Plugin


def fairtest_runner(base: type, host: Host) -> type:
    """A runner class like `base`, with FairTest."""

    class FairTestRunner(base):
        def __init__(self, *given: Any, **named: Any) -> None:
            args, logger = arguments_of(given, named)
            if args is None or logger is None:
                raise PluginError(
                    f"FairTest does not know the runner {base.__name__!r}: it is made without the host's arguments or"
                    " its logger. Choose runner=episode, or train without fairtest=True."
                )
            self._fairtest = Plugin(host, args, logger, parallel=not _has_own_environment(base))
            if hasattr(base, "episodes") and self._fairtest.settings.allocation != "env":
                raise PluginError(
                    f"The runner {args.runner!r} plays what the environment pays, and fairtest_args.allocation="
                    f"{self._fairtest.settings.allocation!r} judges others. Choose runner=parallel."
                )
            with self._fairtest.tapping():
                super().__init__(*given, **named)
            self._fairtest.connect(self)

        @wraps(getattr(base, "setup", object))  # whose parameters a host may look at
        def setup(self, *args: Any, **kwargs: Any) -> Any:
            made = super().setup(*args, **kwargs)
            self._fairtest.meet(self)
            return made

        def run(self, *args: Any, **kwargs: Any) -> Any:
            test_mode = kwargs.get("test_mode", args[0] if args else False)
            self._fairtest.curve.before(self, test=bool(test_mode))
            if test_mode:
                return super().run(*args, **kwargs)
            if hasattr(base, "episodes"):  # a runner of ours keeps them as they were played
                played = super().run(*args, **kwargs)
                self._fairtest.recording.take(self.episodes)
            else:
                with self._fairtest.recording.watching(self):
                    played = super().run(*args, **kwargs)
            self._fairtest.pay(played)
            return played

        def close_env(self) -> None:
            super().close_env()
            self._fairtest.test(self)

    FairTestRunner.__name__ = FairTestRunner.__qualname__ = f"FairTest{base.__name__}"
    return FairTestRunner


def arguments_of(given: Sequence[Any], named: Mapping[str, Any]) -> tuple[Any, Any]:
    """The host's arguments and its logger among those of a runner, which forks order and name differently."""
    values = (*given, *named.values())
    args = next((value for value in values if hasattr(value, "env_args")), None)
    return args, next((value for value in values if hasattr(value, "console_logger")), None)


def _has_own_environment(base: type) -> bool:
    """An episode runner steps its environment itself; a parallel one talks to workers through pipes."""
    return "parallel" not in base.__name__.lower()
