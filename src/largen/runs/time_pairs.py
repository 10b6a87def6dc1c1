"""Kernels between pairs of times, as an array with two axes of times."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from largen.errors import InvalidInput
from largen.results.labels import long_name
from largen.text import shown

if TYPE_CHECKING:
    import xarray


def all_pairs(times: np.ndarray) -> np.ndarray:
    """Return the pairs (t, s), s ≤ t, of ascending time indices, (pair, 2)."""
    return np.asarray(times, int)[np.stack(np.tril_indices(len(times)), axis=1)]


def between_times(dataset: xarray.Dataset, record: str) -> xarray.DataArray:
    """Return a kernel that was recorded between pairs of times, with axes ``step, step_2, …``.

    What was recorded at (t, s) is known at (s, t), with samples, outputs and positions exchanged.
    """
    import xarray

    there = [str(name) for name in dataset if "pair" in dataset[name].dims]
    known = sorted(name.replace("_pair", "") for name in there)
    if not isinstance(record, str) or record not in known:
        advice = f"take {', '.join(known)}" if known else "pass record_pairs='all' to lg.solve"
        raise InvalidInput(f"record: {shown(record)} has no kernels between times; {advice}.")
    pairs = dataset[there[[name.replace("_pair", "") for name in there].index(record)]]
    later, earlier = pairs["pair_step"].values, pairs["pair_step_2"].values
    steps, places = np.unique(np.concatenate([later, earlier]), return_inverse=True)
    rows, columns = np.split(places, 2)
    axes = [str(axis) for axis in pairs.dims[1:]]
    turned = {axis: axis.removesuffix("_2") if "_2" in axis else f"{axis}_2" for axis in axes}
    order = [axes.index(turned[axis] if turned[axis] in axes else axis) for axis in axes]
    values = np.full((len(steps), len(steps), *pairs.shape[1:]), np.nan, pairs.dtype)
    values[columns, rows] = pairs.values.transpose(0, *(1 + np.array(order)))
    values[rows, columns] = pairs.values
    times = dataset["time"].values[steps]
    both = {
        "step": steps,
        "step_2": steps,
        "time": ("step", times, {"long_name": "time $t$"}),
        "time_2": ("step_2", times, {"long_name": "time $s$"}),
    }
    layers = {"layer": pairs["layer"].values} if "layer" in pairs.coords else {}
    about = {"long_name": long_name(record)}
    return xarray.DataArray(values, {**both, **layers}, ("step", "step_2", *axes), record, about)
