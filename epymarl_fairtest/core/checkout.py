"""Which EPyMARL checkout this user works with: EPYMARL_HOME, else the one that was registered.

Knows where a checkout is and how to tell one; never changes it.
"""

import json
import os
from pathlib import Path

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.files import replace_file

MARKS = ("src/main.py", "src/run.py", "src/runners/__init__.py", "src/envs/__init__.py")


def is_checkout(path: Path) -> bool:
    """Does `path` hold the files that every EPyMARL-family checkout has?"""
    return all((path / mark).is_file() for mark in MARKS)


def require_checkout(given: str | Path, source: str = "") -> Path:
    """The folder `given` as an absolute path, or a FairTestError that says why it is not a checkout."""
    path = Path(given).expanduser()
    named = f"{source}{str(given)!r}"
    contains = f"an EPyMARL checkout is a folder that contains {', '.join(MARKS)}"
    advice = "Give the folder that `git clone https://github.com/uoe-agents/epymarl` made."
    try:
        if is_checkout(path):
            return path.resolve()
        if not path.exists():
            reason = "does not exist"
        elif not path.is_dir():
            reason = "is a file, not a folder"
        else:
            missing = [mark for mark in MARKS if not (path / mark).is_file()]
            reason = f"is not an EPyMARL checkout (missing: {', '.join(missing)})"
            for parent in path.resolve().parents:
                if is_checkout(parent):
                    advice = f"Did you mean {str(parent)!r}?"
                    break
    except OSError as error:
        reason = f"cannot be read ({error.strerror})"
        advice = "Make the folder readable for this user, or give another one."
    raise FairTestError(f"{named} {reason}; {contains}. {advice}")


def known_checkout() -> Path | None:
    """The user's checkout, or None. A registered folder that vanished is forgotten, not an error."""
    home = os.environ.get("EPYMARL_HOME")
    if home:
        return require_checkout(home, "EPYMARL_HOME=")
    path = registered()
    try:
        return path if path is not None and is_checkout(path) else None
    except OSError:
        return None


def remember(path: Path) -> None:
    """Register `path` as the checkout this user works with."""
    file = _register()
    file.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"checkout": str(path.resolve())}, indent=1) + "\n"
    replace_file(file, lambda out: out.write(text.encode()))


def forget(path: Path) -> None:
    """Undo `remember(path)`; another registered checkout stays."""
    if registered() == path.resolve():
        _register().unlink(missing_ok=True)


def _register() -> Path:
    base = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    # The XDG specification: a relative path is invalid and is to be ignored.
    return (base if base.is_absolute() else Path.home() / ".config") / "fairtest" / "checkout.json"


def registered() -> Path | None:
    """The registered folder whether it exists or not; an unreadable register counts as empty."""
    try:
        return Path(json.loads(_register().read_text(encoding="utf-8"))["checkout"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
