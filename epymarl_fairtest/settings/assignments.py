"""`--set NAME=VALUE` and the options of a command line as settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.settings.schema import FIELDS

KNOWN = f"for example --set theta=0.8. Known names are: {', '.join(FIELDS)}"


def parse_assignment(text: str, option: str = "--set", hint: str = KNOWN) -> tuple[str, Any]:
    """`name=value` from the command line; the value is read as YAML."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise FairTestError(f"{option} {text!r} is not NAME=VALUE; {hint}.")
    try:
        parsed = yaml.safe_load(value)
        return name, float(parsed) if isinstance(parsed, str) and _is_float(parsed) else parsed
    except Exception as error:  # YAML's dates and numbers fail in ways of their own
        shown = text if len(text) <= 80 else f"{text[:77]}..."
        raise FairTestError(f"{option} {shown!r}: the value is not YAML ({error.__class__.__name__})") from error


def parse_assignments(texts: Sequence[str], named: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Several of them as settings; `options.NAME` goes into the method's options.

    `named` are settings with an option of their own, None where it was not given.
    """
    given: dict[str, Any] = {}
    for text in texts:
        name, value = parse_assignment(text)
        group, dot, option = name.partition(".")
        if group == "options" and dot:
            options = given.setdefault("options", {})
            if not isinstance(options, dict):
                raise FairTestError(
                    f"--set {text!r} and --set options={options!r} contradict each other; leave one out."
                )
            options[option] = value
        else:
            given[name] = value
    for name, value in (named or {}).items():
        if value is not None and given.setdefault(name, value) != value:
            raise FairTestError(
                f"fairtest_args.{name}={value} and --set {name}={given[name]} contradict each other; leave one out."
            )
    return given


def _is_float(text: str) -> bool:
    """YAML takes 1e-3 for text."""
    try:
        float(text)
    except ValueError:
        return False
    return text[:1].isdigit()
