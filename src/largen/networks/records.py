"""Kernels and spectra recorded along training."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from largen.errors import InvalidInput, NoTheory
from largen.networks.plan import Plan, feedback_at
from largen.networks.spectra import (
    curvature,
    gradient_curvature,
    hidden_weights,
    input_jacobian,
    output_hessian,
    singular_values,
)
from largen.networks.tangent import coupling, inputs_alone, kernels, probe
from largen.runs import Run
from largen.runs.records import OF_FEEDBACK, OF_NETWORKS, check_descent, check_rule, record_names

SPECTRA = ("singular_values", "sharpness", "output_hessian", "input_jacobian")
OF_GRADIENTS = (*OF_NETWORKS[1:], *OF_FEEDBACK)  # records of gradients of single samples


def check_records(
    run: Run, record: Iterable[str], record_at: Any
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Check which kernels to record, and at which times; by default at the first and the last."""
    chosen = record_names(record, SPECTRA)
    check_rule(run.optimizer, chosen)
    if set(chosen) & {*OF_GRADIENTS, "output_hessian", "input_jacobian"}:
        _check_gradients(run)
    if "sharpness" in chosen:
        check_descent("record", run.optimizer)
    time_indices = run.time_indices("record_at", record_at)
    if record_at is None:
        return chosen, time_indices if chosen else ()
    if not chosen:
        names = OF_NETWORKS + SPECTRA
        raise InvalidInput(
            f"record_at: nothing to record; say what in record=, one or more of {', '.join(names)}."
        )
    if not time_indices:
        raise InvalidInput("record_at: wanted at least one time index, got none.")
    return chosen, time_indices


def _check_gradients(run: Run) -> None:
    """Check that there are gradients of single samples, each of which has one output."""
    coupled, why = coupling(run.net), None
    if coupled is not None:
        why = f"{coupled!r} couples the samples of a batch, so that none has gradients of its own"
    if run.positions is not None:
        why = f"gradients of an output at each of {run.positions} positions are not implemented"
    if why is not None:
        raise NoTheory(f"record: {why}; record='feature_kernel' is possible.")


def check_spectra(plan: Plan) -> None:
    """Check that the network has the weights of which singular values are to be recorded."""
    if "singular_values" in plan.records and not hidden_weights(plan):
        raise InvalidInput(
            "record: 'singular_values' are those of weights between hidden layers, and "
            f"{plan.network.net} has none."
        )


def record(plan: Plan, params: Any, x: Any, y: Any, feedback: Any = None) -> dict[str, Any]:
    """Return what is to be recorded: Φ and G among training samples, K with test samples as well.

    ``y``: the targets of the training samples. The sharpness is that of a rate of 1.
    """
    network, samples = plan.network, plan.samples
    kept = {}
    if "singular_values" in plan.records:
        kept["singular_values"] = singular_values(plan, params)
    if "sharpness" in plan.records:
        kept["hessian_sharpness"] = curvature(plan, params, x[:samples], y)
        kept["gradient_curvature"] = gradient_curvature(plan, params, x[:samples], y)
    if "output_hessian" in plan.records:
        kept["output_hessian"] = _of_outputs(plan, output_hessian(plan, params, x[:samples]))
    if "input_jacobian" in plan.records:
        values = _of_outputs(plan, input_jacobian(plan, params, x))
        kept["input_jacobian"] = values[:samples]
        if len(x) > samples:
            kept["input_jacobian_test"] = values[samples:]
    if set(plan.records) <= set(SPECTRA):
        return kept
    found = probe if set(plan.records) & set(OF_GRADIENTS) else inputs_alone
    training = found(network, params, x[:samples])
    kernels_now = kernels(network, training, training)
    found = {
        "feature_kernel": kernels_now.features,
        "gradient_kernel": kernels_now.gradients,
        "ntk": kernels_now.tangent,
    }
    if "ntk" in plan.records and len(x) > samples:
        test = probe(network, params, x[samples:])
        kept["ntk_test"] = kernels(network, test, training).tangent
    if set(plan.records) & set(OF_FEEDBACK):
        feedback = feedback_at(plan, params, x[:samples], y, feedback)
        back = probe(network, params, x[:samples], feedback)
        mixed = kernels(network, training, back)
        found |= {"pseudo_gradient_kernel": mixed.gradients, "effective_ntk": mixed.tangent}
        if "alignment" in plan.records:
            of_back = kernels(network, back, back).gradients
            gradients = kernels_now.gradients, mixed.gradients, of_back
            one, both, other = map(_of_samples, gradients)
            size = jnp.sqrt(one * other)
            kept["alignment"] = jnp.where(size > 0, both / jnp.where(size > 0, size, 1), 0)
    return kept | {name: found[name] for name in found if name in plan.records}


def _of_outputs(plan: Plan, values: Any) -> Any:
    """Return values of each sample (sample, output), without the axis of a single output."""
    return values[:, 0] if plan.network.outputs is None else values


def _of_samples(kernel: Any) -> Any:
    """Return the diagonal of a kernel (layer, sample, sample[, output, output]) in both pairs."""
    found = jnp.einsum("lmm...->lm...", kernel)
    return found if found.ndim == 2 else jnp.einsum("lmcc->lmc", found)


def arrays_for(plan: Plan, kernels: Any) -> Any:
    """Return zeros for kernels of the given shapes at each recorded time."""
    count = len(plan.record_at)
    return jax.tree.map(lambda one: jnp.zeros((count, *one.shape), one.dtype), kernels)


def write_record(plan: Plan, records: Any, index: Any, now: Callable[[], Any]) -> Any:
    """Return the records, with the kernels at a time index added if it is to be recorded."""
    at = jnp.asarray(plan.record_at)
    place = jnp.searchsorted(at, index)

    def write(records):
        return jax.tree.map(lambda all, one: all.at[place].set(one), records, now())

    return lax.cond((at == index).any(), write, lambda records: records, records)


def variables(plan: Plan, arrays: dict[str, Any], rates: Any) -> dict[str, Any]:
    """Name the axes of the records of an ensemble; ``rates``: η₀ at these times."""
    alone = plan.network.outputs is None
    out, values = ((), ()) if alone else (("output", "output_2"), ("jacobian_value",))
    axes = {
        "feature_kernel": ("layer", "sample", "sample_2"),
        "gradient_kernel": ("layer", "sample", "sample_2", *out),
        "ntk": ("sample", "sample_2", *out),
        "pseudo_gradient_kernel": ("layer", "sample", "sample_2", *out),
        "effective_ntk": ("sample", "sample_2", *out),
        "alignment": ("layer", "sample", *out[:1]),
        "ntk_test": ("test_sample", "sample", *out),
        "singular_values": ("weight_layer", "value"),
        "hessian_sharpness": (),
        "gradient_curvature": (),
        "output_hessian": ("sample", *out[:1]),
        "input_jacobian": ("sample", *values),
        "input_jacobian_test": ("test_sample", *values),
    }
    for name in ("hessian_sharpness", "gradient_curvature"):
        if name in arrays:
            arrays = arrays | {name: arrays[name] * rates}
    named: dict[str, Any] = {}
    named |= {name: (("seed", "record", *axes[name]), array) for name, array in arrays.items()}
    if arrays:
        named["record_step"] = (("record",), np.asarray(plan.record_at))
    for name in arrays:
        if "layer" in axes[name]:
            named["layer"] = (("layer",), np.arange(1, arrays[name].shape[2] + 1))
    if "singular_values" in arrays:
        number = arrays["singular_values"].shape[2]
        named["weight_layer"] = (("weight_layer",), np.arange(2, number + 2))
    return named
