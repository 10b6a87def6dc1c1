"""Checksums appended to files, which reveal damage.

A checksum is the SHA-256 of all bytes before it, in a separate line at the end. Other programs
still read such HDF5, netCDF and zip files, since bytes after the end of these formats are ignored.
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
    """Append the checksum of a file's content to the file."""
    end = file.seek(0, os.SEEK_END)
    tail = _tail(file, end)
    file.seek(end)
    file.write(tail)


@contextmanager
def open_verified(path: Path) -> Iterator[tuple[BinaryIO, bool]]:
    """Yield a file open for reading, and whether it has a checksum, which is then verified."""
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
            raise DamagedFile(path, "its checksum differs from that of its content")
        yield file, has_checksum


def _tail(file: BinaryIO, end: int) -> bytes:
    """Return the last line of a file: the SHA-256 of the bytes before it, in hexadecimal digits."""
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
