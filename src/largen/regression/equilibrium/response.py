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
    exponents_of,
    fields_of,
    of_sites,
    prior_of,
    tilts_behind,
    weighted,
)

CHUNK = 32  # test samples whose variances are computed at once
RTOL = 1e-4  # of the linear equations


class Base(NamedTuple):
    """The saddle as arrays."""

    tilts: Any  # Λˡ of all layers but the last
    kernels: Any  # Φˡ of these
    alpha: Any
    first: First
    sites: Any
    inverse: Any  # (V + κ)⁻¹ of the last layer
    gamma: Any


class Column(NamedTuple):
    """A test sample: its row of A, and per layer the prior's averages of φ_b φ and φ_b²."""

    fields: Any
    cross: Any  # covariances of its first fields with those of training samples
    own: Any  # their variance
    priors: tuple[Any, ...]
    squares: tuple[Any, ...]


Layers = tuple[Neurons, ...]


def _behind(layers: Layers, base: Base, i: int, given: Any, column: Column) -> tuple[Any, ...]:
    """Return ⟨φ_b φ⟩, ⟨φ_b²⟩ and φ_b of a layer, for Φ and Λ as given.

    What the sites miss of the prior is a constant: derivatives are those of the sites.
    """
    layer, at = layers[i], base.sites[i]
    before, tilt, cross, own = given
    roots = fields_of(before)
    phi, exponents = exponents_of(layer, roots, tilt, at)
    if i == 0:
        h = at.xi @ column.fields
    else:
        row = jax.scipy.linalg.solve_triangular(roots, cross, lower=True)
        left = own - row @ row
        some = left > 1e-10 * own
        rest = jnp.where(some, jnp.sqrt(jnp.where(some, left, 1)), 0)
        # With both signs of the test sample's own coordinate, derivatives are finite at rest = 0.
        apart = rest * at.xi[:, len(cross)]
        h = at.xi[:, : len(cross)] @ row + jnp.stack([apart, -apart])
    phi_b = layer.std * layer.phi(jnp.atleast_2d(h))
    shares, prior = (weighted(layer, each * exponents, at)[2] for each in (1, 0))
    alone, square = jnp.mean(phi_b, 0), jnp.mean(phi_b**2, 0)
    missing = column.priors[i] - phi.T @ (prior * alone)
    left_out = column.squares[i] - prior @ square
    fixed = jax.lax.stop_gradient((missing, left_out))
    return phi.T @ (shares * alone) + fixed[0], shares @ square + fixed[1], phi_b


@partial(jax.jit, static_argnums=(0, 2))
def _next(layers: Layers, base: Base, i: int, crosses: Any, owns: Any, columns: Column) -> Any:
    before = base.first if i == 0 else base.kernels[i - 1]
    tilt = _all_tilts(base.tilts, base.alpha, base.gamma)[i]

    def of(cross: Any, own: Any, column: Column) -> Any:
        return _behind(layers, base, i, (before, tilt, cross, own), column)[:2]

    return jax.vmap(of)(crosses, owns, columns)


@partial(jax.jit, static_argnums=0)
def _priors(layer: Neurons, owns: Any, variances: Any, crosses: Any) -> Any:
    return prior_of(layer, owns, variances, crosses), second_moment(layer.phi, owns)


def _all_tilts(tilts: Any, alpha: Any, gamma: Any) -> tuple[Any, ...]:
    return (*tilts, gamma**2 * jnp.outer(alpha, alpha))


def forward(layers: Layers, base: Base, columns: Column) -> tuple[Any, Column]:
    """Return f at test samples, and these with the prior's averages in all layers."""
    crosses, owns = columns.cross, columns.own
    for i, layer in enumerate(layers):
        before = base.kernels[i - 1] if i else base.first.fields @ base.first.fields.T
        priors, squares = _priors(layer, owns, jnp.diagonal(before), crosses)
        squares = layer.std**2 * jnp.asarray(squares)
        columns = columns._replace(
            priors=(*columns.priors, priors), squares=(*columns.squares, squares)
        )
        crosses, owns = _next(layers, base, i, crosses, owns, columns)
    return crosses @ base.alpha, columns


def outputs(layers: Layers, base: Base, free: tuple[Any, ...], column: Column) -> tuple[Any, Any]:
    """Return f_b of Φ, Λ, α and shifts of Φ_bt and Φ_bb, and φ_b and Φ_bb of all layers."""
    kernels, tilts, alpha, shifts = free
    befores, tilts = (base.first, *kernels), _all_tilts(tilts, alpha, base.gamma)
    cross, own, seen = column.cross, column.own, []
    for i, (to_cross, to_own) in enumerate((*shifts, (0.0, 0.0))):
        cross, own, phi_b = _behind(layers, base, i, (befores[i], tilts[i], cross, own), column)
        cross, own = cross + to_cross, own + to_own
        seen.append((phi_b, own))
    return cross @ alpha, seen


def _free(base: Base) -> tuple[Any, ...]:
    shifts = tuple((jnp.zeros_like(base.alpha), 0.0) for _ in base.tilts)
    return base.kernels, base.tilts, base.alpha, shifts


@partial(jax.jit, static_argnums=0)
def _driven(layers: Layers, base: Base, columns: Column) -> tuple[Any, Any]:
    """Return γ⁻² times the variance at fixed Φ, Λ and α, and derivatives of f."""
    gamma = base.gamma
    tilts = _all_tilts(base.tilts, base.alpha, gamma)

    def of(column: Column) -> tuple[Any, Any]:
        given = partial(outputs, layers, base)
        (f, seen), slopes = jax.value_and_grad(lambda free: given(free, column), has_aux=True)(
            _free(base)
        )
        found = seen[-1][1] - (gamma * f) ** 2
        rows = (*slopes[3], (base.alpha, 0.0))
        for i, (layer, row, (phi_b, _)) in enumerate(zip(layers, rows, seen, strict=True)):
            before = base.first if i == 0 else base.kernels[i - 1]
            phi, exponents = exponents_of(layer, fields_of(before), tilts[i], base.sites[i])
            _, weights, shares = weighted(layer, exponents, base.sites[i])
            fourth = weights
            if layer.dimension is not None:
                fourth = shares * (layer.dimension + 2) / (1 - exponents)
            q = gamma * (phi_b * (phi @ row[0]) + phi_b**2 * row[1])
            found = found + fourth @ jnp.mean(q**2, 0)
            if i < len(layers) - 1:
                found = found - (shares @ jnp.mean(q, 0)) ** 2
        return found, slopes[:3]

    return jax.vmap(of)(columns)


def _swept(layers: Layers, base: Base, tilts: Any, source: Any) -> tuple[Any, Any]:
    """Return Λ after a sweep, and (Φ, Λ, α), with sources added to Φ, Λ and subtracted from y."""
    to_kernels, to_tilts, to_targets = source

    def at_base(known: Any, i: int, before: Any, tilt: Any) -> Any:
        """Return the known average of the layer, with the derivatives of the sites."""
        found = of_sites(layers[i], before, tilt, base.sites[i])[1]
        return known + found - jax.lax.stop_gradient(found)

    kernels, before = [], base.first
    for i, (known, tilt, add) in enumerate(zip(base.kernels, tilts, to_kernels, strict=True)):
        before = at_base(known, i, before, tilt) + add
        kernels.append(before)
    last = _all_tilts((), base.alpha, base.gamma)[0]
    moved = at_base(jnp.zeros_like(last), len(kernels), before, last) @ base.alpha
    alpha = base.alpha - base.inverse @ (moved + to_targets)
    behind = tilts_behind(layers, kernels, _all_tilts(tilts[1:], alpha, base.gamma), base.sites)
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
        _variances(layers, base, jax.tree.map(lambda each, i=i: each[i : i + CHUNK], columns))
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
