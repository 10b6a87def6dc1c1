"""Spectra of trajectories: outliers of trained weights, sharpness and dissipation from K."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import jax
import numpy as np

from largen.arrays import precision
from largen.errors import InvalidInput, LostDigits, one_of
from largen.parameterizations import Optimizer, momentum_of
from largen.runs.records import check_descent
from largen.runs.run import Run
from largen.scalars import integer

if TYPE_CHECKING:
    import xarray

UNRESOLVED = 0.25  # relative error of the curvature along the gradient from which to warn
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


def sharpness(run: Run | None, dataset: xarray.Dataset, along: str | None) -> np.ndarray:
    """Return the Gauss-Newton part of the sharpness, or the curvature along the gradient."""
    if along is None:
        return _gauss_newton(run, dataset)
    one_of("along", along, ("gradient",))
    return _along_gradient(run, dataset)


def _gauss_newton(run: Run | None, dataset: xarray.Dataset) -> np.ndarray:
    """Return the largest eigenvalue of (η₀/P) K ℓ″ at each record, ([seed,] record)."""
    run, at, kernels, (_, second) = _recorded(run, dataset)
    p, c = second.shape[-3:-1]
    values, vectors = np.linalg.eigh(kernels)
    roots = vectors * np.sqrt(np.maximum(values, 0))[..., None, :]
    curved = np.einsum("...mab,...mbk->...mak", second, roots.reshape(*second.shape[:-1], p * c))
    both = np.swapaxes(roots, -1, -2) @ curved.reshape(kernels.shape)
    return run.rates_at(at) / p * np.linalg.eigvalsh(both)[..., -1]


def _along_gradient(run: Run | None, dataset: xarray.Dataset) -> np.ndarray:
    """Return η gᵀHg/|g|² of the whole Hessian at each record: as recorded, or from K."""
    if "gradient_curvature" in dataset:
        return dataset["gradient_curvature"].values
    run, at, kernels, (first, second) = _recorded(run, dataset)
    if run.optimizer.continuous or not _plain(run.optimizer):
        raise InvalidInput(
            f"along: steps of {run.optimizer} are not along the gradient; wanted gradient descent "
            "without momentum, decay and batches."
        )
    if len(at) < 2 or (np.diff(at) != 1).any():
        raise InvalidInput(
            "along: wanted tangent kernels of two or more steps in a row, from which their change "
            f"in a step is known, got those of steps {at.tolist()}; pass record_at to lg.solve."
        )
    rates = run.rates_at(at)
    if not (rates[:-1] > 0).all():
        raise InvalidInput("along: the rate is 0 at a step, in which kernels do not change.")
    p = first.shape[-2]
    slope = first.reshape(*kernels.shape[:-1], 1)
    moved = kernels @ slope
    curved = second @ moved.reshape(*first.shape, 1)
    row = np.swapaxes(slope, -1, -2)
    square = (row @ moved)[..., 0, 0]
    of_outputs = (np.swapaxes(moved, -1, -2) @ curved.reshape(slope.shape))[..., 0, 0] / p
    central, one_sided = (
        (row @ derivative @ slope)[..., 0, 0] / 2 for derivative in _derivatives(kernels, rates)
    )
    found = rates * (of_outputs - central) / square
    error = np.abs(rates * (central - one_sided) / square)
    _warn_of_cancellation(at, found, error)
    return found


def _derivatives(kernels: np.ndarray, rates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return dK/dη₀t at each record by central and by one-sided differences.

    Both have an error of first order in the rate, and differ by as much.
    """
    times = np.append(0.0, np.cumsum(rates[:-1]))
    steps = np.diff(kernels, axis=-3) / np.diff(times)[:, None, None]
    one_sided = np.concatenate([steps, steps[..., -1:, :, :]], axis=-3)
    if len(rates) == 2:  # of a single difference no error is known
        return one_sided, np.zeros_like(one_sided)
    return np.gradient(kernels, times, axis=-3, edge_order=2), one_sided


def _warn_of_cancellation(at: np.ndarray, found: np.ndarray, error: np.ndarray) -> None:
    known = error <= UNRESOLVED * np.abs(found)
    lacking = at[~known.reshape(-1, len(at)).all(axis=0)]
    if len(lacking):
        worst = np.unravel_index(np.argmax(np.where(known, 0, error)), error.shape)
        warnings.warn(
            f"along: two terms cancel, and the change of K in a step is known to first order in "
            f"the rate: at {len(lacking)} of {len(at)} records, the first of them step "
            f"{lacking[0]}, the error is above {UNRESOLVED:.0%} of the curvature "
            f"({found[worst]:.2g} ± {error[worst]:.2g} at step {at[worst[-1]]}), and its "
            "sign may be wrong. record='sharpness' has it exactly, of networks and of one hidden "
            "layer at infinite width; smaller rates have less of the error.",
            LostDigits,
            stacklevel=5,
        )


def dissipation(run: Run | None, dataset: xarray.Dataset, relative: bool) -> np.ndarray:
    """Return −dL/dt at each record, (1/P²) ℓ′ᵀKℓ′ at rates of 1, ([seed,] record), or it over L."""
    run, at, kernels, (first, _) = _recorded(run, dataset)
    if not _plain(run.optimizer):
        raise InvalidInput(
            f"run: {run.optimizer} does not follow the gradient of the loss; wanted gradient "
            "descent or flow without momentum, decay, batches and noise."
        )
    slope = first.reshape(*kernels.shape[:-1], 1)
    # Times of gradient descent count rates already.
    rate = run.optimizer.lr if run.optimizer.continuous else 1.0
    falls = (np.swapaxes(slope, -1, -2) @ kernels @ slope)[..., 0, 0]
    falls = rate / first.shape[-2] ** 2 * falls
    if not relative:
        return falls
    loss = dataset["loss_train"].isel(step=at).values
    return np.divide(falls, loss, out=np.full_like(falls, np.nan), where=loss > 0)


def _plain(optimizer: Optimizer) -> bool:
    """Whether an optimizer follows the gradient of the loss alone."""
    alone = optimizer.descends and not momentum_of(optimizer)
    return alone and not optimizer.weight_decay and optimizer.batch_size is None


def _recorded(
    run: Run | None, dataset: xarray.Dataset
) -> tuple[Run, np.ndarray, np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Return the run, steps, K as matrices, and ℓ′ and ℓ″ of samples, at all records.

    The kernel limit has one kernel for all steps.
    """
    if run is None:
        raise InvalidInput("run: is not known of a loaded trajectory, and with it the rate.")
    check_descent("run", run.optimizer)
    if "ntk" not in dataset:
        raise InvalidInput("record: the trajectory has no tangent kernels; pass record=['ntk'].")
    kernels, outputs = dataset["ntk"].values, dataset["f_train"]
    p, c = len(run.data.y_train), int(np.prod(run.output_shape, dtype=int))
    if "record_step" in dataset:
        at = dataset["record_step"].values
    else:
        if not run.loss.squared:
            raise InvalidInput(
                f"loss: wanted 'mse': with {run.loss.name} gradients depend on the initialisation, "
                "and the kernel limit has the mean of outputs only."
            )
        at = dataset["step"].values
        kernels = np.broadcast_to(np.multiply.outer(kernels, np.eye(c)), (len(at), p, p, c, c))
    outputs = outputs.isel(step=at).values
    lead = outputs.shape[: outputs.ndim - 1 - len(run.output_shape)]
    first, second = derivatives(run, outputs.reshape(-1, *run.output_shape), c)
    kernels = kernels.reshape(*lead, p, p, c, c).swapaxes(-3, -2)
    both = first.reshape(*lead, p, c), second.reshape(*lead, p, c, c)
    return run, at, kernels.reshape(*lead, p * c, p * c), both


def derivatives(run: Run, outputs: np.ndarray, c: int) -> tuple[np.ndarray, np.ndarray]:
    """Return ∂ℓ/∂f and ∂²ℓ/∂f∂f of all samples, for outputs (seeds and records · sample, ...)."""
    y = run.data.y_train
    with precision(outputs):
        targets = np.tile(y, (len(outputs) // len(y), *(1,) * (y.ndim - 1)))
        parts = [jax.jit(jax.vmap(of(run.loss.sample)))(outputs, targets)
                 for of in (jax.grad, jax.hessian)]  # fmt: skip
    first, second = map(np.asarray, parts)
    return first.reshape(len(outputs), c), second.reshape(len(outputs), c, c)
