"""Kernels behind multi-head attention with random logits, in the scaling 1/√d.

Given the kernels K_Q and K_K of queries and keys, the logits L of different heads are independent
Gaussian fields with E[L(p, u) L'(p', u')] = K_Q(p, p') K_K(u, u'), jointly over all samples (Hron,
Bahri, Sohl-Dickstein and Novak 2020, *Infinite attention*); primes mark the second sample. With
ζ = softmax(L) over the keys, the kernels K and Θ of the values, and
∂ζ_pr/∂L_pu = ζ_pu (δ_ru − ζ_pr),

    K ← E[ζ K ζ'ᵀ],
    Θ ← E[ζ Θ ζ'ᵀ] + Θ_Q E[S(K_K)] + K_Q E[S(Θ_K)],
    S(A)(p, p') = Σ_uu' ζ_pu ζ'_p'u' A_uu' (K_uu' − (ζK)_pu' − (Kζ'ᵀ)_up' + (ζKζ'ᵀ)_pp').

Expectations over the softmax have no closed form. They are averaged over draws L = R_Q Z R_Kᵀ,
where the R Rᵀ are the kernels of the whole batch and Z is a matrix of independent standard Gaussian
numbers, in antithetic pairs ±Z. The average is the exact kernel given the logits of so many heads,
and therefore positive semidefinite.

Heads with d features of queries and keys have Z = Z_Q Z_Kᵀ/√d, with d columns in each factor. Given
q = R_Q Z_Q and k = R_K Z_K, the logits have L = q kᵀ/√d, and the derivatives by queries and keys
contain the products of these very features: k kᵀ/d takes the place of K_K, and q qᵀ/d that of K_Q,
in the last two terms of Θ. A scale c of the logits multiplies L, and these terms by c².
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from largen.kernels.rules.averages import coincident, from_averages, product
from largen.kernels.rules.dispatch import States
from largen.kernels.rules.linear_heads import linear_heads
from largen.kernels.rules.scaling import apply_masks
from largen.kernels.state import KernelState, Wanted
from largen.programs import Attend

# Added to the diagonals of the kernels of queries and keys before they are factorised, relative to
# the mean diagonal: samples or positions that coincide make these kernels singular.
_JITTER = 1e-12


def attended(operation: Attend, seed: Any, states: States, behind: Wanted) -> KernelState:
    """Return the state behind heads with random logits.

    With a softmax the kernel is not cut into tiles: first and second samples are the same batch.
    """
    queries, keys, values = states
    if not operation.softmax:
        return apply_masks(linear_heads(queries, keys, values, behind))
    n, positions = values.same.shape[0], prod(values.space)

    def table(array: Any) -> Any:
        """Return an array (*space, *space, n, n) as (n, P, n, P), for P positions."""
        return jnp.transpose(array.reshape(positions, positions, n, n), (2, 0, 3, 1))

    def field(array: Any) -> Any:
        """Return an array (*space, n) as (n, P)."""
        return array.reshape(positions, n).T

    K_Q, K_K, K = (table(each.covariance) for each in (queries, keys, values))
    there = None if values.first.present is None else field(values.first.present) > 0
    roots = [root_of(each.reshape(n * positions, -1)) for each in (K_Q, K_K)]
    means = None if values.first.mean is None else field(values.first.mean)
    tangents = None
    if values.ntk is not None:
        tangents = tuple(table(each.ntk) for each in (queries, keys, values))

    def of_head(head: _Head) -> Any:
        weights = softmax_over(head.logits, there, operation.causal)
        gap = attend(weights, table(values.gap), weights)
        mean = None if means is None else jnp.einsum("npu,nu->np", weights, means)
        own = jnp.einsum("npu,nu->np", weights, field(values.first.q))
        if tangents is None:
            return gap, own, mean, None
        theta_q, theta_k, theta = tangents
        by_logits = theta_q * _through_logits(weights, K, head.keys)
        by_logits = by_logits + head.queries * _through_logits(weights, K, theta_k)
        by_logits = operation.scale**2 * by_logits
        return gap, own, mean, attend(weights, theta, weights) + by_logits

    def head_of(key: Any) -> _Head:
        if operation.key_size is None:
            Z = _gaussians(key, n * positions, n * positions, K.dtype)
            return _Head(_logits(roots, Z, n), K_Q, K_K)
        return _head_of_size(roots, operation.key_size, key, n)

    def add(total: Any, key: Any) -> Any:
        head = head_of(key)
        for sign in (1, -1):
            found = of_head(head._replace(logits=sign * operation.scale * head.logits))
            total = jax.tree.map(lambda t, f: t + f / (2 * pairs), total, found)
        return total, None

    pairs = -(-operation.draws // 2)
    shape = jax.eval_shape(lambda: of_head(head_of(jax.random.key(0))))
    zero = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shape)
    draws = jax.random.split(jax.random.key(seed.astype(jnp.uint32)), pairs)
    (gap, own, mean, theta), _ = lax.scan(add, zero, draws)

    def back(array: Any) -> Any:
        array = jnp.transpose(array, (1, 3, 0, 2))
        return array.reshape(*values.space, *values.space, n, n)

    def back_field(array: Any) -> Any:
        return None if array is None else array.T.reshape(*values.space, n)

    within = back(gap)[..., jnp.arange(n), jnp.arange(n)]
    side = values.first._replace(q=back_field(own), mean=back_field(mean), within=within)
    tangent = None if theta is None else back(theta)
    found = KernelState(side, side, back(gap), tangent, values.same)
    return apply_masks(from_averages(found, coincident(values)))


def root_of(kernel: Any) -> Any:
    """Return the lower triangular R with R Rᵀ = K; its rows depend on preceding rows of K only."""
    jitter = _JITTER if kernel.dtype == jnp.float64 else 1e-6
    scale = jnp.mean(jnp.diagonal(kernel))
    added = jitter * jnp.where(scale > 0, scale, 1)
    return jnp.linalg.cholesky(kernel + added * jnp.eye(len(kernel), dtype=kernel.dtype))


def _gaussians(key: Any, rows: int, columns: int, dtype: Any) -> Any:
    """Return Z, (rows, columns); a larger Z has this one as its leading block."""

    def row(number: Any) -> Any:
        return jax.random.normal(jax.random.fold_in(key, number), (columns,), dtype)

    return jax.vmap(row)(jnp.arange(rows))


class _Head(NamedTuple):
    """The logits of a head, (n, P, P), and products of its queries and keys, (n, P, n, P)."""

    logits: Any
    queries: Any
    keys: Any


def _logits(roots: Any, Z: Any, n: int) -> Any:
    """Return the logits R_Q Z R_Kᵀ between the positions of each sample, (n, P, P)."""
    one, two = roots
    left = jnp.reshape(product("ij,jk->ik", one, Z), (n, -1, len(Z)))
    return product("npk,nuk->npu", left, two.reshape(n, -1, len(Z)))


def _head_of_size(roots: Any, size: int, key: Any, n: int) -> _Head:
    """Return a head with d features of queries and keys, whose products are divided by d."""
    q, k = features_of_head(roots, size, key, n)
    of_pairs = (product("npi,mqi->npmq", each, each) / size for each in (q, k))
    return _Head(product("npi,nui->npu", q, k) / size**0.5, *of_pairs)


def features_of_head(roots: Any, size: int, key: Any, n: int) -> tuple[Any, Any]:
    """Return d features of queries and keys of n samples, (n, P, d), from the roots of kernels."""

    def features(root: Any, key: Any) -> Any:
        Z = _gaussians(key, len(root), size, root.dtype)
        return jnp.reshape(product("ij,jk->ik", root, Z), (n, -1, size))

    q, k = (features(*each) for each in zip(roots, jax.random.split(key), strict=True))
    return q, k


def softmax_over(logits: Any, there: Any, causal: bool) -> Any:
    """Return softmax(L) over visible keys; masked queries may see none, and see all."""
    positions = logits.shape[-1]
    order = np.tri(positions, dtype=bool) if causal else np.ones((positions, positions), bool)
    if there is None:
        return jax.nn.softmax(logits, axis=-1, where=order)
    shown = there[:, None, :] & order
    return jax.nn.softmax(
        logits, axis=-1, where=shown | (order & ~jnp.any(shown, -1, keepdims=True))
    )


def attend(weights: Any, A: Any, weights2: Any) -> Any:
    """Return ζ A ζ'ᵀ, (n, P, n, P)."""
    return product("mqv,npmv->npmq", weights2, product("npu,numv->npmv", weights, A))


def _through_logits(weights: Any, K: Any, A: Any) -> Any:
    """Return S(A), (n, P, n, P)."""
    left_K, left_A = (product("npu,numv->npmv", weights, M) for M in (K, A))
    right_K, right_A = (product("mqv,numv->numq", weights, M) for M in (K, A))
    first = attend(weights, A * K, weights)
    second = product("mqv,npmv->npmq", weights, left_K * left_A)
    third = product("npu,numq->npmq", weights, right_K * right_A)
    both_K, both_A = (product("mqv,npmv->npmq", weights, left) for left in (left_K, left_A))
    return first - second - third + both_K * both_A
