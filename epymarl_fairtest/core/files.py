"""Files appear whole or not at all: temporary file in the same folder, fsync, rename; Ctrl-C waits meanwhile.

The only place that knows how; everything that must never be half written goes through here.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import signal
import stat
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core.errors import FairTestError


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
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with uninterrupted():
            with open(temporary, "xb") as file:  # a new file has the mode that the umask leaves
                fill(file)
                file.flush()
                os.fsync(file.fileno())
            if path.exists():
                _keep_owner_and_mode(path, temporary)
            os.replace(temporary, path)
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


def write_atomically(path: Path, fill: Callable[[BinaryIO], Any]) -> None:
    try:
        replace_file(path, fill)
    except OSError as error:
        raise cannot_write(path, error) from error


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]], *, compressed: bool = False) -> None:
    """An .npz that numpy reads without pickle."""
    save: Any = np.savez_compressed if compressed else np.savez
    write_atomically(path, lambda file: save(file, allow_pickle=False, **arrays))


def write_columns(path: Path, columns: Mapping[str, Sequence[Callable[[], NDArray[Any]]]], length: int) -> None:
    """An .npz whose arrays are too large to hold: the pieces of each, `length` rows in all, are copied in turn."""

    def fill(file: BinaryIO) -> None:
        with zipfile.ZipFile(file, "w", allowZip64=True) as archive:
            for name, pieces in columns.items():
                first = pieces[0]()
                header = {"descr": first.dtype.str, "fortran_order": False, "shape": (length, *first.shape[1:])}
                with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                    np.lib.format.write_array_header_1_0(entry, header)
                    for read in pieces:
                        piece = read()
                        if (piece.dtype, piece.shape[1:]) != (first.dtype, first.shape[1:]):
                            raise ValueError(f"pieces of column {name!r} differ: {piece.dtype}, {piece.shape}")
                        entry.write(np.ascontiguousarray(piece).tobytes())

    write_atomically(path, fill)


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
