"""Long files are written past what the system remembers of files, where that can be done (Linux, most disks).

Otherwise it would take fresh memory for all of them, which costs several times what writing costs (docs/decisions/087).
"""

from __future__ import annotations

import contextlib
import errno
import io
import mmap
import os
from collections.abc import Iterator
from typing import Any, BinaryIO

DIRECT = getattr(os, "O_DIRECT", 0)  # macOS and Windows have none
ROOM = 1 << 20  # bytes that are written at once: a multiple of what disks ask for


@contextlib.contextmanager
def past_the_cache(file: BinaryIO) -> Iterator[Any]:
    """What to write into instead of this file, which is new; it is complete when the block ends."""
    if not DIRECT:
        yield file
        return
    writer = _Writer(file.fileno())
    yield writer
    writer.finish()


class _Writer(io.RawIOBase):
    """A room goes to the disk when it is full. What is written over, such as the heads of a zip file's entries, and the
    rest follow in the end, through the cache: the disk takes whole blocks only."""

    def __init__(self, handle: int) -> None:
        self._handle, self._direct = handle, True
        self._room = memoryview(mmap.mmap(-1, ROOM))  # begins where a page of memory begins, as disks ask
        self._on_disk = self._filled = self._at = 0
        self._over: list[tuple[int, bytes]] = []
        try:
            self._switch(DIRECT)
        except OSError:  # this file system cannot do it
            self._direct = False

    def _switch(self, direct: int) -> None:
        import fcntl  # Windows has none, and does not come here

        flags = fcntl.fcntl(self._handle, fcntl.F_GETFL)
        fcntl.fcntl(self._handle, fcntl.F_SETFL, flags & ~DIRECT | direct)

    def write(self, data: Any) -> int:
        data = memoryview(data).cast("B")
        if self._at < self._on_disk + self._filled:
            self._over.append((self._at, bytes(data)))
        else:
            self._append(data)
        self._at += len(data)
        return len(data)

    def _append(self, data: memoryview) -> None:
        while data:
            some = data[: ROOM - self._filled]
            self._room[self._filled : self._filled + len(some)] = some
            self._filled, data = self._filled + len(some), data[len(some) :]
            if self._filled == ROOM:
                self._empty()

    def _empty(self) -> None:
        """Of what fills the room."""
        self._put(self._room[: self._filled], self._on_disk)
        self._on_disk, self._filled = self._on_disk + self._filled, 0

    def _put(self, data: memoryview, at: int) -> None:
        while data:
            try:
                done = os.pwrite(self._handle, data, at)
            except OSError as error:
                if error.errno != errno.EINVAL or not self._direct:
                    raise
                self._through_the_cache()  # this disk asks for more than we knew
                continue
            data, at = data[done:], at + done

    def _through_the_cache(self) -> None:
        if self._direct:
            self._switch(0)
            self._direct = False

    def finish(self) -> None:
        self._through_the_cache()
        self._empty()
        for at, data in self._over:
            self._put(memoryview(data), at)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        end = self._on_disk + self._filled
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: end}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True
