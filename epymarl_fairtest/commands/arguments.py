"""What the commands share: arguments that are settings, a team that is loaded, a run that is started."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
import textwrap
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epymarl_fairtest.core.shipped import presets

if TYPE_CHECKING:
    from epymarl_fairtest.campaign.observers import Observer
    from epymarl_fairtest.settings import Settings

NAMED = {name: f"--{name}" for name in ("method", "budget", "seed", "preset", "accounting", "out", "quantile")}
NAMED["calibration_episodes"] = "--episodes"
"""Settings with an option of their own -> how it is typed."""


def as_typed(message: str, args: Namespace) -> str:
    """With a setting named as on this command line: fairtest_args.NAME is how a host calls it."""
    if "set" not in args:
        return message
    own = {name: option for name, option in NAMED.items() if name in args}
    return re.sub(r"fairtest_args\.(\w+)", lambda match: own.get(match[1], f"--set {match[1]}"), message)


def add_team_arguments(parser: ArgumentParser, required: bool = True) -> None:
    parser.add_argument("--policy", type=Path, required=required, metavar="DIR", help="agent.th and policy.yaml")
    add_setting_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def add_setting_arguments(parser: Any) -> None:
    parser.add_argument("--seed", type=int, help="root seed")
    parser.add_argument("--preset", help=", ".join(presets()))
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="any other setting (docs/settings.md)"
    )


def add_search_arguments(parser: Any, command: Any = None) -> None:
    """To a group of a `command`, or to the command itself; its help lists the methods and the settings."""
    parser.add_argument("--method", metavar="NAME", help="strategy that chooses the tests (see below)")
    parser.add_argument("--budget", type=int, help="episodes it may spend")
    (command or parser).appendix = known_methods


def known_methods() -> str:
    """Every method and its own settings, those of other packages too, and all other settings: a help's last part."""
    from epymarl_fairtest.settings import FIELDS, fields_of
    from epymarl_fairtest.strategies import STRATEGIES

    wrap = textwrap.TextWrapper(shutil.get_terminal_size().columns - 2, subsequent_indent=20 * " ")
    lines = ["", "methods, and the settings that only they have (--set options.NAME=VALUE):"]
    for name, strategy in STRATEGIES.items():
        lines += wrap.wrap(f"  {name:<17} {strategy.doc or strategy.label}")
        own = ", ".join(fields_of(strategy.options))
        lines += wrap.wrap(f"{'':<20}{own}") if own else []
    lines += ["", "settings of every method (--set NAME=VALUE):"]
    for name, field in FIELDS.items():
        if name not in NAMED and name != "options":
            lines += wrap.wrap(f"  {name:<17} {field.metadata['doc']}")
    return "\n".join([*lines, ""])


def given_settings(args: Namespace) -> dict[str, Any]:
    """What was given on this command line, by the names of settings."""
    from epymarl_fairtest.settings import parse_assignments

    return parse_assignments(args.set, {name: getattr(args, name, None) for name in NAMED})


def settings_for_team(args: Namespace, **unless_given: Any) -> Settings:
    """The settings of a command that tests the team in --policy; the team's allocation unless another is given."""
    from epymarl_fairtest.api.starting import settings_for

    return settings_for(args.policy, {**unless_given, **given_settings(args)})


def observers(settings: Settings) -> list[Observer]:
    """A bar on the terminal, and the page unless it is switched off."""
    from epymarl_fairtest.campaign.observers import Progress, beside_the_bar
    from epymarl_fairtest.report.observer import Page

    progress: Observer = Progress(settings, terminal=sys.stderr.isatty(), say=_say)
    return [progress, Page(beside_the_bar(warn))] if settings.report else [progress]


def command_line() -> str:
    return shlex.join(["fairtest", *sys.argv[1:]])


def _say(message: str) -> None:
    print(message, file=sys.stderr)


def warn(message: str) -> None:
    print(f"fairtest: {message}", file=sys.stderr)
