"""Largest singular values of hidden weights, Hessians by Lanczos' method, and input Jacobians."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from largen.networks.plan import Plan, objective

VALUES = 8  # singular values of each matrix; those that it does not have are 0
# Vectors for singular values: at a width of 2048 the eighth is then right to 1e-5, and smaller
# matrices are decomposed. For the curvature, whose vectors are as long as all parameters, they are
# not kept: copies of eigenvalues that rounding makes do not change the largest.
VECTORS, CURVATURE_VECTORS = 128, 64
TOGETHER = 10**5  # parameters of the samples whose Hessians are found together


def singular_values(plan: Plan, params: Any) -> Float[Array, "matrix value"]:
    """Return the largest singular values of hidden weights times their multipliers, in order.

    A window's matrices stand side by side.
    """
    named = zip(jax.tree.leaves(plan.network.module.names), jax.tree.leaves(params), strict=True)
    leaves = dict(named)
    found = []
    for row in hidden_weights(plan):
        weight = row.rule.multiplier * leaves[row.name]
        weight = weight.reshape(int(row.site.copies), -1, weight.shape[-1])
        found.append(lax.map(_largest, weight))
    return jnp.concatenate(found) if found else jnp.zeros((0, VALUES))


def hidden_weights(plan: Plan) -> list[Any]:
    """Return the rows of weights between hidden layers."""
    return [row for row in plan.table.rows if row.kind == "weight" and row.site.role == "hidden"]


def _largest(weight: Float[Array, "i o"]) -> Float[Array, " value"]:
    few = min(weight.shape)
    if few <= VECTORS:
        values = jnp.linalg.svd(weight, compute_uv=False)[:VALUES]
    else:
        weight = weight if weight.shape[0] == few else weight.T
        squares = _lanczos(lambda v: weight @ (weight.T @ v), _start(few, weight.dtype))
        values = jnp.sqrt(jnp.maximum(squares[::-1][:VALUES], 0))
    return jnp.pad(values, (0, VALUES - len(values)))


def _start(size: int, dtype: Any) -> Float[Array, " size"]:
    vector = jax.random.normal(jax.random.key(0), (size,), dtype)
    return vector / jnp.linalg.norm(vector)


def _lanczos(
    apply: Callable[[Array], Array], start: Float[Array, " size"]
) -> Float[Array, " vector"]:
    """Return the eigenvalues of a symmetric map within a Krylov space, in increasing order."""
    rows = jnp.zeros((VECTORS + 1, len(start)), start.dtype).at[0].set(start)

    def grow(j, carry):
        rows, diagonal, beside = carry
        image = apply(rows[j])
        diagonal = diagonal.at[j].set(rows[j] @ image)
        for _ in range(2):  # once is not enough in single precision
            image = image - (rows @ image) @ rows
        size = jnp.linalg.norm(image)
        return rows.at[j + 1].set(image / size), diagonal, beside.at[j].set(size)

    numbers = jnp.zeros(VECTORS, start.dtype)
    _, diagonal, beside = lax.fori_loop(0, VECTORS, grow, (rows, numbers, numbers))
    return _tridiagonal(diagonal, beside)


def _tridiagonal(diagonal: Float[Array, " n"], beside: Float[Array, " n"]) -> Float[Array, " n"]:
    off = jnp.diag(beside[:-1], 1)
    return jnp.linalg.eigvalsh(jnp.diag(diagonal) + off + off.T)


def curvature(plan: Plan, params: Any, x: Any, y: Any) -> Float[Array, ""]:
    """Return the largest eigenvalue of ρ^½ ∇²ℓ ρ^½ with the mean loss ℓ and rates ρ at η₀ = 1."""
    return _hessian_spectrum(plan, params, lambda p: objective(plan, p, x, y)[0])[-1]


def gradient_curvature(plan: Plan, params: Any, x: Any, y: Any) -> Float[Array, ""]:
    """Return gᵀρ∇²ℓρg/gᵀρg with the gradient g of the mean loss ℓ and rates ρ; 0 if g is 0."""
    gradient = jax.grad(lambda p: objective(plan, p, x, y)[0])
    slope = gradient(params)
    rates = plan.network.per_leaf(plan.network.table, "lr")
    step = jax.tree.map(lambda leaf, rate: leaf * rate, slope, rates)
    bent = jax.jvp(gradient, (params,), (step,))[1]

    def product(one, two):
        return sum(map(jnp.vdot, jax.tree.leaves(one), jax.tree.leaves(two)))

    square = product(step, slope)
    return product(step, bent) / jnp.where(square > 0, square, 1)


def output_hessian(plan: Plan, params: Any, x: Any) -> Float[Array, "sample output"]:
    """Return the spectral norm of ρ^½ ∇²f ρ^½ of each output of each sample."""

    def of_sample(one):
        def of_output(c):
            values = _hessian_spectrum(plan, params, lambda p: _outputs(plan, p, one)[c])
            return jnp.maximum(values[-1], -values[0])

        return lax.map(of_output, jnp.arange(plan.network.outputs or 1))

    return lax.map(of_sample, x, batch_size=max(1, TOGETHER // plan.network.parameters))


def input_jacobian(plan: Plan, params: Any, x: Any) -> Float[Array, "sample value"]:
    """Return the singular values of ∂f/∂x of each sample, in decreasing order."""

    def of_sample(one):
        slopes = jax.jacrev(lambda one: _outputs(plan, params, one))(one)
        slopes = slopes.reshape(len(slopes), -1)
        return jnp.linalg.svd(slopes, compute_uv=False)

    return jax.vmap(of_sample)(x)


def _outputs(plan: Plan, params: Any, one: Any) -> Float[Array, " output"]:
    return plan.network.outputs_of(params, one[None]).reshape(-1)


def _hessian_spectrum(
    plan: Plan, params: Any, function: Callable[[Any], Any]
) -> Float[Array, " vector"]:
    """Return eigenvalues of ρ^½ ∇²F ρ^½ within a Krylov space, in increasing order."""
    root = [rate**0.5 for rate in jax.tree.leaves(plan.network.per_leaf(plan.network.table, "lr"))]
    tree = jax.tree.structure(params)
    gradient = jax.grad(function)

    def scaled(vector):
        return [r * leaf for r, leaf in zip(root, vector, strict=True)]

    def apply(vector):
        along = tree.unflatten(scaled(vector))
        return scaled(jax.tree.leaves(jax.jvp(gradient, (params,), (along,))[1]))

    def product(one, two):
        return sum(jnp.vdot(a, b) for a, b in zip(one, two, strict=True))

    def grow(j, carry):
        last, now, size, diagonal, beside = carry
        image = apply(now)
        diagonal = diagonal.at[j].set(product(now, image))
        image = [i - diagonal[j] * n - size * l for i, n, l in zip(image, now, last, strict=True)]
        size = jnp.sqrt(product(image, image))
        follows = [i / jnp.where(size > 0, size, 1) for i in image]
        return now, follows, size, diagonal, beside.at[j].set(size)

    leaves = jax.tree.leaves(params)
    keys = jax.random.split(jax.random.key(0), len(leaves))
    drawn = zip(keys, leaves, strict=True)
    start = scaled([jax.random.normal(key, p.shape, p.dtype) for key, p in drawn])
    size = jnp.sqrt(product(start, start))
    start = [s / size for s in start]
    numbers = jnp.zeros(CURVATURE_VECTORS, size.dtype)
    nothing = [jnp.zeros_like(s) for s in start]
    carry = (nothing, start, jnp.zeros_like(size), numbers, numbers)
    *_, diagonal, beside = lax.fori_loop(0, CURVATURE_VECTORS, grow, carry)
    return _tridiagonal(diagonal, beside)
