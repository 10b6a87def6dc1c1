"""Outputs of several hidden layers at test samples, and their linear response.

A test sample has no tilt. To the second order in a source J γ² f_b of its output, its fields can be
eliminated at fixed Φˡ, Λˡ and α of the training samples: what is left is J γ² f_b as a function of
these, whose derivatives drive the saddle, and ½J² times the variances that single neurons have.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from largen.expectations import second_moment
from largen.regression.equilibrium.nested import (
    First,
    Neurons,
    _kernel,
    exponents_of,
    fields_of,
    prior_of,
    tilts_behind,
    weighted,
)

CHUNK = 32  # test samples whose variances are computed at once
RTOL = 1e-7  # of the linear equations


class Base(NamedTuple):
    """The saddle as arrays."""

    tilts: Any  # Λˡ of all layers but the last
    kernels: Any  # Φˡ of these
    alpha: Any
    first: First
    sites: Any
    y: Any
    noise: Any
    inverse: Any  # (V + κ)⁻¹ of the last layer
    gamma: Any


class Column(NamedTuple):
    """A test sample: its row of A, and covariances of its first fields."""

    fields: Any
    cross: Any
    own: Any


Layers = tuple[Neurons, ...]


def outputs(layers: Layers, base: Base, free: tuple[Any, ...], column: Column) -> tuple[Any, Any]:
    """Return f_b as a function of Φ, Λ, α and shifts of Φ_bt, and φ_b with Φ_bb of all layers."""
    kernels, tilts, alpha, shifts = free
    tilts = (*tilts, base.gamma**2 * jnp.outer(alpha, alpha))
    cross, own, seen = column.cross, column.own, []
    for i, layer in enumerate(layers):
        at, before = base.sites[i], base.first if i == 0 else kernels[i - 1]
        roots = fields_of(before)
        phi, exponents = exponents_of(layer, roots, tilts[i], at)
        if i == 0:
            h, variances = at.xi @ column.fields, jnp.sum(roots**2, 1)
        else:
            row = jax.scipy.linalg.solve_triangular(roots, cross, lower=True)
            left = own - row @ row
            rest = jnp.where(left > 0, jnp.sqrt(jnp.where(left > 0, left, 1)), 0)
            h = at.xi[:, : len(cross)] @ row + rest * at.xi[:, len(cross)]
            variances = jnp.diagonal(before)
        phi_b = layer.std * layer.phi(h)
        shares, untilted = (
            weighted(layer, each, at)[2] for each in (exponents, jnp.zeros_like(exponents))
        )
        prior = prior_of(layer, own[None], variances, cross[None])[0]
        square = layer.std**2 * jnp.asarray(second_moment(layer.phi, own))
        cross = phi.T @ ((shares - untilted) * phi_b) + prior
        own = jnp.sum((shares - untilted) * phi_b**2) + square
        if i < len(layers) - 1:
            cross = cross + shifts[i]
        seen.append((phi_b, own))
    return cross @ alpha, seen


@partial(jax.jit, static_argnums=0)
def means(layers: Layers, base: Base, columns: Column) -> Any:
    """Return f at test samples."""
    free = _free(base)
    return jax.vmap(lambda column: outputs(layers, base, free, column)[0])(columns)


def _free(base: Base) -> tuple[Any, ...]:
    shifts = tuple(jnp.zeros_like(base.alpha) for _ in base.tilts)
    return base.kernels, base.tilts, base.alpha, shifts


@partial(jax.jit, static_argnums=0)
def _driven(layers: Layers, base: Base, columns: Column) -> tuple[Any, Any]:
    """Return γ⁻² times the variance at fixed Φ, Λ and α, and derivatives of f."""
    gamma = base.gamma
    tilts = (*base.tilts, gamma**2 * jnp.outer(base.alpha, base.alpha))

    def of(column: Column) -> tuple[Any, Any]:
        given = partial(outputs, layers, base)
        (f, seen), slopes = jax.value_and_grad(
            lambda free: given(free, column), has_aux=True
        )(_free(base))
        found = seen[-1][1] - (gamma * f) ** 2
        rows = (*(gamma * each for each in slopes[3]), gamma * base.alpha)
        for i, (layer, row, (phi_b, _)) in enumerate(zip(layers, rows, seen, strict=True)):
            before = base.first if i == 0 else base.kernels[i - 1]
            phi, exponents = exponents_of(layer, fields_of(before), tilts[i], base.sites[i])
            _, weights, shares = weighted(layer, exponents, base.sites[i])
            fourth = weights
            if layer.dimension is not None:
                fourth = shares * (layer.dimension + 2) / (1 - exponents)
            q = phi_b * (phi @ row)
            found = found + fourth @ q**2
            if i < len(layers) - 1:
                found = found - (shares @ q) ** 2
        return found, slopes[:3]

    return jax.vmap(of)(columns)


def _swept(layers: Layers, base: Base, tilts: Any, source: Any) -> tuple[Any, Any]:
    """Return Λ after a sweep, and (Φ, Λ, α), with sources added to Φ, Λ and subtracted from y."""
    to_kernels, to_tilts, to_targets = source
    kernels, before = [], base.first
    for layer, tilt, at, add in zip(layers, tilts, base.sites, to_kernels, strict=False):
        before = _kernel(layer, before, tilt, at) + add
        kernels.append(before)
    alpha, gamma = base.alpha, base.gamma
    tilt = gamma**2 * jnp.outer(alpha, alpha)
    f = _kernel(layers[-1], before, tilt, base.sites[-1]) @ alpha
    alpha = alpha + base.inverse @ (base.y - base.noise * alpha - f - to_targets)
    last = gamma**2 * jnp.outer(alpha, alpha)
    behind = tilts_behind(layers, kernels, (*tilts[1:], last), base.sites)
    new = tuple(tilt + add for tilt, add in zip(behind, to_tilts, strict=True))
    return new, (tuple(kernels), new, alpha)


@partial(jax.jit, static_argnums=0)
def _moved(layers: Layers, base: Base, tilts: Any, sources: Any) -> Any:
    """Return derivatives of a sweep in many directions at once."""
    gamma = base.gamma
    start = base.tilts, jax.tree.map(jnp.zeros_like, (base.kernels, base.tilts, base.alpha))

    def along(tilt: Any, slopes: Any) -> Any:
        of_kernels, of_tilts, of_alpha = slopes
        twice = jax.tree.map(lambda each: gamma**2 * (each + each.T), (of_tilts, of_kernels))
        direction = tilt, (*twice, of_alpha)
        return jax.jvp(partial(_swept, layers, base), start, direction)[1]

    return jax.vmap(along)(tilts, sources)


def variances(layers: Layers, base: Base, columns: Column) -> np.ndarray:
    """Return γ²N Var f = df_b/dJ_b at test samples."""
    count = len(columns.own)
    parts = [
        _variances(layers, base, Column(*(each[i : i + CHUNK] for each in columns)))
        for i in range(0, count, CHUNK)
    ]
    return np.concatenate(parts) if parts else np.zeros(0)


def _variances(layers: Layers, base: Base, columns: Column) -> np.ndarray:
    from scipy.sparse.linalg import LinearOperator, gmres

    fixed, slopes = _driven(layers, base, columns)
    zero = jax.tree.map(jnp.zeros_like, slopes)
    still = zero[1]
    shape = (len(base.tilts), len(columns.own), *base.tilts[0].shape)
    size = int(np.prod(shape))

    def unpacked(flat: np.ndarray) -> tuple[Any, ...]:
        return tuple(jnp.asarray(flat.reshape(shape)))

    def packed(tilts: Any) -> np.ndarray:
        return np.stack([np.asarray(each) for each in tilts]).ravel()

    def left(flat: np.ndarray) -> np.ndarray:
        return flat - packed(_moved(layers, base, unpacked(flat), zero)[0])

    right = packed(_moved(layers, base, still, slopes)[0])
    operator = LinearOperator((size, size), matvec=left, dtype=np.float64)  # pyright: ignore[reportCallIssue]
    found, failed = gmres(operator, right, rtol=RTOL, maxiter=5, restart=30)
    if failed:
        raise np.linalg.LinAlgError("the response of the saddle did not converge")
    moved = _moved(layers, base, unpacked(found), slopes)[1]
    response = jax.tree.map(
        lambda slope, step: jnp.sum((slope * step).reshape(len(slope), -1), 1), slopes, moved
    )
    return np.asarray(fixed + sum(jax.tree.leaves(response)))
