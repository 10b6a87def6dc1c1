"""Files of results: several results in one file, and reading any of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from largen.errors import InvalidInput
from largen.files import as_path, is_archive, load_arrays, load_tree, save_dataset
from largen.results import Result, with_labels
from largen.results.protocol import KIND, TEXT, to_store, tuple_from
from largen.runs.trajectory import Trajectory
from largen.text import shown

if TYPE_CHECKING:
    import xarray


class SavedResult(Result):
    """A result that was read from a file: its numbers, its printed form and a picture.

    Attributes
    ----------
    kind
        The name of the class of the result that was saved; "Dataset" of numbers alone.
    """

    def __init__(self, dataset: xarray.Dataset):
        self._dataset = dataset
        self.kind = dataset.attrs.get(KIND, "Dataset").rpartition(":")[2]

    @with_labels
    def to_xarray(self) -> xarray.Dataset:
        """Return the numbers."""
        return self._dataset.copy()

    def __repr__(self) -> str:
        return self._dataset.attrs.get(TEXT) or repr(self._dataset)


def save(path: str | PathLike[str], **results: Any) -> Path:
    """Write several results to one netCDF-4 file, each in a group of its name.

    Parameters
    ----------
    path
        The file.
    results
        Results by name; a list of results for results of one kind, such as the networks of several
        widths. Every result with ``to_xarray`` can be saved.

    Returns
    -------
    Path
        The path.

    Raises
    ------
    InvalidInput
        If something is not a result, or the path is none.
    CannotWrite
        If the disk is full, or writing is not permitted.

    Examples
    --------
    >>> import tempfile, largen as lg, numpy as np
    >>> data = lg.Dataset(np.eye(3), np.array([1.0, -1.0, 1.0]))
    >>> run = lg.Run(lg.mlp(1, "erf"), lg.ntk(), data, optimizer=lg.gd(lr=0.5), steps=5)
    >>> limit, nets = lg.solve(run), [lg.train(run, width=n, seeds=4) for n in (8, 16)]
    >>> path = lg.save(f"{tempfile.mkdtemp()}/all.nc", limit=limit, nets=nets,
    ...                report=lg.compare(limit, nets))
    >>> saved = lg.load(path)
    >>> sorted(saved), saved["nets"][1].width, str(saved["report"]) == str(lg.compare(limit, nets))
    (['limit', 'nets', 'report'], 16, True)
    """
    import xarray

    if not results:
        raise InvalidInput("results: wanted at least one, by name, such as limit=limit.")
    groups: dict[str, xarray.Dataset] = {}
    for name, value in results.items():
        several = isinstance(value, Sequence) and not hasattr(value, "to_xarray")
        numbered = [(f"/{name}/{i}", each) for i, each in enumerate(value)] if several else []
        for place, each in numbered or [(f"/{name}", value)]:
            if isinstance(each, type) or not callable(getattr(each, "to_xarray", None)):
                raise InvalidInput(f"{name}: wanted a result of largen, got {shown(each)}.")
            groups[place] = to_store(each)
    save_dataset(path, xarray.DataTree.from_dict(groups))
    return Path(path)


def load(path: str | PathLike[str]) -> Any:
    """Read a file of numbers that largen wrote: a result, several of them, or a checkpoint.

    It is what a result's ``save`` wrote, or :func:`save` of several results together, or a command
    such as ``largen quickstart``.

    Parameters
    ----------
    path
        The file.

    Returns
    -------
    result
        A :class:`Trajectory`, or a result of the class that was saved, if this can be made again of
        its numbers; otherwise a :class:`SavedResult`, which prints and plots alike and has the same
        ``to_xarray``. For a file of several results a dictionary of them, whose entries are
        dictionaries where there are groups of groups; for JSON, such as the summary of a command,
        what it holds. For a file that ``checkpoint=`` named, and
        from which the same call resumes, a dictionary of its arrays.

    Raises
    ------
    InvalidInput
        If there is no such file, or it is not one of largen's results.
    DamagedFile
        If the content differs from what was written.
    """
    place = as_path("path", path)
    if place.suffix == ".json" and place.is_file():
        return _summary(place)
    if is_archive(place):
        return load_arrays(place)
    groups, has_checksum = load_tree(path)
    if set(groups) == {"/"}:
        return _restore(groups["/"], path, has_checksum)
    contents: dict[str, Any] = {}
    for where, dataset in groups.items():
        if not dataset.variables and not dataset.attrs:
            continue  # a group that only holds others
        *outer, name = where.strip("/").split("/")
        inside = contents
        for each in outer:
            inside = inside.setdefault(each, {})
        inside[name] = _restore(dataset, path, has_checksum)
    return {name: _with_lists(each) for name, each in contents.items()}


def _summary(place: Path) -> Any:
    """Return the numbers that a command wrote as text."""
    try:
        return json.loads(place.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidInput(f"path: {str(place)!r} is not valid JSON: {error}") from None


def _with_lists(group: Any) -> Any:
    """Return a group of results, a list if their names are the numbers from 0 on."""
    if not isinstance(group, dict):
        return group
    held = {name: _with_lists(each) for name, each in group.items()}
    numbers = [str(i) for i in range(len(held))]
    return [held[i] for i in numbers] if set(held) == set(numbers) else held


def _restore(dataset: xarray.Dataset, path: Any, has_checksum: bool) -> Any:
    """Return the result that a data set was made of."""
    attributes = dataset.attrs
    if "format" in attributes:
        return Trajectory.from_file(dataset, has_checksum, path=path)
    if KIND not in attributes or TEXT not in attributes:
        if has_checksum:  # numbers that are no result, such as those of a paper's figure
            return SavedResult(dataset)
        raise InvalidInput(f"path: {str(path)!r} does not hold a result of largen.")
    kind = _class_of(attributes[KIND])
    attributes_of_data = {
        name: value for name, value in attributes.items() if name not in (KIND, TEXT)
    }
    plain = dataset.drop_attrs(deep=False).assign_attrs(attributes_of_data)
    if hasattr(kind, "from_xarray"):
        return kind.from_xarray(plain)
    if hasattr(kind, "_fields"):
        try:
            return tuple_from(kind, plain)
        except TypeError:
            pass
    return SavedResult(dataset)


def _class_of(name: str) -> Any:
    """Return a class of the library by its name, or None if it has none of that name any more."""
    module, _, kind = name.partition(":")
    if not module.startswith("largen."):
        return None
    try:
        return getattr(import_module(module), kind, None)
    except ImportError:
        return None
