"""Empirical kernels of any JAX function f(params, x), whatever its architecture."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from largen.arrays import (
    check_same_tree,
    finite_result,
    floating,
    is_traced,
    leaf_name,
    like,
    precision,
    same_precision,
    tree_of_floats,
)
from largen.callables import outputs_on_shapes, takes
from largen.errors import InvalidInput, one_of
from largen.interrupts import interruptible
from largen.memory import check_fits
from largen.networks.tangents.products import by_products, product_of
from largen.networks.tangents.samples_apart import apart
from largen.networks.tangents.tiles import kernel_in_tiles
from largen.text import shown

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator

Function = Callable[[Any, Any], Any]
METHODS = ("auto", "jacobian", "products")


@interruptible()
def ntk_of_function(
    f: Function,
    params: Any,
    x1: ArrayLike,
    x2: ArrayLike | None = None,
    *,
    rates: Any = None,
    method: str = "auto",
) -> Any:
    """Return the neural tangent kernel of any function, K(x, x') = Σ_θ ρ_θ ∂f(x)/∂θ ∂f(x')/∂θ.

    At the parameters of a trained network, K is the "after kernel".

    The derivative by a weight matrix W of an affine map with inputs a, whose output has the
    cotangents g = ∂f/∂h, is a gᵀ, and its part of the kernel (a·a')(g·g'): products of vectors
    instead of matrices (for largen's networks, see :func:`largen.networks.empirical_ntk`; for
    convolutions and sequences, a sum over pairs of positions). Affine maps are read from the
    function's jaxpr:
    ``dot_general``, convolutions, and rows taken from a table, of a parameter array that may be
    transposed, reshaped or multiplied by a constant before. An array that is used several times
    contributes all products of its uses. A ``scan`` of at most 32 steps is its steps, each with its
    entry of a stack. Arrays used in any other way, such as biases, contribute by their derivatives.

    Parameters
    ----------
    f
        ``f(params, x)``, differentiable by JAX, from samples (sample, ...) to outputs (sample,)
        or (sample, output). Hashable; a lambda written in the call itself is compiled again at
        every call. Outputs may depend on other samples of the batch, as with batch statistics or
        with masks that differ between rows: K is then that of the batches as they are given,
        J(X) ρ J(X')ᵀ with J = ∂f(X)/∂θ, at the cost of ``"products"``. Whether they do is proved
        from the jaxpr, or else a derivative of the batch is compared with those of single rows;
        inside ``jit``, without a proof, "products" is used.
    params
        Any tree of arrays.
    x1, x2
        Samples. Without ``x2``, the kernel of ``x1`` with itself, which is exactly symmetric.
        Parameters and samples of different precision are computed in the higher one.
    rates
        ρ, a tree like ``params`` of numbers or of arrays that broadcast; 1 if None. Rate 0
        freezes a parameter.
    method
        ``"auto"`` uses the affine maps, and for each array products of vectors or the derivative,
        by the number of multiplications; large sets of samples are computed in tiles.
        ``"jacobian"`` forms ∂f/∂θ of every sample and multiplies. ``"products"`` multiplies by
        vectors, column by column.

    Returns
    -------
    array
        (n1, n2), or (n1, n2, output, output).

    Raises
    ------
    InvalidInput
        If the outputs are of another shape, the trees differ, or the method is not known.
    OutOfMemory
        If the kernel does not fit into memory.

    Examples
    --------
    >>> import numpy as np
    >>> from largen.networks import ntk_of_function
    >>> def model(params, x):
    ...     return (x @ params["w"]) ** 2
    >>> ntk_of_function(model, {"w": np.array([1.0, 0.0])}, np.eye(2)).tolist()
    [[4.0, 0.0], [0.0, 0.0]]
    """
    one_of("method", method, METHODS)
    params, x1, x2, rates = _checked(f, params, x1, x2, rates)
    if not is_traced(params, x1, x2):
        _check_size(f, params, x1, x2, each_output=True)
    with precision(params, x1, x2):
        given = params, x1, x2
        params, x1, x2 = same_precision(given)
        factored = method != "products" and all(
            apart(f, params, x) for x in (x1, x2) if x is not None
        )
        if factored:
            kernel = kernel_in_tiles(f, params, rates, x1, x2, factored=method == "auto")
        else:
            kernel = by_products(f, params, rates, x1, x1 if x2 is None else x2)
        if not is_traced(kernel):
            kernel = np.asarray(kernel)
        if x2 is None:
            half = kernel.ndim // 2
            kernel = (kernel + kernel.transpose(*range(half, 2 * half), *range(half))) / 2
        kernel = kernel if kernel.ndim == 2 else kernel.swapaxes(1, 2)
        kernel = kernel if is_traced(kernel) else jax.device_put(kernel)
        return finite_result("ntk_of_function", like(kernel, given))


@interruptible()
def nngp_of_function(f: Function, params: Any, x1: ArrayLike, x2: ArrayLike | None = None) -> Any:
    """Return the mean over outputs of f(x)f(x'), an estimate of the NNGP kernel from one draw.

    The mean assumes several outputs that are identically distributed at initialisation.
    :func:`largen.networks.monte_carlo_kernel` averages over draws, with error bars.

    Parameters
    ----------
    f, params, x1, x2
        As in :func:`ntk_of_function`.

    Returns
    -------
    array
        (n1, n2).

    Raises
    ------
    InvalidInput
        As :func:`ntk_of_function` does.

    Examples
    --------
    >>> import numpy as np
    >>> from largen.networks import nngp_of_function
    >>> nngp_of_function(lambda w, x: x @ w, np.eye(2), np.ones((1, 2))).tolist()
    [[1.0]]
    """
    params, x1, x2, _ = _checked(f, params, x1, x2, None)
    if not is_traced(params, x1, x2):
        _check_size(f, params, x1, x2, each_output=False)
    with precision(params, x1, x2):
        given = params, x1, x2
        params, x1, x2 = same_precision(given)
        one = jnp.asarray(f(params, x1))
        two = one if x2 is None else jnp.asarray(f(params, x2))
        one, two = (values.reshape(values.shape[0], -1) for values in (one, two))
        kernel = like(one @ two.T / one.shape[1], given)
        return finite_result("nngp_of_function", kernel)


def ntk_operator_of_function(
    f: Function, params: Any, x1: ArrayLike, x2: ArrayLike | None = None, *, rates: Any = None
) -> LinearOperator:
    """Return the tangent kernel as an operator that is never formed: Kv = J₁ ρ J₂ᵀ v.

    One product costs a backward pass over ``x2`` and a forward derivative over ``x1``, whatever
    the number of parameters. Solvers such as ``scipy.sparse.linalg.cg`` and ``eigsh`` accept the
    operator.

    Parameters
    ----------
    f, params, x1, x2, rates
        As in :func:`ntk_of_function`.

    Returns
    -------
    scipy.sparse.linalg.LinearOperator
        An operator on NumPy vectors, of shape (n1·output, n2·output), samples before outputs.

    Raises
    ------
    InvalidInput
        As :func:`ntk_of_function` does.

    Examples
    --------
    >>> import numpy as np
    >>> from largen.networks import ntk_operator_of_function
    >>> ntk_operator_of_function(lambda w, x: x @ w, np.zeros(2), np.eye(2)) @ np.array([1.0, 2.0])
    array([1., 2.])
    """
    from scipy.sparse.linalg import LinearOperator

    params, x1, x2, rates = _checked(f, params, x1, x2, rates)
    if is_traced(params, x1, x2):
        raise InvalidInput(
            "ntk_operator_of_function: params or samples are traced; build it outside jit."
        )
    x2 = x1 if x2 is None else x2
    with precision(params, x1, x2):
        params, x1, x2 = same_precision((params, x1, x2))
        shapes = [jax.eval_shape(f, params, x).shape for x in (x1, x2)]
        dtype = jax.eval_shape(f, params, x1).dtype

    def product(first, second, shape):
        def times(v):
            with precision(params, first, second):
                v = jnp.asarray(np.reshape(v, shape), dtype)
                image = np.asarray(product_of(f, params, rates, first, second, v)).ravel()
                return finite_result("ntk_operator_of_function", image)

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
    check_same_tree("rates", rates, params)
    leaves = zip(jax.tree.leaves_with_path(rates), jax.tree.leaves(params), strict=True)
    for (path, rate), leaf in leaves:
        if rate.ndim > leaf.ndim or any(
            r not in (1, n) for r, n in zip(rate.shape[::-1], leaf.shape[::-1], strict=False)
        ):
            raise InvalidInput(
                f"{leaf_name('rates', path)}: wanted a number or an array that broadcasts to "
                f"{leaf.shape}, got {rate.shape}."
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


def _check_size(f: Function, params: Any, x1: Any, x2: Any, *, each_output: bool) -> None:
    """Check that a kernel fits into memory."""
    with precision(params, x1, x2):
        out = [jax.eval_shape(f, params, x) for x in (x1, x1 if x2 is None else x2)]
    rows, columns = (y.size if each_output else y.shape[0] for y in out)
    check_fits(
        float(columns) * rows * np.dtype(out[0].dtype).itemsize,
        f"x1: the kernel of {len(x1)} × {out[1].shape[0]} samples",
        "Take fewer samples, or lg.networks.ntk_operator_of_function, which never forms it.",
    )
