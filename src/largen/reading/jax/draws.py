"""Kernels of functions in JAX at finite width, of parameters that they draw themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from largen.errors import InvalidInput
from largen.interrupts import check
from largen.networks import ntk_of_function
from largen.reading.jax.tracing import computed
from largen.reading.nodes import Map, law_of

if TYPE_CHECKING:
    from largen.reading.jax.family import Functions

OUTPUTS = 256  # of a read-out that is drawn wider, so that K is an average over many outputs


def kernels_of(
    family: Functions, last: Map, x: np.ndarray, width: int, seeds: range
) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Return what :meth:`largen.reading.family.Family.kernels` says of functions in JAX."""
    parameters = family.at(width)
    f, draw = family.function(width)
    rates = {n: 0.0 if p.law is None else p.law.variance for n, p in parameters.items()}
    nngp, ntk = [], []
    with computed():
        samples = jnp.asarray(x)
        outputs = jax.jit(f)
        for seed in seeds:
            check()
            weights = draw(seed)
            wider = weights | _wider(last, parameters, seed)
            try:
                found = outputs(wider, samples)
            except (TypeError, ValueError, AssertionError):  # a fixed number of outputs
                found = outputs(weights, samples)
            nngp.append(_covariance(found))
            tangents = np.asarray(ntk_of_function(f, weights, samples, rates=rates))
            if tangents.ndim == 4:
                tangents = np.einsum("abkk->ab", tangents) / tangents.shape[-1]
            ntk.append(tangents)
    return np.stack(nngp), np.stack(ntk), {}


def _wider(last: Map, parameters: Any, seed: int) -> dict[str, Any]:
    """Return a read-out of more outputs."""
    rng = np.random.default_rng(seed)
    shape = list(parameters[last.weight].shape)
    shape[last.fan_out] = OUTPUTS
    law = law_of(last.weight, parameters)
    found = {last.weight: jnp.asarray(rng.normal(0, law.variance**0.5, shape))}
    if last.bias is not None:
        law = law_of(last.bias, parameters)
        found[last.bias] = jnp.asarray(rng.normal(law.mean, law.variance**0.5, OUTPUTS))
    return found


def _covariance(outputs: Any) -> np.ndarray:
    if outputs.ndim > 2:
        raise InvalidInput(
            f"net: wanted outputs (sample,) or (sample, output), got shape {outputs.shape}."
        )
    rows = np.asarray(outputs).reshape(len(outputs), -1)
    return rows @ rows.T / rows.shape[1]
