"""Files appear whole or not at all: temporary file in the same folder, fsync, rename; Ctrl-C waits meanwhile."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
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
    came: list[int] = []
    handled = [number for number in (signal.SIGINT, signal.SIGTERM) if callable(signal.getsignal(number))]
    before = {number: signal.signal(number, lambda which, _: came.append(which)) for number in handled}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for which in came:
            signal.raise_signal(which)


def write_atomically(path: Path, fill: Callable[[BinaryIO], Any]) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with uninterrupted():
            with open(temporary, "wb") as file:
                fill(file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
            sync_folder(path.parent)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError):
            raise cannot_write(path, error) from error
        raise


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


def copy_atomically(source: Path, target: Path) -> None:
    content = source.read_bytes()
    write_atomically(target, lambda file: file.write(content))


def json_bytes(value: Any) -> bytes:
    return (json.dumps(value, indent=2, allow_nan=False) + "\n").encode()


def write_json(path: Path, value: Any) -> None:
    text = json_bytes(value)
    write_atomically(path, lambda file: file.write(text))


def sync_folder(folder: Path) -> None:
    """A rename is safe from a power cut only once its folder is on disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def cannot_write(path: Path, error: OSError) -> FairTestError:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    remedy = "Free some space, or choose another folder" if full else "Choose a folder that you may write to"
    return FairTestError(f"FairTest cannot write {str(path)!r}: {error.strerror or error}. {remedy}.")
