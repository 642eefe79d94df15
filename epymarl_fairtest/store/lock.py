"""One process per run folder: a lock of the operating system's, which goes with the process however it ends.

Where there are no such locks (Windows, some network filesystems) nothing is locked; a new run still needs a new folder.
"""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

from epymarl_fairtest.core.errors import FairTestError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

FILE = ".lock"


class RunInUse(FairTestError):
    """Another process is writing this run."""


class Lock:
    """Held from the beginning until it is released or removed."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._file = open(self._path, "a+")  # noqa: SIM115  (open as long as it is held)
        try:
            if fcntl is not None:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.seek(0)
            host, _, pid = self._file.read().partition(" ")
            self._file.close()
            who = f"process {pid.strip()} on {host}" if pid else "another process"
            raise RunInUse(
                f"The run {str(folder)!r} is being written by {who}. Wait until it ends, or stop it first."
            ) from None
        except OSError:  # a filesystem without locks
            pass
        with contextlib.suppress(OSError):  # on a full disk nobody knows who holds it
            self._file.truncate(0)
            self._file.write(f"{socket.gethostname()} {os.getpid()}\n")
            self._file.flush()

    def release(self) -> None:
        """Let others have it. The file stays: who waits at another one would not be kept out."""
        with contextlib.suppress(OSError):  # a full disk
            self._file.close()

    def remove(self) -> None:
        """Nobody will need it again."""
        self._path.unlink(missing_ok=True)
        self.release()
