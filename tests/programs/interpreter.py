"""Finite networks of a program in the NTK parameterization: an interpreter of its operations."""

from __future__ import annotations

from functools import partial, reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from largen.programs import (
    Affine,
    Concatenate,
    Data,
    Flatten,
    Function,
    Normalise,
    Pool,
    Product,
    Program,
    Scale,
    Sum,
    program_of,
    slides,
)


def initial(program: Program, key: Any, width: int, inputs: int) -> list[tuple[Any, Any]]:
    """Return standard normal weights (taps, fan-in, fan-out) and biases of each weight."""
    last, sizes, found = program.operations[-1], [inputs], {}
    for place, operation in enumerate(program.operations[1:], start=1):
        signal = program.signals[place]
        size = int(signal.copies * (inputs if signal.from_data else width))
        sizes.append(1 if operation is last else size)
        if isinstance(operation, Affine) and operation.weight not in found:
            one, two = jax.random.split(jax.random.fold_in(key, operation.weight))
            taps = 1 if operation.window is None else operation.window.size
            shape = (taps, sizes[operation.reads[0]], sizes[-1])
            found[operation.weight] = (
                jax.random.normal(one, shape),
                jax.random.normal(two, sizes[-1:]),
            )
    return [found[weight] for weight in sorted(found)]


def outputs(program: Program, weights: list[tuple[Any, Any]], x: Any) -> Any:
    """Return the outputs of a finite network, (n,)."""
    values = [x]
    for operation in program.operations[1:]:
        space = program.signals[operation.reads[0]].space or ()
        values.append(
            _value(operation, program, weights, [values[r] for r in operation.reads], space)
        )
    return values[-1][..., 0]


def _value(operation: Any, program: Program, weights: Any, reads: list[Any], space: Any) -> Any:
    match operation:
        case Data():
            raise AssertionError("data are the first value alone")
        case Affine(weight=weight, window=window):
            matrix, bias = weights[weight]
            summed = _taps(reads[0], matrix, window, space)
            its = program.weights[weight]
            scale = its.weight_std / np.sqrt(matrix.shape[0] * matrix.shape[1])
            return scale * summed + its.bias_std * bias
        case Function(phi=phi):
            return phi(reads[0])
        case Sum(factors=factors):
            return sum(
                (1.0 if factor == "branch" else factor) * x
                for factor, x in zip(factors, reads, strict=True)
            )
        case Product():
            return reduce(jnp.multiply, reads)
        case Concatenate():
            return jnp.concatenate(reads, axis=-1)
        case Flatten():
            return reads[0].reshape(len(reads[0]), -1)
        case Normalise(over="channels", centred=centred, eps=eps):
            x = reads[0] - centred * reads[0].mean(-1, keepdims=True)
            return x / jnp.sqrt((x**2).mean(-1, keepdims=True) + eps)
        case Scale(factors=factors):
            return np.reshape(factors, (*space, 1)) * reads[0]
        case Pool(window=None, total=True):
            return reads[0].sum(axis=tuple(range(1, 1 + len(space))))
        case Pool(window=None, total=False):
            return reads[0].mean(axis=tuple(range(1, 1 + len(space))))
        case Pool(window=window, total=False):
            assert window is not None
            (slide,) = slides(window, space)
            counts = slide.along(slide.counts(), 1, 3)
            return slide.summed(slide.extended(reads[0], 1), 1) / counts
    raise NotImplementedError(f"{operation}")


def _taps(x: Any, matrix: Any, window: Any, space: tuple[int, ...]) -> Any:
    """Return Σ_k W_k x_{p(k)} along one axis of positions."""
    if window is None:
        return x @ matrix[0]
    (slide,) = slides(window, space)
    extended = slide.extended(x, 1)
    roots = np.sqrt(window.of_taps())
    return sum(roots[k] * slide.offset(extended, k, 1) @ matrix[k] for k in range(len(matrix)))


@partial(jax.jit, static_argnums=(0, 2, 3))
def _draws(program: Program, x: Any, width: int, draws: int, seed: int) -> tuple[Any, Any]:
    def one(key: Any) -> tuple[Any, Any]:
        weights = initial(program, key, width, x.shape[-1])
        f, back = jax.vjp(lambda w: outputs(program, w, x), weights)
        rows = jax.vmap(lambda seed: back(seed)[0])(jnp.eye(len(f)))
        # The part of the read-out's weights, in which f is linear, is the mean of f f' over them.
        nngp, ntk = (
            sum(leaf.reshape(len(f), -1) @ leaf.reshape(len(f), -1).T for leaf in leaves)
            for leaves in (rows[-1], jax.tree.leaves(rows))
        )
        return nngp, ntk

    return jax.lax.map(one, jax.random.split(jax.random.key(seed), draws), batch_size=10)


def extrapolated(net: Any, x: Any, draws: int, widths: tuple[int, int]) -> Any:
    """Return means and standard errors of NNGP and NTK at infinite width, from two widths."""
    program = program_of(net, x.shape[1:])
    # Biases that are not there have a standard deviation of 0, and no gradients.
    found = []
    for seed, width in enumerate(widths):
        samples = _draws(program, jnp.asarray(x), width, draws, seed)
        found.append([(np.mean(s, 0), np.std(s, 0) / draws**0.5) for s in map(np.asarray, samples)])
    ratio = widths[1] / widths[0]
    return [
        ((ratio * two[0] - one[0]) / (ratio - 1), np.hypot(ratio * two[1], one[1]) / (ratio - 1))
        for one, two in zip(*found, strict=True)
    ]
