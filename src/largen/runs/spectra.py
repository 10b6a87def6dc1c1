"""Spectra of trajectories: outliers of trained weights, and the sharpness of tangent kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import numpy as np

from largen.arrays import precision
from largen.errors import InvalidInput
from largen.runs.records import check_descent
from largen.runs.run import Run
from largen.scalars import integer

if TYPE_CHECKING:
    import xarray

APART = 1e-5  # relative distance from the edge beyond which a singular value is not of the bulk


def weight_outliers(dataset: xarray.Dataset, layer: int) -> xarray.Dataset:
    """Return the singular values above the edge of the weights that lead to a hidden layer."""
    if "bulk_edge" not in dataset:
        raise InvalidInput(
            "record: the trajectory has no singular values of a limit; pass "
            "record=['singular_values'] to lg.solve, for a mean field of several hidden layers."
        )
    known = dataset["weight_layer"].values
    layer = integer("layer", layer, at_least=int(known[0]), at_most=int(known[-1]))
    names = {"singular_values": "value", "singular_values_error": "value_error"}
    names |= {"right_overlap": "right_overlap", "left_overlap": "left_overlap"}
    there = {old: new for old, new in names.items() if old in dataset}
    one = dataset.sel(weight_layer=layer)
    found = one[[*there, "bulk_edge"]].rename({**there, "bulk_edge": "edge", "value": "outlier"})
    above = found["value"] > found["edge"] * (1 + APART)
    most = int(above.sum("outlier").max())
    edge = found["edge"]
    return found.drop_vars("edge").where(above).isel(outlier=slice(most)).assign(edge=edge)


def gauss_newton(run: Run | None, dataset: xarray.Dataset) -> np.ndarray:
    """Return the largest eigenvalue of (η₀/P) K ℓ″ at each record, ([seed,] record)."""
    if run is None:
        raise InvalidInput("run: is not known of a loaded trajectory, and with it the rate.")
    check_descent("run", run.optimizer)
    if "ntk" not in dataset:
        raise InvalidInput("record: the trajectory has no tangent kernels; pass record=['ntk'].")
    at = dataset["record_step"].values
    outputs = dataset["f_train"].isel(step=at).values
    p, c = len(run.data.y_train), int(np.prod(run.output_shape, dtype=int))
    lead = outputs.shape[: outputs.ndim - 1 - len(run.output_shape)]
    second = _second_derivatives(run, outputs.reshape(-1, *run.output_shape), c)
    second = second.reshape(-1, p, c, c)
    kernels = dataset["ntk"].values.reshape(-1, p, p, c, c).swapaxes(2, 3).reshape(-1, p * c, p * c)
    values, vectors = np.linalg.eigh(kernels)
    roots = vectors * np.sqrt(np.maximum(values, 0))[:, None]
    curved = np.einsum("rmab,rmbk->rmak", second, roots.reshape(-1, p, c, p * c))
    both = np.swapaxes(roots, 1, 2) @ curved.reshape(-1, p * c, p * c)
    largest = np.linalg.eigvalsh(both)[:, -1].reshape(lead)
    return run.rates_at(at) / p * largest


def _second_derivatives(run: Run, outputs: np.ndarray, c: int) -> np.ndarray:
    """Return ∂²ℓ/∂f∂f of all samples, for outputs (seeds and records · sample, *output)."""
    y = run.data.y_train
    with precision(outputs):
        hessian = jax.jit(jax.vmap(jax.hessian(run.loss.sample)))
        found = hessian(outputs, np.tile(y, (len(outputs) // len(y), *(1,) * (y.ndim - 1))))
    return np.asarray(found).reshape(len(outputs), c, c)
