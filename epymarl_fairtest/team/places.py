"""Where the team of a run may be, and what its environment is made with. Reads descriptions, never weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from epymarl_fairtest.team.description import read_description


def team_places(run: Path, manifest: Mapping[str, Any]) -> list[Path]:
    """Beside the run's files, then where it was when it was tested."""
    tested = manifest.get("policy")
    return [run / "policy", *([Path(tested)] if isinstance(tested, str) and tested else [])]


def environment_arguments(run: Path, manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    """From the manifest, else from the team's policy.yaml, as early runs of format 3 need it."""
    given = manifest.get("env_args")
    for folder in team_places(run, manifest):
        if given is None and (folder / "policy.yaml").is_file():
            given = read_description(folder / "policy.yaml").get("env_args")
    return given if isinstance(given, Mapping) else {}
