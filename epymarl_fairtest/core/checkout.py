"""Which EPyMARL checkout this user works with: EPYMARL_HOME, else the one that was registered.

Knows where a checkout is and how to tell one; never changes it.
"""

import json
import os
import secrets
from contextlib import suppress
from pathlib import Path

from epymarl_fairtest.core.errors import FairTestError

MARKS = ("src/main.py", "src/run.py", "src/runners/__init__.py", "src/envs/__init__.py")


def is_checkout(path: Path) -> bool:
    """Does `path` hold the files that every EPyMARL-family checkout has?"""
    return all((path / mark).is_file() for mark in MARKS)


def require_checkout(given: str | Path, source: str = "") -> Path:
    """The folder `given` as an absolute path, or a FairTestError that says why it is no checkout."""
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
            reason = f"is no EPyMARL checkout (missing: {', '.join(missing)})"
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
    path = _registered()
    try:
        return path if path is not None and is_checkout(path) else None
    except OSError:
        return None


def remember(path: Path) -> None:
    """Register `path` as the checkout this user works with."""
    file = _register()
    file.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"checkout": str(path.resolve())}, indent=1) + "\n"
    write_atomically(file, text.encode())


def forget(path: Path) -> None:
    """Undo `remember(path)`; another registered checkout stays."""
    if _registered() == path.resolve():
        _register().unlink(missing_ok=True)


def write_atomically(path: Path, data: bytes) -> None:
    """Readers see the old bytes or the new ones, never half; the mode of an existing file is kept."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        # 0o666 under the umask is what an editor would have made of a new file; mkstemp makes 0o600.
        # Windows translates newlines unless told that these are bytes.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        with open(os.open(temporary, flags, 0o666), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            _keep_owner_and_mode(path, temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _keep_owner_and_mode(old: Path, new: Path) -> None:
    status = old.stat()
    if hasattr(os, "chown"):
        with suppress(PermissionError):  # matters when root installs into somebody's checkout
            os.chown(new, status.st_uid, status.st_gid)
    os.chmod(new, status.st_mode & 0o7777)


def _register() -> Path:
    base = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    # The XDG specification: a relative path is invalid and is to be ignored.
    return (base if base.is_absolute() else Path.home() / ".config") / "fairtest" / "checkout.json"


def _registered() -> Path | None:
    """The registered folder whether it exists or not; an unreadable register counts as empty."""
    try:
        return Path(json.loads(_register().read_text(encoding="utf-8"))["checkout"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
