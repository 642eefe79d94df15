"""Reading what a run left behind: which formats, arrays without pickle, one error for every kind of damage."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core.errors import FairTestError
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
    try:
        if path.exists() and not path.is_file():  # a pipe would be waited for
            raise ValueError("it is no file")
        verify(path)
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files if names is None or name in names}
        if not all(isinstance(array, np.ndarray) for array in arrays.values()):
            raise ValueError("it holds more than arrays")
        return arrays
    except FairTestError:
        raise
    except Exception as error:  # a damaged archive fails in zipfile, zlib, struct, tokenize and elsewhere
        raise FairTestError(f"{str(path)!r} cannot be read ({type(error).__name__}: {error}).") from error
