"""Core operations along axes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy import special


def _axes(x: Any, dim: Any) -> tuple[int, ...]:
    """Return the axes that an argument names: all of them, one, or several."""
    if dim is None or (isinstance(dim, (list, tuple)) and not dim):
        return tuple(range(x.ndim))
    return (dim,) if isinstance(dim, int) else tuple(dim)


def _reduced(function: Any) -> Any:
    def form(x: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
        return function(x, axis=_axes(x, dim), keepdims=keepdim)

    return form


def _with_places(function: Any, place: Any) -> Any:
    def form(x: Any, dim: int, keepdim: bool = False) -> Any:
        places = place(x, axis=dim, keepdims=True)
        values = jnp.take_along_axis(x, places, axis=dim)
        return (values, places) if keepdim else (values.squeeze(dim), places.squeeze(dim))

    return form


def _place(function: Any) -> Any:
    def form(x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
        return function(x, axis=dim, keepdims=keepdim)

    return form


def _variance(x: Any, dim: Any = None, *, correction: Any = 1, keepdim: bool = False) -> Any:
    return jnp.var(x, _axes(x, dim), ddof=1 if correction is None else correction, keepdims=keepdim)


def _std(x: Any, dim: Any = None, *, correction: Any = 1, keepdim: bool = False) -> Any:
    return jnp.sqrt(_variance(x, dim, correction=correction, keepdim=keepdim))


def _var_mean(x: Any, dim: Any = None, *, correction: Any = 1, keepdim: bool = False) -> Any:
    mean = jnp.mean(x, _axes(x, dim), keepdims=keepdim)
    return _variance(x, dim, correction=correction, keepdim=keepdim), mean


def _std_mean(x: Any, dim: Any = None, *, correction: Any = 1, keepdim: bool = False) -> Any:
    variance, mean = _var_mean(x, dim, correction=correction, keepdim=keepdim)
    return jnp.sqrt(variance), mean


def _norm(x: Any, order: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None):
    axes, size = _axes(x, dim), jnp.abs(x)
    if order in (float("inf"), float("-inf")):
        return (jnp.max if order > 0 else jnp.min)(size, axes, keepdims=keepdim)
    if order == 0:
        return jnp.sum(x != 0, axes, keepdims=keepdim)
    if order == 1:
        return jnp.sum(size, axes, keepdims=keepdim)
    return _root(jnp.sum(size**order, axes, keepdims=keepdim), order)


def _root(total: Any, order: Any) -> Any:
    """Return total^(1/order), with the derivative 0 at 0, as PyTorch has."""
    some = total > 0
    return jnp.where(some, jnp.where(some, total, 1) ** (1 / order), 0)


def _cdist(x: Any, y: Any, order: Any, mode: Any = None) -> Any:
    return _norm(x[..., :, None, :] - y[..., None, :, :], order, -1)


def _softmax(x: Any, dim: int, half_to_float: bool = False) -> Any:
    return jax.nn.softmax(x, dim)


def _safe_softmax(x: Any, dim: int, dtype: Any = None) -> Any:
    """The softmax, which is 0 where all arguments are −∞."""
    some = jnp.any(x > -jnp.inf, dim, keepdims=True)
    return jnp.where(some, jax.nn.softmax(jnp.where(some, x, 0), dim), 0)


def _cumulative(function: Any) -> Any:
    def form(x: Any, dim: int, *, dtype: Any = None) -> Any:
        return function(x, axis=dim)

    return form


def _sort(x: Any, dim: int = -1, descending: bool = False, *, stable: bool = False) -> Any:
    places = jnp.argsort(x, dim, descending=descending)
    return jnp.take_along_axis(x, places, dim), places


def _sort_stable(x: Any, *, stable: Any = None, dim: int = -1, descending: bool = False) -> Any:
    return _sort(x, dim, descending)


def _topk(x: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    places = jnp.take(jnp.argsort(x, dim, descending=largest), jnp.arange(k), dim)
    return jnp.take_along_axis(x, places, dim), places


FORMS = {
    "_cdist_forward": _cdist, "_log_softmax": lambda x, dim, half: jax.nn.log_softmax(x, dim),
    "_safe_softmax": _safe_softmax, "_softmax": _softmax, "all": _reduced(jnp.all),
    "amax": _reduced(jnp.max), "amin": _reduced(jnp.min),
    "aminmax": lambda x, *, dim=None, keepdim=False: (
        jnp.min(x, dim, keepdims=keepdim), jnp.max(x, dim, keepdims=keepdim)
    ),
    "any": _reduced(jnp.any), "argmax": _place(jnp.argmax), "argmin": _place(jnp.argmin),
    "argsort": lambda x, dim=-1, descending=False: _sort(x, dim, descending)[1],
    "cumprod": _cumulative(jnp.cumprod), "cumsum": _cumulative(jnp.cumsum),
    "linalg_vector_norm": _norm,
    "logcumsumexp": lambda x, dim: jax.lax.cumlogsumexp(x, dim % x.ndim),
    "logsumexp": lambda x, dim, keep=False: special.logsumexp(x, _axes(x, dim), keepdims=keep),
    "max": _reduced(jnp.max), "max.dim": _with_places(jnp.max, jnp.argmax),
    "mean": _reduced(jnp.mean), "min": _reduced(jnp.min),
    "min.dim": _with_places(jnp.min, jnp.argmin), "norm": _norm, "prod": _reduced(jnp.prod),
    "sort": _sort, "sort.stable": _sort_stable, "std": _std, "std_mean": _std_mean,
    "sum": _reduced(jnp.sum), "topk": _topk, "var": _variance, "var_mean": _var_mean,
}  # fmt: skip
