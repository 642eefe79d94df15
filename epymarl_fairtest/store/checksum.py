"""Checksums (CRC-32): of a file, of a JSON object that carries its own, and of the files of a finished run."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from epymarl_fairtest.core.errors import FairTestError

CHECKSUMS = "checksums.json"


def checksum(path: Path) -> int:
    crc = 0
    if path.exists() and not path.is_file():
        raise OSError(f"{path} is no file")  # a pipe would be waited for
    with open(path, "rb", buffering=0) as file:
        while piece := file.read(1 << 20):
            crc = zlib.crc32(piece, crc)
    return crc


def sealed(value: Mapping[str, Any]) -> dict[str, Any]:
    """The value with the checksum of its own text."""
    return {**value, "crc": zlib.crc32(json.dumps(value, sort_keys=True).encode())}


def unsealed(text: bytes) -> dict[str, Any]:
    """What was sealed; ValueError if it is anything else."""
    try:
        value = json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(value, dict):
        raise ValueError("not a set of names and values")
    return unseal(value)


def unseal(value: Mapping[str, Any]) -> dict[str, Any]:
    """The value without its checksum; ValueError if that is missing or wrong."""
    content = {name: part for name, part in value.items() if name != "crc"}
    if value.get("crc") != sealed(content)["crc"]:
        raise ValueError("wrong checksum")
    return content


def verify(path: Path) -> None:
    """Refuse a file that is not what its finished run wrote; an unfinished run promises nothing."""
    record = path.with_name(CHECKSUMS)
    if not record.is_file():
        return
    try:
        promised = unsealed(record.read_bytes())["files"].get(path.name)
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise FairTestError(
            f"{str(record)!r} is damaged ({error}): nothing says whether {path.name} is whole. Move it away to read"
            " the file unchecked."
        ) from error
    try:
        whole = promised is None or checksum(path) == promised
    except OSError as error:
        raise FairTestError(f"{str(path)!r} cannot be read: {error.strerror or error}.") from error
    if not whole:
        raise FairTestError(
            f"{str(path)!r} is damaged: its checksum is not the one in {CHECKSUMS}. Restore it from a copy, or repeat"
            " the run: manifest.json has its command, and the same seed gives the same failures."
        )
