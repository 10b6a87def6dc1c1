"""Checksums behind the content of files, by which damage is told.

A checksum is the SHA-256 of all bytes before it, in a line of its own at the end. HDF5, netCDF
and zip files are read by everyone as before: what is behind their end is ignored.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from largen.errors import DamagedFile, InvalidInput

HEAD = b"\nlargen sha256 "
LENGTH = len(HEAD) + 64 + 1
BLOCK = 2**20


def add_checksum(file: BinaryIO) -> None:
    """Put the checksum of a file behind its content."""
    end = file.seek(0, os.SEEK_END)
    tail = _tail(file, end)
    file.seek(end)
    file.write(tail)


@contextmanager
def verified(path: Path) -> Iterator[tuple[BinaryIO, bool]]:
    """Yield a file that is open for reading, and whether it has a checksum, which then is right.

    Raises
    ------
    InvalidInput
        If the file may not be read.
    DamagedFile
        If the content is not what was written, or the disk does not give it.
    """
    try:
        file = path.open("rb")
    except OSError as error:
        raise InvalidInput(f"path: cannot read {str(path)!r}: {error.strerror}.") from None
    with file:
        try:
            end = file.seek(0, os.SEEK_END) - LENGTH
            file.seek(max(end, 0))
            tail = file.read()
            has_checksum = tail.startswith(HEAD) and len(tail) == LENGTH
            right = not has_checksum or tail == _tail(file, end)
            file.seek(0)
        except OSError as error:
            raise DamagedFile(path, f"cannot be read: {error.strerror}") from None
        if not right:
            raise DamagedFile(path, "its checksum is another than that of its content")
        yield file, has_checksum


def _tail(file: BinaryIO, end: int) -> bytes:
    """Return what is behind the first bytes of a file: their SHA-256, as hexadecimal digits."""
    file.seek(0)
    digest = hashlib.sha256()
    left = end
    while left > 0:
        block = file.read(min(BLOCK, left))
        if not block:
            break
        digest.update(block)
        left -= len(block)
    return HEAD + digest.hexdigest().encode() + b"\n"
