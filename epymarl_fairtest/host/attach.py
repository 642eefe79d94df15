"""Attaching to a host: sacred learns our settings, the host's runner registry learns FairTest.

Nothing here changes a run without `fairtest=True`, `runner=fairtest` or `runner=fairtest_twin`.
"""

from __future__ import annotations

import functools
import logging
from typing import Any

from epymarl_fairtest.host.console import last_words
from epymarl_fairtest.host.hosts import loaded_hosts

_reached: list[Any] = []  # the experiments whose command line came by here


def was_reached() -> bool:
    """Has a host handed its command line to sacred since `activate`? Otherwise nothing of it was tested."""
    return bool(_reached)


def activate() -> None:
    """Wrap sacred's command line once; everything else happens when the host calls it."""
    from sacred import Experiment

    original = Experiment.run_commandline
    if hasattr(original, "fairtest"):
        return

    @functools.wraps(original)
    def run_commandline(self: Any, argv: Any = None) -> Any:
        _reached.append(self)
        declare_settings(self)
        register_runners()
        with last_words():
            return original(self, argv)

    run_commandline.fairtest = True  # type: ignore[attr-defined]
    Experiment.run_commandline = run_commandline  # type: ignore[method-assign]


def declare_settings(experiment: Any) -> None:
    """Make `fairtest=...`, `fairtest_args.x=...` and new `env_args.x=...` legal on the command line.

    Sacred only accepts keys that a configuration defines or a captured function takes; FairTest checks
    the names in `fairtest_args` itself, with a better message.
    """
    from sacred.config import ConfigDict

    ours, there = {"fairtest": False, "fairtest_args": {}}, experiment.configurations
    if there and isinstance(there[0], ConfigDict):  # a configuration file may set them too
        ours |= there.pop(0)()  # one with the host's: with two of them sacred would let every unknown name pass
    experiment.add_config(ours)
    there.insert(0, there.pop())
    if experiment.logger is not None:
        experiment.logger.addFilter(_not_ours)

    @experiment.capture
    def fairtest_settings(fairtest: Any, fairtest_args: Any, env_args: Any) -> None: ...


def _not_ours(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith('Added new config entry: "fairtest_args')


def register_runners() -> None:
    """Every runner of a loaded host gains FairTest when asked for; `fairtest` is the episode runner with it.

    `fairtest_twin`, where the host plays in parallel, plays in the environment's twin instead.
    """
    from epymarl_fairtest.host.runner import fairtest_runner

    for host in loaded_hosts():
        registry = host.runners
        if "fairtest" in registry:
            continue
        if "episode" in registry:
            registry["fairtest"] = fairtest_runner(registry["episode"], host)
        parallel = registry.get("parallel")
        for name, base in list(registry.items()):
            if name != "fairtest":
                registry[name] = functools.partial(_runner, base, host)
        if parallel is not None:
            registry["fairtest_twin"] = functools.partial(_twin_runner, parallel, host)


def _twin_runner(parallel: type, host: Any, *given: Any, **named: Any) -> Any:
    from epymarl_fairtest.host.twin_runner import twin_runner

    return _runner(twin_runner(parallel, host), host, *given, **named)


def _runner(base: type, host: Any, *given: Any, **named: Any) -> Any:
    """What the host asked its registry for; with FairTest on board if the host's arguments say so."""
    from epymarl_fairtest.host.aside import PluginError
    from epymarl_fairtest.host.runner import arguments_of, fairtest_runner

    args, logger = arguments_of(given, named)
    wanted = getattr(args, "fairtest", None)
    if wanted not in (True, False, None):  # sacred reads `false` as a text, which would count as yes
        raise PluginError(f"fairtest={wanted!r} is not allowed; it must be True or False, written so.")
    if not wanted:
        if logger is not None and getattr(args, "fairtest_args", None):
            logger.console_logger.warning(
                "fairtest_args are given without fairtest=True: FairTest does not test the team."
            )
        return base(*given, **named)
    return fairtest_runner(base, host)(*given, **named)
