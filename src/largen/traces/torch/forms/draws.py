"""Core operations that draw random numbers, each from a key of its own."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp


def _uniform(x: Any, low: float = 0.0, high: float = 1.0, *, key: Any) -> Any:
    return jax.random.uniform(key, x.shape, x.dtype, low, high)


def _normal(x: Any, mean: float = 0.0, std: float = 1.0, *, key: Any) -> Any:
    return mean + std * jax.random.normal(key, x.shape, x.dtype)


def _bernoulli(x: Any, p: Any = None, *, key: Any) -> Any:
    return jax.random.bernoulli(key, x if p is None else p, x.shape).astype(x.dtype)


def _of_shape(draw: Any) -> Any:
    def form(shape: Any, *, key: Any, dtype: Any = None) -> Any:
        return draw(key, tuple(shape))

    return form


def _like(draw: Any) -> Any:
    def form(x: Any, *, key: Any, dtype: Any = None) -> Any:
        return draw(key, x.shape, x.dtype)

    return form


def _dropout(x: Any, p: float, train: bool | None = True, *, key: Any) -> Any:
    kept = jax.random.bernoulli(key, 1 - p, x.shape) if train else jnp.ones(x.shape, bool)
    return jnp.where(kept, x / (1 - p if train else 1), 0), kept


FORMS = {
    "bernoulli": _bernoulli, "native_dropout": _dropout, "normal_functional": _normal,
    "rand": _of_shape(jax.random.uniform), "rand_like": _like(jax.random.uniform),
    "randn": _of_shape(jax.random.normal), "randn_like": _like(jax.random.normal),
    "uniform": _uniform,
}  # fmt: skip
# Draws without a form among them.
DRAWS = frozenset(FORMS) | {
    "cauchy", "exponential", "geometric", "log_normal", "multinomial", "normal", "randint",
    "randint_like", "randperm", "random", "rrelu_with_noise_functional",
}  # fmt: skip
