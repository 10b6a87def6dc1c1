"""The tangent kernel by products with vectors, of any batch: K v = J₁ ρ J₂ᵀ v."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

NUMBERS_AT_ONCE = 2**26  # held at a time, 256 MB in single precision


@partial(jax.jit, static_argnums=0)
def by_products(f: Any, params: Any, rates: Any, x1: Any, x2: Any) -> Any:
    """Return the kernel, (n1[, output], n2[, output]), by columns; samples may be coupled."""
    out = jax.eval_shape(f, params, x2)
    columns = jnp.eye(out.size, dtype=out.dtype).reshape(-1, *out.shape)
    held = 2 * sum(leaf.size for leaf in jax.tree.leaves(params)) + x1.size + x2.size
    at_once = int(np.clip(NUMBERS_AT_ONCE // held, 1, out.size))
    products = jax.lax.map(
        lambda v: product_of(f, params, rates, x1, x2, v), columns, batch_size=at_once
    )
    products = products.reshape(*out.shape, *products.shape[1:])
    return jnp.moveaxis(products, tuple(range(out.ndim)), tuple(range(-out.ndim, 0)))


@partial(jax.jit, static_argnums=0)
def product_of(f: Any, params: Any, rates: Any, x1: Any, x2: Any, v: Any) -> Any:
    """Return the product of the kernel with a vector, shaped as the outputs at x2."""
    (pulled,) = jax.vjp(lambda p: f(p, x2), params)[1](v)
    pulled = jax.tree.map(lambda g, rate: (g * rate).astype(g.dtype), pulled, rates)
    out, back = jax.vjp(lambda p: f(p, x1), params)
    # J as the transpose of Jᵀ: some functions have derivatives in reverse mode only.
    (pushed,) = jax.linear_transpose(lambda u: back(u)[0], out)(pulled)
    return pushed
