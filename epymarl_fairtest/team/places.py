"""Where the team of a run may be. Knows paths; what lies there is not looked at."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any


def team_places(run: Path, manifest: Mapping[str, Any]) -> list[Path]:
    """Beside the run's files, then where it was when it was tested."""
    tested = manifest.get("policy")
    return [run / "policy", *([Path(tested)] if isinstance(tested, str) and tested else [])]
