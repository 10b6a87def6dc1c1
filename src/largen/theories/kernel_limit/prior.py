"""Outputs at initialisation: a Gaussian process whose covariance is the NNGP kernel."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key


class Root(NamedTuple):
    """A lower triangular R with R Rᵀ = K on train and test samples, in three blocks."""

    train: Float[Array, "sample noise"]  # (P, P): training outputs are train @ z, z standard normal
    # (M, P): the part of test outputs that depends on the same z, test @ z.
    test: Float[Array, "test_sample noise"]
    # (M, M): the part of test outputs that is independent of the training outputs.
    own: Float[Array, "test_sample own_noise"]


@partial(jax.jit, static_argnames="samples")
def square_root(covariance: Float[Array, "all all"], samples: int) -> Root:
    """Factorise a covariance, of training then test samples, semidefinite up to rounding."""
    values, vectors = jnp.linalg.eigh(covariance)
    root = jnp.linalg.qr(jnp.sqrt(jnp.maximum(values, 0))[:, None] * vectors.T, mode="r").T
    return Root(root[:samples, :samples], root[samples:, :samples], root[samples:, samples:])


def draw(
    key: Key[Array, ""], root: Root, pairs: int, outputs: int
) -> tuple[Float[Array, "seed sample output"], Float[Array, "seed test_sample output"]]:
    """Draw initial outputs in pairs of opposite sign: all draws first, then their negatives."""
    P, M = root.train.shape[0], root.own.shape[0]
    shared, test_noise = (
        jax.random.normal(k, (pairs, n, outputs), root.train.dtype)
        for k, n in zip(jax.random.split(key), (P, M), strict=True)
    )
    train = jnp.einsum("ij,sjc->sic", root.train, shared)
    test = jnp.einsum("ij,sjc->sic", root.test, shared) + jnp.einsum(
        "ij,sjc->sic", root.own, test_noise
    )
    return jnp.concatenate([train, -train]), jnp.concatenate([test, -test])
