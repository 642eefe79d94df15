"""Checksums (CRC-32): of a file, of a JSON object that carries its own, and of the files of a finished run."""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.files import first_byte

CHECKSUMS = "checksums.json"
POLYNOMIAL = 0xEDB88320  # of CRC-32; the lowest power is the highest bit, and the highest is left out
LARGE = 1 << 16  # bytes of an array; fewer are read in less time


def checksum(path: Path) -> int:
    crc = 0
    if path.exists() and not path.is_file():
        raise OSError(f"{path} is no file")  # a pipe would be waited for
    with open(path, "rb", buffering=0) as file:
        while piece := file.read(1 << 20):
            crc = zlib.crc32(piece, crc)
    return crc


def checksum_of_written(path: Path) -> int:
    """The same of an .npz that this process has just written: large arrays are not read again, for it says theirs."""
    crc, at = 0, 0
    with open(path, "rb", buffering=0) as file:
        with zipfile.ZipFile(file) as archive:
            stored = [one for one in archive.infolist() if one.compress_type == zipfile.ZIP_STORED]
        for entry in (one for one in stored if one.file_size > LARGE):
            first = first_byte(file, entry)
            file.seek(at)
            crc = followed_by(zlib.crc32(file.read(first - at), crc), entry.CRC, entry.file_size)
            at = first + entry.file_size
        file.seek(at)
        return zlib.crc32(file.read(), crc)


def followed_by(first: int, second: int, length: int) -> int:
    """The checksum of some bytes and `length` more, from the checksums of both."""
    for n in range(length.bit_length()):
        if length >> n & 1:
            first = _product(first, _moved(n))
    return first ^ second


@cache
def _moved(n: int) -> int:
    """What a checksum is multiplied by when 2^n bytes follow."""
    return _product(_moved(n - 1), _moved(n - 1)) if n else 1 << 23


def _product(one: int, other: int) -> int:
    """Of two polynomials over bits, modulo that of CRC-32."""
    product = 0
    for power in range(31, -1, -1):
        product ^= one * (other >> power & 1)
        one = one >> 1 ^ POLYNOMIAL * (one & 1)
    return product


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
