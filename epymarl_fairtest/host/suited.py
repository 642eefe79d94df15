"""Can FairTest test teams that a checkout trains? Known from its files alone, before anything is trained."""

import re
from pathlib import Path

from epymarl_fairtest.core.errors import FairTestError

OLD_GYM = re.compile(r"^\s*(?:import gym(?: as \w+)?\s*$|from gym[. ])", re.MULTILINE)


def obstacle(checkout: Path) -> str | None:
    """Why it cannot; None if nothing is known that would stop it."""
    source = checkout / "src"
    if not any("sacred" in text for text in _texts(source, "**/*.py")):
        return "it does not use sacred, through which FairTest is switched on and writes its results"
    wrappers = [text for text in _texts(source / "envs", "*.py") if "gymma" in text.lower()]
    if not wrappers:
        return "it has no environment gymma, the only wrapper that lets the rewards of the single agents through"
    if any(OLD_GYM.search(text) for text in wrappers):
        return "its environments are made with gym; FairTest needs gymnasium, as EPyMARL 2.0 and later use it"
    return None


def require_suited(checkout: Path) -> None:
    why = obstacle(checkout)
    if why is not None:
        raise FairTestError(
            f"FairTest cannot test teams of {str(checkout)!r}: {why}. Use EPyMARL 2.0 or later, or PyMARLzoo+; a team"
            " that is already trained is tested with: fairtest run --policy DIR"
        )


def _texts(folder: Path, pattern: str) -> list[str]:
    return [file.read_text(errors="replace") for file in sorted(folder.glob(pattern)) if file.is_file()]
