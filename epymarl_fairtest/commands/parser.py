"""The parser of the `fairtest` command: one screen of help, our own words for wrong numbers, a file per command."""

from __future__ import annotations

import argparse
import pkgutil
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from epymarl_fairtest.core.version import __version__

HELP = """\
Does a trained MARL team share its rewards fairly?
  fairtest install CHECKOUT            then add fairtest=True to a training
  fairtest run --policy DIR --out RUN  test a saved team: RUN/report/index.html
Commands (each has a --help with an example; fairtest --version):
"""


class _Parser(argparse.ArgumentParser):
    def format_help(self) -> str:
        """One screen: what people do first, then a line per command."""
        (commands,) = (action for action in self._actions if isinstance(action, argparse._SubParsersAction))
        return HELP + "".join(f"  {command.dest:<12}{command.help}\n" for command in commands._choices_actions)


class _Formatter(argparse.HelpFormatter):
    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """An example is copied, so its line is not broken."""
        return text if text.startswith("example") else super()._fill_text(text, width, indent)


class _Command(argparse.ArgumentParser):
    """Report invalid numbers in our own words, and let a list of arguments follow options."""

    appendix: Callable[[], str] | None = None  # more help, worked out when somebody reads it

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"formatter_class": _Formatter, **kwargs})
        self.register("type", int, partial(_number, int, "a whole number, for example 1000"))
        self.register("type", float, partial(_number, float, "a number, for example 0.05"))
        self._mixing = False

    def format_help(self) -> str:
        return super().format_help() + (self.appendix() if self.appendix else "")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        lists = any(action.nargs == "*" and not action.option_strings for action in self._actions)
        if self._mixing or not lists:
            return super().parse_known_args(args, namespace)
        self._mixing = True  # it comes back here
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._mixing = False


def _number(kind: Callable[[str], Any], allowed: str, text: str) -> Any:
    try:
        return kind(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed; it must be {allowed}") from None


def make_parser() -> argparse.ArgumentParser:
    """Every module of this package with an `add_parser` is a command; `ORDER` is its place in the help."""
    parser = _Parser(prog="fairtest")
    parser.add_argument("--version", action="version", version=f"fairtest {__version__}")
    commands: Any = parser.add_subparsers(metavar="COMMAND", parser_class=_Command)
    package = import_module("epymarl_fairtest.commands")
    modules = [import_module(f"{package.__name__}.{info.name}") for info in pkgutil.iter_modules(package.__path__)]
    for module in sorted((m for m in modules if hasattr(m, "add_parser")), key=lambda module: module.ORDER):
        module.add_parser(commands)
    return parser
