"""The journal of a run: one line per executed batch, each with a checksum of its own."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from epymarl_fairtest.core.files import NOT_THROUGH_LINKS, cannot_write, sync_folder, write_atomically
from epymarl_fairtest.store.checksum import sealed, unsealed

NUMBERS = ("batch", "episodes", "steps", "failures", "batch_checksum")
Entry = dict[str, Any]


def journal_line(entry: Mapping[str, Any]) -> bytes:
    return json.dumps(sealed(entry), sort_keys=True).encode() + b"\n"


def read_journal(path: Path) -> tuple[dict[int, Entry], list[bytes]]:
    """The entries by the number of their batch, and the lines that are torn or damaged."""
    entries: dict[int, Entry] = {}
    damaged = []
    for line in path.read_bytes().split(b"\n") if path.is_file() else []:
        try:
            entry = unsealed(line)
        except ValueError:
            if line:
                damaged.append(line)
            continue
        if all(type(entry.get(name)) is int and entry[name] >= 0 for name in NUMBERS) and "part_checksum" in entry:
            entries[entry["batch"]] = entry
        else:
            damaged.append(line)
    return entries, damaged


def append_journal(path: Path, entry: Mapping[str, Any]) -> None:
    new = not path.exists()
    try:
        with open(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | NOT_THROUGH_LINKS, 0o666), "ab") as file:
            file.write(journal_line(entry))
            file.flush()
            os.fsync(file.fileno())
        if new:
            sync_folder(path.parent)
    except OSError as error:
        raise cannot_write(path, error) from error


def write_journal(path: Path, entries: Iterable[Mapping[str, Any]]) -> None:
    lines = b"".join(journal_line(entry) for entry in entries)
    write_atomically(path, lambda file: file.write(lines))
