"""Draws of networks at initialisation, in batches of equal size, and factors of covariances."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from largen.finite_width.sized_network import SizedNetwork
from largen.segments import map_segments


def in_batches(
    of_batch: Callable[..., Any],  # of ((layers, number of networks), key, first kernel, constants)
    layers: Hashable,
    constants: Any,
    network: SizedNetwork,
    inputs: np.ndarray,
    draws: int,
    key: Any,
    at_once: int,  # numbers of a layer, for all inputs of a batch of networks
) -> Any:
    """Return a tree of arrays of each network, (draws, …), in float64."""
    batch = max(1, min(draws, at_once // (max(network.widths) * len(inputs))))
    batches = -(-draws // batch)
    with jax.enable_x64(True):
        first = jnp.asarray(network.first_kernel(inputs))
        constants = jax.tree.map(lambda number: jnp.asarray(number, np.float64), constants)
        keys, what = jax.random.split(key, batches), f"draws: kernels of {draws} networks"
        drawn = map_segments(of_batch, (layers, batch), keys, first, constants, what=what)
        return jax.tree.map(
            lambda part: np.asarray(part).reshape(batches * batch, *part.shape[2:])[:draws], drawn
        )


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
