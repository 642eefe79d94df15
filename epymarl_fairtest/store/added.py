"""Files that are added to a finished run, or replaced: its checksums follow."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from epymarl_fairtest.core.files import refuse_link, write_arrays, write_json
from epymarl_fairtest.store.checksum import CHECKSUMS, checksum, sealed, unsealed, verify
from epymarl_fairtest.store.lock import FILE as LOCK_FILE
from epymarl_fairtest.store.lock import Lock
from epymarl_fairtest.store.read import damaged


def add_files(
    run: Path, files: Mapping[str, Mapping[str, NDArray[Any]]], documents: Mapping[str, Mapping[str, Any]]
) -> None:
    """NAME.npz -> its arrays, NAME.json -> what it says."""
    record = run / CHECKSUMS
    for name in (*files, *documents, CHECKSUMS):
        refuse_link(run / name)
    lock = Lock(run / LOCK_FILE, f"The run {str(run)!r} is being written")
    try:
        verify(run / "summary.json")
        try:
            promised: dict[str, int] = unsealed(record.read_bytes())["files"] if record.is_file() else {}
        except (OSError, ValueError, KeyError) as error:
            raise damaged(record, error) from error
        # What is about to change is promised by nobody: killed in between, the run is whole without it.
        kept = {name: value for name, value in promised.items() if name not in {*files, *documents}}
        if record.is_file():
            write_json(record, sealed({"files": kept}))
        for name, arrays in files.items():
            write_arrays(run / name, arrays, compressed=True)
        for name, content in documents.items():
            write_json(run / name, content)
        if record.is_file():
            write_json(record, sealed({"files": kept | {name: checksum(run / name) for name in (*files, *documents)}}))
    finally:
        lock.remove()
