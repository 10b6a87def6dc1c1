"""The methods that all results have: ``to_xarray``, ``save``, ``plot``.

A class of results derives from :class:`Result` and defines ``to_xarray``. A named tuple, which
cannot have such a base, takes the functions of this module as its methods:

    to_xarray = fields_over(nngp=("sample", "sample_2"))
    save, plot = save_result, plot_result

Pictures are made in ``largen.plots``, a room below, which draws data sets, knows some classes by
name, and is loaded with the first picture: no other room needs matplotlib.
"""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from largen.files import save_dataset, save_figure
from largen.results.display import in_notebooks
from largen.results.labels import labelled, with_labels

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

KIND = "largen_result"  # the attribute of a saved data set with the class of its result
TEXT = "largen_text"  # … and with its printed form
EMPTY = "largen_none"  # … and with the names of fields that are None


def save_result(self: Any, path: str | PathLike[str]) -> Path:
    """Write the result's numbers and its printed form to a netCDF-4 file, with a checksum.

    :func:`largen.load` reads it. The file is written atomically: after a failure the previous file
    is unchanged.

    Raises
    ------
    InvalidInput
        If the folder does not exist, or the path exists and is not a regular file.
    CannotWrite
        If the disk is full, or writing is not permitted.
    """
    save_dataset(path, to_store(self))
    return Path(path)


def to_store(result: Any) -> xarray.Dataset:
    """Return a result's data set, with the name of its class and its printed form."""
    dataset = result.to_xarray()
    kind = f"{type(result).__module__}:{type(result).__qualname__}"
    return dataset.assign_attrs({KIND: kind, TEXT: str(result)})


def plot_result(
    self: Any, path: str | PathLike[str] | None = None, ax: Any = None, *, what: str | None = None
) -> Figure:
    """Draw the result; write the picture to ``path`` if given.

    In a notebook the picture is shown. Its size, its fonts and its colours are those of your
    ``matplotlib.rcParams`` where you have changed them.

    Parameters
    ----------
    path
        A file whose suffix names the format: png, pdf, svg, … A name without suffix is read as
        ``what``, and no file is written.
    ax
        matplotlib axes in which one panel of the picture is drawn: ``what``, or the first. By
        default all panels are drawn, in a new figure.
    what
        The name of a panel, such as ``"loss"``, or of a variable of ``to_xarray()``, such as
        ``"feature_kernel"``, which is drawn alone. A wrong name is answered by all names.

    Returns
    -------
    Figure
        The matplotlib figure.

    Raises
    ------
    InvalidInput
        If ``ax`` is not from matplotlib, there is neither a panel nor a variable of that name, the
        path has not the suffix of a picture, or there are only single numbers.
    """
    return drawn(self, getattr(self, "_figure", None), path, ax, what)


def drawn(
    result: Any,
    own: Callable[[], Figure] | None,
    path: str | PathLike[str] | None,
    ax: Any,
    what: str | None,
) -> Figure:
    """Draw a result as :func:`plot_result` does, by a function of no arguments if not None."""
    from largen import plots

    if what is None and isinstance(path, str) and "." not in path:
        return plots.draw(result, own, ax, path, name="path")
    figure = plots.draw(result, own, ax, what)
    if path is not None:
        save_figure(path, figure)
    return figure


class Result:
    """The base of classes of results, which define ``to_xarray``.

    If a picture needs more than the data set, the class has a method ``_figure`` that draws it.
    """

    def to_xarray(self) -> xarray.Dataset:
        """Return all numbers with named axes."""
        raise NotImplementedError

    save = save_result
    plot = plot_result
    _repr_html_ = in_notebooks


class DataResult(Result):
    """The base of results whose numbers are a data set, their field ``data``."""

    data: xarray.Dataset

    @with_labels
    def to_xarray(self) -> xarray.Dataset:
        """Return a copy of ``data``."""
        return self.data.copy()


def fields_over(**axes: tuple[str, ...]) -> Callable[[Any], xarray.Dataset]:
    """Return the method ``to_xarray`` of a named tuple.

    Numbers become variables, and texts attributes. Fields that are None are left out. A mapping of
    numbers becomes a variable for each of its keys.

    Parameters
    ----------
    axes
        For each field that is an array, the names of its last axes; an array with more axes has
        ``extra``, ``extra_2``, … before them.
    """

    def to_xarray(self: Any) -> xarray.Dataset:
        """Return all fields: arrays with named axes, texts as attributes."""
        import xarray

        variables: dict[str, Any] = {}
        attributes: dict[str, Any] = {}
        for name in self._fields:
            value = getattr(self, name)
            if isinstance(value, str):
                attributes[name] = value
            elif isinstance(value, dict):
                for key, number in value.items():
                    variables[f"{name}_{key}".replace("/", "_")] = ((), np.asarray(number))
            elif value is None:
                attributes[EMPTY] = f"{attributes.get(EMPTY, '')} {name}".strip()
            else:
                array = np.asarray(value)
                variables[name] = (_named(axes.get(name, ()), array.ndim), array)
        return labelled(xarray.Dataset(variables, attrs=attributes))

    return to_xarray


def _named(axes: tuple[str, ...], count: int) -> tuple[str, ...]:
    """Return names of all axes of an array, given those of the last ones."""
    more = count - len(axes)
    if more <= 0:
        return axes[len(axes) - count :]
    return (*("extra" if i == 0 else f"extra_{i + 1}" for i in range(more)), *axes)


def tuple_from(kind: type, dataset: xarray.Dataset) -> Any:
    """Return the named tuple whose ``to_xarray`` gave a data set, or raise a TypeError."""
    fields: Any = getattr(kind, "_fields")  # noqa: B009  # pyright knows no named tuples of a type
    values: dict[str, Any] = {}
    for name in fields:
        if name in dataset.variables:
            value = dataset[name].values
            values[name] = value if value.ndim else value.item()
        elif name in dataset.attrs:
            values[name] = dataset.attrs[name]
        elif name in dataset.attrs.get(EMPTY, "").split():
            values[name] = None
        else:
            raise TypeError(f"{kind.__name__} has no {name} in this data set.")
    return kind(**values)
