"""The pilots of a sweep, for a forecast."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from largen.errors import InvalidInput, one_of
from largen.sweeps.forecasting import Pilots
from largen.sweeps.plans import doubts_of_sweep
from largen.text import shown

if TYPE_CHECKING:
    import xarray

AXES = ("scheme", "width", "depth", "seed", "lr")


def pilots_of(data: xarray.Dataset, of: Any, scheme: Any, depth: Any) -> Pilots:
    """Return the losses of one scheme and depth, for all widths."""
    one_of("of", of, [str(name) for name in data.data_vars if name != "margin_error"])
    losses = data[of]
    for name, wanted in (("scheme", None if scheme is None else str(scheme)), ("depth", depth)):
        losses = _one(losses, name, wanted)
    more = [str(axis) for axis in losses.dims if axis not in AXES]
    if len(more) > 1:
        raise InvalidInput(
            f"the sweep has {' and '.join(more[:-1])} as axes; choose one value first: "
            f"Sweep(found.data.sel({more[0]}=…))."
        )
    steps = _steps(data, of, more)
    losses = losses.transpose("width", "lr", "seed", *more)
    run = losses.notnull()
    rates = run.any(("seed", *more)).all("width").values  # those that all widths have
    if losses.sizes["width"] < 2 or not rates.any():
        raise InvalidInput(
            "the sweep has fewer than two widths with the same rates; wanted a Grid with, say, "
            "widths=[32, 64, 128]."
        )
    arrays = []
    for own, there in zip(losses.values[:, rates], run.values[:, rates], strict=True):
        seeds = there.reshape(*there.shape[:2], -1).any(2).all(0)
        arrays.append(own[:, seeds].reshape(rates.sum(), seeds.sum(), -1))
    doubts = doubts_of_sweep(data.attrs, str(losses["scheme"].values))
    return Pilots(
        losses["width"].values.tolist(), arrays, losses["lr"].values[rates].tolist(), steps,
        doubts=doubts, verified=not doubts, of=of,
    )  # fmt: skip


def _one(losses: xarray.DataArray, axis: str, wanted: Any) -> xarray.DataArray:
    known = losses[axis].values.tolist()
    if wanted is None and len(known) == 1:
        wanted = known[0]
    if wanted is None:
        raise InvalidInput(f"{axis}: the sweep has several; wanted one of {known}.")
    if wanted not in known:
        raise InvalidInput(f"{axis}: wanted one of {known}, got {shown(wanted)}.")
    return losses.sel({axis: wanted})


def _steps(data: xarray.Dataset, of: str, more: list[str]) -> list[int]:
    """Return the number of steps behind each entry of a loss."""
    if not more:
        return [int(data.attrs.get("steps", 1))]
    steps = np.asarray(data[more[0]].values).astype(int)
    # Training losses are those of the batch of each step, before it.
    return (steps + 1 if of == "loss_train" else steps).tolist()
