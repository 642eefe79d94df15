"""Reading what a run left behind: which formats, arrays without pickle, one error for every kind of damage."""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.files import first_byte
from epymarl_fairtest.store.checksum import verify

FORMAT = 3


def refuse_missing(folder: Path) -> None:
    """Refuse what is not a folder."""
    if not folder.is_dir():
        what = f"{str(folder)!r} is a file." if folder.exists() else f"There is no folder {str(folder)!r}."
        raise FairTestError(f"{what} Name the folder of a run; `fairtest runs` lists them.")


def refuse_other_formats(folder: Path) -> None:
    """Refuse a run folder of another format than this version's."""
    if not (folder / "manifest.json").is_file():
        return
    try:
        number = json.loads((folder / "manifest.json").read_bytes())["format"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return  # not a run folder, or a damaged manifest: whoever reads it says so
    if isinstance(number, int) and number != FORMAT:
        newer = "a newer" if number > FORMAT else "an older"
        raise FairTestError(
            f"{str(folder)!r} was written by {newer} FairTest (format {number}; this one reads format {FORMAT}): read"
            " it with the version that manifest.json names, or run it again."
        )


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object. A checksum that it carries is not verified."""
    if path.exists() and not path.is_file():  # a pipe would be waited for
        raise damaged(path, "it is no file")
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise damaged(path, error) from error
    if not isinstance(value, dict):
        raise damaged(path, "it is not a set of names and values")
    return value


def damaged(path: Path, why: object) -> FairTestError:
    return FairTestError(f"{str(path)!r} is damaged: {why}.")


def read_arrays(path: Path, names: Collection[str] | None = None) -> dict[str, NDArray[Any]]:
    """The arrays of an .npz, all of them or those named; refused if its run promised another checksum."""
    return read_columns(path, names)


def read_columns(
    path: Path, names: Collection[str] | None, later: Collection[str] = (), *, verified: bool = False
) -> dict[str, Any]:
    """The same, and those named in `later` as columns whose rows are read when they are asked for.

    A file that was `verified` a moment ago is not read from end to end again.
    """
    try:
        if path.exists() and not path.is_file():  # a pipe would be waited for
            raise ValueError("it is no file")
        if not verified:
            verify(path)
        with np.load(path, allow_pickle=False) as file:
            wanted = [name for name in file.files if names is None or name in names]
            entries = {name: file.zip.getinfo(f"{name}.npy") for name in wanted if name in later}
            arrays = {
                name: (Column.of(path, entries[name]) if name in later else None) or file[name] for name in wanted
            }
        if not all(isinstance(array, np.ndarray | Column) for array in arrays.values()):
            raise ValueError("it holds more than arrays")
        return arrays
    except FairTestError:
        raise
    except Exception as error:  # a damaged archive fails in zipfile, zlib, struct, tokenize and elsewhere
        raise FairTestError(f"{str(path)!r} cannot be read ({type(error).__name__}: {error}).") from error


@dataclass(frozen=True)
class Column:
    """An array inside an .npz of which some rows are read at a time."""

    path: Path
    first: int  # byte of the file
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    @classmethod
    def of(cls, path: Path, entry: zipfile.ZipInfo) -> Column | None:
        """None where it was compressed, or is no plain array of rows."""
        if entry.compress_type != zipfile.ZIP_STORED:
            return None
        with open(path, "rb") as file:
            first_byte(file, entry)
            if np.lib.format.read_magic(file) != (1, 0):
                return None
            shape, by_columns, dtype = np.lib.format.read_array_header_1_0(file)
            plain = shape and not by_columns and not dtype.hasobject
            return cls(path, file.tell(), dtype, shape) if plain else None

    def __getitem__(self, rows: Any) -> NDArray[Any]:
        numbers = np.arange(self.shape[0])[rows]
        taken = np.empty((len(numbers), *self.shape[1:]), self.dtype)
        size = taken[:1].nbytes
        ends = [*(np.flatnonzero(np.diff(numbers) != 1) + 1).tolist(), len(numbers)]
        begin, values = 0, taken.reshape(-1).view(np.uint8).data
        with open(self.path, "rb") as file:
            for end in ends if taken.size else ():  # rows that follow each other are read at once
                file.seek(self.first + int(numbers[begin]) * size)
                if file.readinto(values[begin * size : end * size]) != size * (end - begin):
                    raise damaged(self.path, "it ends too early")
                begin = end
        return taken
