"""Factors of small covariances, many at a time."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp


def cholesky(S: Any) -> Any:
    """Return a factor of covariances (…, P, P), with zeros where a direction has no variance."""
    P = S.shape[-1]
    columns: list[Any] = []
    for j in range(P):
        left = S[..., :, j]
        for column in columns:
            left = left - column * column[..., j : j + 1]
        pivot = left[..., j : j + 1]
        there = pivot > 1e-14 * S[..., j, j][..., None]
        scaled = left / jnp.sqrt(jnp.where(there, pivot, 1))
        columns.append(jnp.where(there & (jnp.arange(P) >= j), scaled, 0))
    return jnp.stack(columns, axis=-1)
