"""Empirical kernels of any JAX function f(params, x), whatever its architecture."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from largen.arrays import finite_result, floating, is_traced, like, precision, tree_of_floats
from largen.callables import outputs_on_shapes, takes
from largen.errors import InvalidInput, one_of
from largen.interrupts import check, interruptible
from largen.memory import check_fits
from largen.text import shown

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator

Function = Callable[[Any, Any], Any]
METHODS = ("auto", "jacobian", "products")
MOST_AT_ONCE = 2.0**32  # products of derivatives, far less than half a second of them
FEWEST_AT_ONCE = 16  # samples of a tile


@interruptible()
def tangent_kernel(
    f: Function,
    params: Any,
    x1: ArrayLike,
    x2: ArrayLike | None = None,
    *,
    rates: Any = None,
    method: str = "auto",
) -> Any:
    """Return the neural tangent kernel of any function, K(x, x') = Σ_θ ρ_θ ∂f(x)/∂θ ∂f(x')/∂θ.

    For largen's own networks :func:`largen.empirical_ntk` is faster, since it uses their layers.
    At the parameters of a trained network, K is the "after kernel".

    Parameters
    ----------
    f
        ``f(params, x)``, differentiable by JAX, from samples (sample, ...) to outputs (sample,)
        or (sample, output); the output of a sample depends on that sample alone. Hashable; a
        lambda written in the call itself is compiled anew at every call.
    params
        Any tree of arrays.
    x1, x2
        Samples. Without ``x2``, the kernel of ``x1`` with itself.
    rates
        ρ, a tree like ``params`` of numbers or of arrays that broadcast; 1 if None. Rate 0
        freezes a parameter.
    method
        ``"jacobian"`` forms ∂f/∂θ of every sample and multiplies; ``"products"`` multiplies by
        vectors, in memory of a few copies of the parameters for every sample and output of x2;
        ``"auto"`` compiles both and takes the one with fewer operations by XLA's count.

    Returns
    -------
    array
        (n1, n2), or (n1, n2, output, output).

    Raises
    ------
    InvalidInput
        If the outputs are of another shape, the trees differ, or the method is not known.
    OutOfMemory
        If the kernel, or a gradient for every sample of x2, does not fit into memory.

    Examples
    --------
    >>> import numpy as np
    >>> from largen import tangent_kernel
    >>> def model(params, x):
    ...     return (x @ params["w"]) ** 2
    >>> tangent_kernel(model, {"w": np.array([1.0, 0.0])}, np.eye(2)).tolist()
    [[4.0, 0.0], [0.0, 0.0]]
    """
    one_of("method", method, METHODS)
    params, x1, x2, rates = _checked(f, params, x1, x2, rates)
    if not is_traced(params, x1, x2):
        _check_size(f, params, x1, x2, gradients=True)
    with precision(params, x1, x2):
        arguments = params, rates, x1, x1 if x2 is None else x2
        if is_traced(*arguments) and method == "auto":
            method = "jacobian"
        kernel = _whole(f, method, *arguments)
        kernel = kernel if kernel.ndim == 2 else jnp.moveaxis(kernel, 1, 2)
        return finite_result("tangent_kernel", like(kernel, params, x1, x2))


@interruptible()
def output_kernel(f: Function, params: Any, x1: ArrayLike, x2: ArrayLike | None = None) -> Any:
    """Return the mean over outputs of f(x)f(x'), an estimate of the NNGP kernel from one draw.

    The mean assumes several outputs that are identically distributed at initialisation.
    :func:`largen.monte_carlo_kernel` averages over draws, with error bars.

    Parameters
    ----------
    f, params, x1, x2
        As in :func:`tangent_kernel`.

    Returns
    -------
    array
        (n1, n2).

    Raises
    ------
    InvalidInput
        As :func:`tangent_kernel` does.

    Examples
    --------
    >>> import numpy as np
    >>> from largen import output_kernel
    >>> output_kernel(lambda w, x: x @ w, np.eye(2), np.ones((1, 2))).tolist()
    [[1.0]]
    """
    params, x1, x2, _ = _checked(f, params, x1, x2, None)
    if not is_traced(params, x1, x2):
        _check_size(f, params, x1, x2, gradients=False)
    with precision(params, x1, x2):
        one = jnp.asarray(f(params, x1))
        two = one if x2 is None else jnp.asarray(f(params, x2))
        one, two = (values.reshape(values.shape[0], -1) for values in (one, two))
        found = like(one @ two.T / one.shape[1], params, x1, x2)
        return finite_result("output_kernel", found)


def tangent_operator(
    f: Function,
    params: Any,
    x1: ArrayLike,
    x2: ArrayLike | None = None,
    *,
    rates: Any = None,
) -> LinearOperator:
    """Return the tangent kernel as an operator that is never formed: Kv = J₁ ρ J₂ᵀ v.

    One product costs a backward pass over ``x2`` and a forward derivative over ``x1``, whatever
    the number of parameters. Solvers such as ``scipy.sparse.linalg.cg`` and ``eigsh`` accept the
    operator.

    Parameters
    ----------
    f, params, x1, x2, rates
        As in :func:`tangent_kernel`.

    Returns
    -------
    scipy.sparse.linalg.LinearOperator
        An operator on NumPy vectors, of shape (n1·output, n2·output), samples before outputs.

    Raises
    ------
    InvalidInput
        As :func:`tangent_kernel` does.

    Examples
    --------
    >>> import numpy as np
    >>> from largen import tangent_operator
    >>> tangent_operator(lambda w, x: x @ w, np.zeros(2), np.eye(2)) @ np.array([1.0, 2.0])
    array([1., 2.])
    """
    from scipy.sparse.linalg import LinearOperator

    params, x1, x2, rates = _checked(f, params, x1, x2, rates)
    if is_traced(params, x1, x2):
        raise InvalidInput("tangent_operator: params or samples are traced; build it outside jit.")
    x2 = x1 if x2 is None else x2
    with precision(params, x1, x2):
        shapes = [jax.eval_shape(f, params, x).shape for x in (x1, x2)]
        dtype = jax.eval_shape(f, params, x1).dtype

    def product(first, second, shape):
        def times(v):
            with precision(params, first, second):
                v = jnp.asarray(np.reshape(v, shape), dtype)
                found = np.asarray(_product(f, params, rates, first, second, v)).ravel()
                return finite_result("tangent_operator", found)

        return times

    sizes = tuple(int(np.prod(shape)) for shape in shapes)
    ahead, back = product(x1, x2, shapes[1]), product(x2, x1, shapes[0])
    return LinearOperator(sizes, matvec=ahead, rmatvec=back, dtype=dtype)  # type: ignore[call-arg]


def _checked(f, params, x1, x2, rates):
    takes("f", f, ("params", "x"))
    params, x1 = tree_of_floats("params", params), floating("x1", x1)
    _check_outputs(f, params, "x1", x1)
    if x2 is not None:
        x2 = floating("x2", x2, ndim=x1.ndim)
        if x2.shape[1:] != x1.shape[1:]:
            raise InvalidInput(
                f"x2: its samples have the shape {x2.shape[1:]}, those of x1 {x1.shape[1:]}."
            )
        _check_outputs(f, params, "x2", x2)
    if rates is None:
        rates = jax.tree.map(lambda _: 1.0, params)
    rates = tree_of_floats("rates", rates)
    if jax.tree.structure(rates) != jax.tree.structure(params):
        raise InvalidInput(
            f"rates: wanted a tree like params, {jax.tree.structure(params)}, got "
            f"{jax.tree.structure(rates)}."
        )
    for rate, leaf in zip(jax.tree.leaves(rates), jax.tree.leaves(params), strict=True):
        if rate.ndim > leaf.ndim or any(
            r not in (1, n) for r, n in zip(rate.shape[::-1], leaf.shape[::-1], strict=False)
        ):
            raise InvalidInput(
                f"rates: wanted numbers or arrays that broadcast to {leaf.shape}, got {rate.shape}."
            )
    return params, x1, x2, rates


def _check_outputs(f: Function, params: Any, name: str, x: Any) -> None:
    with precision(params, x):
        out = outputs_on_shapes("f", f, params, x)
    shape = getattr(out, "shape", None)
    if shape is None or len(shape) not in (1, 2) or shape[0] != len(x):
        raise InvalidInput(
            f"f: wanted outputs ({len(x)},) or ({len(x)}, output) for the {len(x)} samples of "
            f"{name}, got {shown(out)}."
        )
    if not np.issubdtype(out.dtype, np.floating):
        raise InvalidInput(f"f: wanted real outputs, got dtype {out.dtype}.")


def _check_size(f: Function, params: Any, x1: Any, x2: Any, *, gradients: bool) -> None:
    """Check that a kernel, and a gradient for every sample and output of x2, fit into memory."""
    with precision(params, x1, x2):
        out = [jax.eval_shape(f, params, x) for x in (x1, x1 if x2 is None else x2)]
    rows, columns = (each.size if gradients else each.shape[0] for each in out)
    weights = sum(leaf.size for leaf in jax.tree.leaves(params)) if gradients else 0
    check_fits(
        float(columns) * (rows + weights) * np.dtype(out[0].dtype).itemsize,
        f"x1: kernel and gradients of {len(x1)} × {out[1].shape[0]} samples",
        "Take fewer samples, or lg.tangent_operator, which forms neither.",
    )


def _jacobian(f, params, x):
    def of_sample(row):
        return jax.jacrev(lambda p: f(p, row[None])[0])(params)

    return jax.vmap(of_sample)(x)


@partial(jax.jit, static_argnums=0)
def _by_jacobian(f, params, rates, x1, x2):
    """Return the kernel, (n1, n2) or (n1, output, n2, output), summed over parameter arrays."""
    one, two = _jacobian(f, params, x1), _jacobian(f, params, x2)
    axes = jax.eval_shape(f, params, x1).ndim

    def of_leaf(theta, rate, a, b):
        weighted = a * jnp.broadcast_to(rate, jnp.shape(theta))
        a, b = (j.reshape(*j.shape[:axes], -1) for j in (weighted, b))
        return jnp.tensordot(a, b, (-1, -1))

    return sum(jax.tree.leaves(jax.tree.map(of_leaf, params, rates, one, two)))


@partial(jax.jit, static_argnums=0)
def by_products(f, params, rates, x1, x2):
    """Return the same kernel, column by column; samples of a batch may depend on each other."""
    out = jax.eval_shape(f, params, x2)
    columns = jnp.eye(int(np.prod(out.shape)), dtype=out.dtype).reshape(-1, *out.shape)
    found = jax.vmap(lambda v: _product(f, params, rates, x1, x2, v))(columns)
    found = found.reshape(*out.shape, *found.shape[1:])
    return jnp.moveaxis(found, tuple(range(out.ndim)), tuple(range(-out.ndim, 0)))


@partial(jax.jit, static_argnums=0)
def _product(f, params, rates, x1, x2, v):
    (pulled,) = jax.vjp(lambda p: f(p, x2), params)[1](v)
    pulled = jax.tree.map(lambda g, rate: (g * rate).astype(g.dtype), pulled, rates)
    return jax.jvp(lambda p: f(p, x1), (params,), (pulled,))[1]


_BY_NAME = {"jacobian": _by_jacobian, "products": by_products}


def _whole(f, method: str, params, rates, x1, x2):
    """Return the kernel, for large sets tile by tile.

    Tiles assume that the outputs of a sample depend on that sample alone. Between two tiles the
    computation can be interrupted.
    """
    shapes = [jax.eval_shape(f, params, x).shape for x in (x1, x2)]
    weights = sum(leaf.size for leaf in jax.tree.leaves(params))
    outputs = int(np.prod(shapes[0][1:], dtype=int))
    side = max(int((MOST_AT_ONCE / (weights * outputs**2)) ** 0.5), FEWEST_AT_ONCE)
    traced = is_traced(params, rates, x1, x2)
    if traced or max(len(x1), len(x2)) <= side:
        run = _cheapest(f, params, rates, x1, x2) if method == "auto" else None
        return (run or partial(_BY_NAME[method], f))(params, rates, x1, x2)

    def tiles(x):
        """Return where tiles begin, and the samples of each; the last tile is padded."""
        count = min(side, len(x))
        at = range(0, len(x), count)
        return [(start, x[np.minimum(np.arange(start, start + count), len(x) - 1)]) for start in at]

    rows, columns = tiles(x1), tiles(x2)
    first = params, rates, rows[0][1], columns[0][1]
    run = _cheapest(f, *first) if method == "auto" else partial(_BY_NAME[method], f)
    found = None
    for i, one in rows:
        for j, two in columns:
            tile = np.asarray(run(params, rates, one, two))
            check()
            if found is None:
                found = np.empty((len(x1), *shapes[0][1:], len(x2), *shapes[1][1:]), tile.dtype)
            samples = slice(i, i + len(one)), slice(j, j + len(two))
            there = found[samples] if tile.ndim == 2 else found[samples[0], :, samples[1]]
            there[...] = tile[tuple(map(slice, there.shape))]
    return jnp.asarray(found)


def _cheapest(f, *arguments):
    """Return the compiled method with fewer operations at these shapes."""
    leaves, tree = jax.tree.flatten(arguments)
    shapes = tuple((jnp.shape(leaf), jnp.result_type(leaf)) for leaf in leaves)
    return _compile(f, tree, shapes)


@lru_cache(maxsize=64)
def _compile(f, tree, shapes):
    leaves = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in shapes]
    arguments = tree.unflatten(leaves)
    found = [method.lower(f, *arguments).compile() for method in _BY_NAME.values()]
    return min(found, key=_operations)


def _operations(compiled) -> float:
    cost = compiled.cost_analysis()
    cost = cost[0] if isinstance(cost, list) else cost
    return float((cost or {}).get("flops", np.inf))
