"""One process per run folder, and per job of a study: the operating system's lock on a file that names its holder.

The lock goes with its process, however that ends. On a filesystem without locks nothing is locked and everything else
works: a new run needs a new folder all the same.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import time
from pathlib import Path

from filelock import lock_descriptor

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.files import NOT_THROUGH_LINKS, cannot_write, refuse_link

FILE = ".lock"  # in a run folder
FIRMLY = NOT_THROUGH_LINKS | getattr(os, "O_NONBLOCK", 0)  # nor waiting for the other end of a pipe
GLANCE = 0.05  # seconds after which whoever only looked (`is_held`) has let go


class InUse(FairTestError):
    """Another process holds the lock."""


class Lock:
    """Held from the beginning until it is released or removed."""

    def __init__(self, path: Path, held: str = "", *, wait: bool = False) -> None:
        """Refused with `held` and the holder's name if another process has it, unless that shall be waited for."""
        self._path = path
        self._file = os.fdopen(_of_our_own(path), "r+", errors="replace")
        try:
            if not _taken(self._file.fileno(), wait=wait):
                raise InUse(f"{held} by {self._holder()}. Wait until it ends, or stop it first.")
        except BaseException:  # Ctrl-C, too
            self._file.close()
            raise
        with contextlib.suppress(OSError):  # on a full disk nobody knows who holds it
            self._file.truncate(0)
            self._file.write(f"{socket.gethostname()} {os.getpid()}\n")
            self._file.flush()

    def _holder(self) -> str:
        with contextlib.suppress(OSError):  # Windows keeps others from reading it
            self._file.seek(0)
            host, _, pid = self._file.read(200).partition(" ")
            if pid:
                return f"process {pid.strip()} on {host}"
        return "another process"

    def release(self) -> None:
        """Let others have it. The file stays: whoever waits for a deleted one would not be kept out by the next."""
        with contextlib.suppress(OSError):  # a full disk
            self._file.close()

    def remove(self) -> None:
        """Nobody will need it again."""
        self._path.unlink(missing_ok=True)
        self.release()


def _of_our_own(path: Path) -> int:
    """The lock's file, opened or made. The holder's name goes into it, so it must be no other file's second name."""
    refuse_link(path)
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | FIRMLY, 0o666)
    except OSError as error:
        raise cannot_write(path, error) from error
    status = os.fstat(handle)
    if stat.S_ISREG(status.st_mode) and status.st_nlink <= 1:
        return handle
    os.close(handle)
    raise FairTestError(f"{str(path)!r} is no lock of FairTest's: it is another file too, or not a file. Remove it.")


def is_held(path: Path) -> bool:
    """Does a process hold this lock? Makes no file, and takes nothing from anybody."""
    try:
        handle = _opened(path)
    except OSError:  # there is no such file
        return False
    try:
        return not _taken(handle)
    finally:
        os.close(handle)


def _opened(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | FIRMLY)  # NFS locks only what may be written
    except OSError:
        return os.open(path, os.O_RDONLY | FIRMLY)  # somebody else's run


def _taken(handle: int, *, wait: bool = False) -> bool:
    """Whether this process has the lock now; a filesystem without locks gives it to everybody."""
    try:
        if lock_descriptor(handle, blocking=wait):
            return True
        time.sleep(GLANCE)
        return lock_descriptor(handle, blocking=False)
    except OSError:
        return True
