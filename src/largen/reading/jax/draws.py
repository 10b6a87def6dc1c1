"""Kernels of functions in JAX at finite width, of parameters that they draw themselves."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from largen.errors import InvalidInput, LargenError, NoRule
from largen.interrupts import check
from largen.reading.jax.tracing import computed
from largen.reading.jax.values import Values
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
    nngp, ntk, squares = [], [], []
    with computed():
        samples = jnp.asarray(x, family.x.dtype)
        outputs, tangents = _measured(family, width), _tangents(f, samples, rates)
        for seed in seeds:
            check()
            weights = draw(seed)
            wider = weights | _wider(last, parameters, seed)
            try:
                found, means = outputs(wider, samples)
            except (LargenError, TypeError, ValueError):  # a fixed number of outputs
                found, means = outputs(weights, samples)
            nngp.append(_covariance(found))
            squares.append(means)
            ntk.append(np.asarray(tangents(weights)))
    moments = map(np.stack, zip(*squares, strict=True))
    named = dict(zip(_places(family, width), moments, strict=True))
    return np.stack(nngp), np.stack(ntk), named


def _places(family: Functions, width: int) -> dict[str, tuple[int, int]]:
    """Return where values of nodes are; nowhere where no network was read."""
    try:
        return family.nodes(width).places
    except NoRule:
        return {}


def _measured(family: Functions, width: int) -> Callable[[Any, Any], tuple[Any, list[Any]]]:
    """Return a function of weights and samples: the outputs, and mean squares of nodes' values."""
    places = _places(family, width)

    @jax.jit
    def measured(weights: dict[str, Any], x: Any) -> tuple[Any, list[Any]]:
        run = Values(family, width, weights, x)
        values = [jnp.moveaxis(run.values[place], axis, 0) for place, axis in places.values()]
        means = [jnp.square(each.reshape(len(x), -1)).mean(1) for each in values]
        return run.values[run.record.output], means

    return measured


def _tangents(f: Any, x: Any, rates: dict[str, float]) -> Callable[[Any], Any]:
    """Return a function of weights whose value is Θ, a mean over outputs.

    Outputs may depend on the other samples, as by statistics of the batch.
    """

    @jax.jit
    def tangents(weights: dict[str, Any]) -> Any:
        trained = {name: each for name, each in weights.items() if rates[name]}

        def of_output(channel: Any) -> Any:
            rows = jax.jacrev(lambda t: f(weights | t, x).reshape(len(x), -1)[:, channel])(trained)
            flat = {name: each.reshape(len(x), -1) for name, each in rows.items()}
            return sum(rates[name] * each @ each.T for name, each in flat.items())

        shape = jax.eval_shape(f, weights, x).shape
        return jax.lax.map(of_output, jnp.arange(prod(shape[1:]))).mean(0)

    return tangents


def _wider(last: Map, parameters: Any, seed: int) -> dict[str, Any]:
    """Return a read-out of more outputs, if it has an axis of them."""
    rng = np.random.default_rng(seed)
    shape = list(parameters[last.weight].shape)
    if last.fan_out == len(shape):
        return {}
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
