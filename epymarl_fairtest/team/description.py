"""Reading policy.yaml: plain names and values, whoever wrote it. Nothing in it is executed, and nothing grows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from epymarl_fairtest.core.errors import FairTestError

LONGEST = 1_000_000  # bytes


class _Plain(yaml.SafeLoader):
    """Reads no aliases: a few lines of them are gigabytes."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("it holds an alias (*name); write the value itself")
        return super().compose_node(parent, index)


def read_description(path: Path) -> dict[str, Any]:
    """The NAME: VALUE lines of a policy.yaml."""
    try:
        if path.stat().st_size > LONGEST:
            raise ValueError(f"it is longer than {LONGEST:,} bytes")
        values = yaml.load(path.read_text(), _Plain)
    except Exception as error:  # numbers, dates and tags fail in ways of their own, what is nested deeply in another
        raise FairTestError(f"{str(path)!r} is not readable YAML: {error or type(error).__name__}") from error
    if not isinstance(values, dict):
        raise FairTestError(f"{str(path)!r} must hold NAME: VALUE lines, not {type(values).__name__}.")
    return values
