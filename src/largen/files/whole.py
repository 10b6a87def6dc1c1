"""Atomic writing of files, and creation of their folders.

Every file of largen is written by :func:`write_whole`: a draft with a unique name is written,
flushed to the disk, and then renamed to the file's name in one step. A reader therefore finds
either the previous or the new content in full, even if a process is killed or several write at a
time. The draft is locked as long as its process lives, so that drafts of killed processes can be
distinguished from those of running processes and deleted.
"""

from __future__ import annotations

import io
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import BinaryIO

from largen.errors import CannotWrite, InvalidInput
from largen.files.checksums import add_checksum
from largen.text import shown

try:
    import fcntl
except ImportError:  # absent on Windows, where an open file cannot be deleted anyway
    fcntl = None

DRAFT = ".part"
NAME = 80  # characters of the file's name in the draft's name: file systems allow 255 bytes


def make_folder(name: str, folder: str | PathLike[str]) -> Path:
    """Return a folder, creating it if necessary."""
    path = as_path(name, folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"{name}: cannot make the folder {path}: {error.strerror}.") from None
    return path


def as_path(name: str, path: str | PathLike[str]) -> Path:
    """Return the path that an argument denotes."""
    try:
        place = Path(path)
    except TypeError:
        raise InvalidInput(f"{name}: wanted a path, got {shown(path)}.") from None
    if "\0" in str(place):
        raise InvalidInput(f"{name}: {shown(str(place))} is not a path: it has a null character.")
    if not place.name and not place.is_absolute() and str(path) != ".":
        raise InvalidInput(f"{name}: wanted a path, got {shown(path)}.")
    try:
        place.exists()
    except OSError as error:
        raise InvalidInput(f"{name}: {shown(str(place))}: {error.strerror}.") from None
    except UnicodeEncodeError:
        raise InvalidInput(f"{name}: {shown(str(place))} is not a valid file name here.") from None
    return place


def as_file(name: str, path: str | PathLike[str]) -> Path:
    """Return the path of a file, checked before the computation whose result it will hold."""
    given = as_path(name, path)
    _mode(name, Path(os.path.realpath(given)))
    return given


@contextmanager
def write_whole(
    path: str | PathLike[str], *, name: str = "path", checksum: bool = False
) -> Iterator[BinaryIO]:
    """Yield a file to write to, which receives its name when the block ends without an error.

    A link is followed; an existing file's permissions are kept.
    """
    given = as_path(name, path)
    target = Path(os.path.realpath(given))
    if not target.parent.is_dir():
        raise InvalidInput(f"{name}: the folder {str(given.parent)!r} does not exist.")
    mode = _mode(name, target)
    try:
        _delete_leftovers(target)
        draft, descriptor = _new_draft(target, mode)
    except OSError as error:
        raise _cannot(given, error) from None
    raw = _Draft(descriptor, "rb+")
    try:
        with io.BufferedRandom(raw) as file:
            yield file
            file.flush()
            if checksum:
                add_checksum(file)
                file.flush()
            os.fsync(descriptor)
            if fcntl is not None:
                os.replace(draft, target)  # before it is closed, and with that unlocked
        if fcntl is None:
            os.replace(draft, target)
        _flush_folder(target.parent)
    except BaseException as error:
        _forget(raw, draft)
        failure = raw.failure or error
        # Archives and pictures that could not be written end in errors of all kinds.
        if isinstance(failure, OSError) and isinstance(error, Exception):
            raise _cannot(given, failure) from None
        raise


class _Draft(io.FileIO):
    """An open file that stores the error of a failed write."""

    failure: OSError | None = None

    def write(self, data, /):
        try:
            return super().write(data)
        except OSError as error:
            self.failure = error
            raise


def _forget(raw: io.FileIO, draft: Path) -> None:
    """Close and delete a draft, ignoring errors of its unwritten content."""
    with suppress(OSError, ValueError):
        raw.close()
    with suppress(OSError):
        draft.unlink()


def _mode(name: str, target: Path) -> int | None:
    """Return the permissions of a file; None if there is no such file."""
    try:
        status = target.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InvalidInput(f"{name}: {str(target)!r}: {error.strerror}.") from None
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file"
        raise InvalidInput(f"{name}: {str(target)!r} is {kind}.")
    return stat.S_IMODE(status.st_mode)


def _new_draft(target: Path, mode: int | None) -> tuple[Path, int]:
    """Return a draft with a unique name, open and locked."""
    while True:
        draft = target.with_name(f"{_prefix(target)}{secrets.token_hex(8)}{DRAFT}")
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        descriptor = os.open(draft, flags, 0o666)
        try:
            if mode is not None:
                with suppress(OSError):
                    os.chmod(draft, mode)
            # Another process that cleans up drafts may have locked and deleted it before.
            if not _lock(descriptor, wait=True) or os.fstat(descriptor).st_nlink:
                return draft, descriptor
        except BaseException:
            os.close(descriptor)
            draft.unlink(missing_ok=True)
            raise
        os.close(descriptor)


def _lock(descriptor: int, wait: bool) -> bool:
    """Lock a file until it is closed; return whether that succeeded."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:  # the file is locked, or the file system has no locks
        return False
    return True


def _prefix(target: Path) -> str:
    return f".{target.name[:NAME]}."


def _delete_leftovers(target: Path) -> None:
    """Delete the drafts of processes that were killed while writing this file."""
    prefix = _prefix(target)
    with os.scandir(target.parent) as entries:
        drafts = [e.path for e in entries if e.name.startswith(prefix) and e.name.endswith(DRAFT)]
    for left in drafts:
        with suppress(OSError):
            if fcntl is None:
                os.unlink(left)
                continue
            descriptor = os.open(left, os.O_RDWR)
            try:
                if _lock(descriptor, wait=False):
                    os.unlink(left)
            finally:
                os.close(descriptor)


def _flush_folder(folder: Path) -> None:
    """Flush a folder's new entry to the disk, if the system can flush folders."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _cannot(path: Path, error: OSError) -> CannotWrite:
    why = error.strerror or str(error)
    return CannotWrite(f"cannot write {str(path)!r}: {why}. An earlier file is unchanged.")
