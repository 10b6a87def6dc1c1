"""Reading and writing the contents of files: named arrays, data sets, plans, figures, text."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar
from zipfile import ZipFile

import numpy as np

from largen.errors import DamagedFile, InvalidInput
from largen.files.checksums import open_verified
from largen.files.whole import as_path, write_whole

if TYPE_CHECKING:
    import xarray

T = TypeVar("T")


def save_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write named arrays as ``.npz``, with a checksum."""
    held: dict[str, Any] = {name: np.asarray(value) for name, value in arrays.items()}
    # Older versions of np.savez, which does the same, leave the archive open if the disk is full.
    with write_whole(path, checksum=True) as file, ZipFile(file, "w") as archive:
        for name, array in held.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as part:
                np.lib.format.write_array(part, array, allow_pickle=False)


def load_arrays(path: Path) -> dict[str, np.ndarray] | None:
    """Return the arrays of a file; None if there is no such file."""
    if not path.is_file():
        return None
    with open_verified(path) as (file, has_checksum):
        # A file without a checksum is not parsed: a damaged header can request any memory.
        if not has_checksum:
            raise DamagedFile(path, "it has no checksum")
        with np.load(file, allow_pickle=False) as held:
            return dict(held)


def is_archive(path: Path) -> bool:
    """Whether a file has named arrays, as :func:`save_arrays` writes them."""
    if not path.is_file():
        return False
    with open_verified(path) as (file, _):
        return file.read(4) == b"PK\x03\x04"


def save_dataset(
    path: str | PathLike[str], data: xarray.Dataset | xarray.DataTree, *, name: str = "path"
) -> None:
    """Write a data set, or a tree of data sets, as netCDF-4, with a checksum.

    The file is built in memory, since HDF5 ends the process later if it cannot write to a disk.
    """
    import h5netcdf
    import xarray
    from xarray.backends import H5NetCDFStore

    groups = {"/": data} if isinstance(data, xarray.Dataset) else data.to_dict()
    whole = io.BytesIO()
    with h5netcdf.File(whole, "w") as file:
        for place, dataset in groups.items():
            group = file if place == "/" else file.create_group(place)
            dataset.dump_to_store(H5NetCDFStore(group))
    with write_whole(path, name=name, checksum=True) as draft:
        draft.write(whole.getbuffer())


def load_dataset(path: str | PathLike[str], *, name: str = "path") -> tuple[xarray.Dataset, bool]:
    """Return the data set of a netCDF-4 file, and whether it has a checksum, then verified."""
    import xarray

    return _load_netcdf(path, name, lambda file: xarray.load_dataset(file, engine="h5netcdf"))


def load_tree(
    path: str | PathLike[str], *, name: str = "path"
) -> tuple[dict[str, xarray.Dataset], bool]:
    """Return all groups of a netCDF-4 file by their paths, and whether it has a checksum."""
    import h5netcdf
    import xarray

    def read(file: BinaryIO) -> dict[str, xarray.Dataset]:
        content = io.BytesIO(file.read())
        with h5netcdf.File(content, "r") as held:
            places = list(_groups(held))
        return {
            group: xarray.load_dataset(content, engine="h5netcdf", group=group) for group in places
        }

    return _load_netcdf(path, name, read)


def _load_netcdf(
    path: str | PathLike[str], name: str, read: Callable[[BinaryIO], T]
) -> tuple[T, bool]:
    """Apply ``read`` to a netCDF-4 file; return its result, and whether there is a checksum."""
    place = as_path(name, path)
    if not place.is_file():
        raise InvalidInput(f"{name}: there is no file {str(path)!r}.")
    with open_verified(place) as (file, has_checksum):
        try:
            return read(file), has_checksum
        except Exception as error:  # without a checksum, HDF5 raises errors of many types
            raise DamagedFile(place, f"it is not a complete netCDF-4 file: {error}") from None


def _groups(group: Any) -> Iterator[str]:
    yield group.name
    for inner in group.groups.values():
        yield from _groups(inner)


def json_with_checksum(content: Mapping[str, Any]) -> str:
    """Return JSON that contains a checksum of its content."""
    plain = json.loads(json.dumps(content))  # whose names are strings
    return json.dumps({**plain, "checksum": _checksum(plain)}, indent=1)


def read_json(text: Any, what: str | Path = "the text") -> dict[str, Any]:
    """Return what :func:`json_with_checksum` wrote; ``what`` names the source in messages."""
    try:
        content = json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise DamagedFile(what, f"it is not valid JSON: {error}") from None
    if not isinstance(content, dict) or "checksum" not in content:
        raise DamagedFile(what, "it has no checksum")
    if content.pop("checksum") != _checksum(content):
        raise DamagedFile(what, "its checksum differs from that of its content")
    return content


def _checksum(content: Mapping[str, Any]) -> str:
    plain = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(plain.encode()).hexdigest()


def save_text(path: str | PathLike[str], text: str) -> None:
    """Write text."""
    with write_whole(path) as file:
        file.write(text.encode())


def save_figure(path: str | PathLike[str], figure: Any, *, name: str = "path") -> None:
    """Write a matplotlib figure in the format that the path's suffix names."""
    place = as_path(name, path)
    kind = place.suffix[1:].lower()
    known = sorted(figure.canvas.get_supported_filetypes())
    if kind not in known:
        written = f"are not written as {place.suffix!r}" if kind else f"need a suffix, got {path!r}"
        raise InvalidInput(f"{name}: pictures {written}; known: {', '.join(known)}.")
    with write_whole(place, name=name) as file:
        figure.savefig(file, format=kind, bbox_inches="tight")
