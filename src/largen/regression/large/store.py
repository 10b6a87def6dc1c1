"""Zarr groups of kernel matrices, with chunks written atomically and verified by checksums."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.codecs import Crc32cCodec, ZstdCodec
from zarr.errors import ContainsArrayError, ContainsGroupError
from zarr.storage import LocalStore, MemoryStore

from largen.errors import CannotWrite, DamagedFile, InvalidInput
from largen.files import make_folder, write_whole

FORMAT = 2  # version of the groups' layout


class WholeFiles(LocalStore):
    """A folder of files that are written atomically: see :mod:`largen.files.whole`."""

    async def set(self, key: str, value: Any) -> None:
        """Write a file."""
        self._check_writable()
        await asyncio.to_thread(_write, self.root / key, value.to_bytes())

    async def set_if_not_exists(self, key: str, value: Any) -> None:
        """Write a file unless it exists."""
        if not (self.root / key).exists():
            await self.set(key, value)


def _write(path: Path, content: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotWrite(
            f"cannot make the folder {str(path.parent)!r}: {error.strerror}."
        ) from None
    with write_whole(path) as file:
        file.write(content)


def open_group(
    path: str | Path,
    identity: str,  # the text that identifies the group
    # names, shape, chunks, dtype: names, shape, chunk shape and dtype of the stored matrices.
    names: Sequence[str],
    shape: tuple[int, int],
    chunks: tuple[int, int],
    dtype: Any,
) -> Any:
    """Return a group of matrices, which is created if the folder holds none."""
    place = make_folder("path", path)
    store = WholeFiles(place)
    group: Any
    try:
        group = zarr.open_group(store, mode="r+")
        attributes = dict(group.attrs)
    except FileNotFoundError:
        attributes = _attributes(identity)
        group = _or_theirs(
            partial(zarr.create_group, store, attributes=attributes),
            partial(zarr.open_group, store, mode="r+"),
        )
        attributes = dict(group.attrs)
    except Exception as error:  # Zarr raises errors of many types for damaged JSON
        raise DamagedFile(place / "zarr.json", f"Zarr says {error!r}") from None
    if attributes != _attributes(str(attributes.get("identity"))):
        raise DamagedFile(place / "zarr.json", "it does not describe a kernel")
    if attributes["identity"] != identity:
        raise InvalidInput(
            f"path: {path} holds another kernel, of another network, parameterization, samples or "
            "block size; choose another folder, or delete it."
        )
    pattern = zarr.create_group(MemoryStore())
    for name in names:
        wanted = _create(pattern, name, shape, chunks, dtype)
        try:
            matrix = group[name]
        except KeyError:
            given = group, name, shape, chunks, dtype
            matrix = _or_theirs(partial(_create, *given), partial(group.__getitem__, name))
        except Exception as error:
            raise DamagedFile(place / name / "zarr.json", f"Zarr says {error!r}") from None
        if repr(matrix.metadata) != repr(wanted.metadata):
            raise DamagedFile(place / name / "zarr.json", "it does not describe this matrix")
    return group


def _or_theirs(create: Callable[[], Any], existing: Callable[[], Any]) -> Any:
    """Create the array, or open it if another process got there first."""
    try:
        return create()
    except (ContainsArrayError, ContainsGroupError):
        return existing()


def reopen_group(path: str) -> Any:
    """Return the group that :func:`open_group` has opened, in another process."""
    return zarr.open_group(WholeFiles(path), mode="r+")


def _create(
    group: Any, name: str, shape: tuple[int, int], chunks: tuple[int, int], dtype: Any
) -> Any:
    """Add a matrix to a group. Missing entries are NaN, and chunks have checksums."""
    return group.create_array(
        name,
        shape=shape,
        chunks=chunks,
        dtype=dtype,
        fill_value=np.nan,
        compressors=[ZstdCodec(level=0), Crc32cCodec()],
    )


def _attributes(identity: str) -> dict[str, Any]:
    """Return the attributes of a group, with a checksum."""
    checksum = hashlib.sha256(f"{FORMAT} {identity}".encode()).hexdigest()
    return {"format": FORMAT, "identity": identity, "checksum": checksum}
