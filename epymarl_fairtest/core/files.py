"""Files appear whole or not at all: temporary file in the same folder, fsync, rename; Ctrl-C waits meanwhile.

The only place that knows how; everything that must never be half written goes through here. Links are never written
through: a folder that somebody sent may hold links to anywhere.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import secrets
import signal
import stat
import struct
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core.direct import past_the_cache
from epymarl_fairtest.core.errors import FairTestError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

LEFT_OVER = re.compile(r"\..+\.[0-9a-f]+\.tmp")
LOCAL = 30  # bytes before the name of an entry of a zip file; the last four are the lengths of what follows
AT_ONCE = 1 << 20  # bytes of an array that are written at a time
Pieces = Sequence[Callable[[], NDArray[Any]]]  # of an array that is too large to hold
NOT_THROUGH_LINKS = getattr(os, "O_NOFOLLOW", 0)  # Windows has none


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl-C and SIGTERM wait until this is over: inside zipfile they would become another error, or get lost."""
    if threading.current_thread() is not threading.main_thread():  # no signal is handled in the others
        yield
        return
    arrived: list[int] = []
    handled = [number for number in (signal.SIGINT, signal.SIGTERM) if callable(signal.getsignal(number))]
    before = {number: signal.signal(number, lambda which, _: arrived.append(which)) for number in handled}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for which in arrived:
            signal.raise_signal(which)


def replace_file(path: Path, fill: Callable[[BinaryIO], Any]) -> None:
    """Readers see the old content or the new, never half. Owner and mode of an existing file are kept.

    Raises OSError as it comes; whoever has nothing better to say than `cannot_write` calls `write_atomically`.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")  # as LEFT_OVER says
    try:
        with uninterrupted(), _claimed(temporary):
            with open(temporary, "wb") as file:
                fill(file)
                file.flush()
                os.fsync(file.fileno())
            if path.is_file() and not path.is_symlink():
                _keep_owner_and_mode(path, temporary)
            os.replace(temporary, path)  # of a link, the link itself
            sync_folder(path.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def _keep_owner_and_mode(old: Path, new: Path) -> None:
    status = old.stat()
    if hasattr(os, "chown"):
        with contextlib.suppress(PermissionError):  # matters when root writes into somebody else's folder
            os.chown(new, status.st_uid, status.st_gid)
    os.chmod(new, stat.S_IMODE(status.st_mode))


@contextlib.contextmanager
def _claimed(path: Path) -> Iterator[None]:
    """Make the file, with the mode that the umask leaves; its lock says meanwhile that somebody is writing it."""
    handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDONLY, 0o666)
    try:
        if fcntl is None:  # Windows renames no file that is open
            os.close(handle)
        else:
            _is_ours(handle)
        yield
    finally:
        if fcntl is not None:
            os.close(handle)


def _is_ours(handle: int) -> bool:
    """Whether this process has the file's lock now; never where there are no locks."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (OSError, AttributeError):
        return False
    return True


def remove_left_over(folder: Path) -> None:
    """Delete what killed processes were writing into this folder, and nothing that is being written."""
    for path in folder.iterdir() if folder.is_dir() and not folder.is_symlink() else ():
        if LEFT_OVER.fullmatch(path.name) and path.is_file() and not path.is_symlink():
            with contextlib.suppress(OSError), open(path, "rb") as file:
                if _is_ours(file.fileno()):
                    path.unlink()


def make_folder(path: Path) -> None:
    """Make a folder of our own unless it is there; refuse a link in its place, which leads somewhere else."""
    refuse_link(path)
    try:
        path.mkdir(exist_ok=True)
    except OSError as error:
        raise cannot_write(path, error) from error


def refuse_link(path: Path) -> None:
    if path.is_symlink():
        raise FairTestError(
            f"{str(path)!r} is a link to {os.readlink(path)!r}, and FairTest never writes through a link inside a"
            " folder of its own. Put the file or folder itself there, or remove the link."
        )


def write_atomically(path: Path, fill: Callable[[BinaryIO], Any]) -> None:
    try:
        replace_file(path, fill)
    except OSError as error:
        raise cannot_write(path, error) from error


def write_arrays(
    path: Path, arrays: Mapping[str, NDArray[Any]], *, compressed: bool = False, level: int | None = None
) -> None:
    """An .npz that numpy reads without pickle; `level` says how hard zlib tries to make a compressed one small."""

    def fill(file: BinaryIO) -> None:
        with _archive(file, compressed=compressed, level=level) as archive:
            for name, array in arrays.items():
                with _entry(archive, name, array.dtype, array.shape) as entry:
                    _write_values(entry, array)

    write_atomically(path, fill)


def write_columns(path: Path, columns: Mapping[str, Pieces], length: int) -> None:
    """An .npz whose arrays are too large to hold: the pieces of each, `length` rows in all, are copied in turn."""

    def fill(file: BinaryIO) -> None:
        with past_the_cache(file) as out, _archive(out) as archive:
            for name, pieces in columns.items():
                first = pieces[0]()
                with _entry(archive, name, first.dtype, (length, *first.shape[1:])) as entry:
                    for read in pieces:
                        piece = read()
                        if (piece.dtype, piece.shape[1:]) != (first.dtype, first.shape[1:]):
                            raise ValueError(f"pieces of column {name!r} differ: {piece.dtype}, {piece.shape}")
                        _write_values(entry, piece)

    write_atomically(path, fill)


def _archive(file: BinaryIO, *, compressed: bool = False, level: int | None = None) -> zipfile.ZipFile:
    how = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
    return zipfile.ZipFile(file, "w", how, allowZip64=True, compresslevel=level)


@contextlib.contextmanager
def _entry(archive: zipfile.ZipFile, name: str, kind: np.dtype[Any], shape: tuple[int, ...]) -> Iterator[IO[bytes]]:
    """An array of an .npz whose values are still to be written."""
    header = {"descr": np.lib.format.dtype_to_descr(kind), "fortran_order": False, "shape": shape}
    with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
        np.lib.format.write_array_header_1_0(entry, header)
        yield entry


def _write_values(entry: IO[bytes], values: NDArray[Any]) -> None:
    """As they lie in memory: numpy would copy them first, into memory that is fresh from the system."""
    flat = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    for first in range(0, len(flat), AT_ONCE):
        entry.write(flat[first : first + AT_ONCE].data)


def first_byte(file: IO[bytes], entry: zipfile.ZipInfo) -> int:
    """Where in an archive the content of an entry begins; `file` stands there then."""
    file.seek(entry.header_offset)
    head = file.read(LOCAL)
    return file.seek(sum(struct.unpack("<HH", head[-4:])), os.SEEK_CUR)


def write_bytes(path: Path, content: bytes) -> None:
    write_atomically(path, lambda file: file.write(content))


def copy_atomically(source: Path, target: Path) -> None:
    write_bytes(target, source.read_bytes())


def json_bytes(value: Any) -> bytes:
    return (json.dumps(value, indent=2, allow_nan=False) + "\n").encode()


def write_json(path: Path, value: Any) -> None:
    text = json_bytes(value)
    write_atomically(path, lambda file: file.write(text))


def sync_folder(folder: Path) -> None:
    """A rename is safe from a power cut only once its folder is on disk."""
    if not hasattr(os, "O_DIRECTORY"):  # Windows cannot open a folder
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def cannot_write(path: Path, error: OSError) -> FairTestError:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    remedy = "Free some space, or choose another folder" if full else "Choose a folder that you may write to"
    return FairTestError(f"FairTest cannot write {str(path)!r}: {error.strerror or error}. {remedy}.")
