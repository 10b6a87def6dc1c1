"""A function of parameters and samples, expanded around given parameters."""

from __future__ import annotations

from collections.abc import Callable
from math import factorial
from typing import Any

import jax
import numpy as np

from largen.arrays import (
    as_array,
    check_same_tree,
    finite_result,
    leaf_name,
    like,
    precision,
    same_precision,
    tree_of_floats,
)
from largen.bibliography import cites
from largen.callables import outputs_on_shapes, takes
from largen.errors import InvalidInput
from largen.scalars import integer
from largen.text import shown

Function = Callable[[Any, Any], Any]
_LEAVES = (jax.Array, bool, int, float, complex)  # what JAX takes as it is
HIGHEST = 16  # largest degree, at which one value costs 65536 evaluations


@cites("lee2019wide", "bahri2022les")
def linearize(f: Function, params: Any) -> Function:
    """Return f expanded to first order, f(θ₀, x) + ∂f/∂θ(θ₀, x)·(θ − θ₀).

    A network becomes this linear model in the kernel limit: Bahri and Hanin, Les Houches lectures,
    eq. (82).

    Parameters
    ----------
    f
        ``f(params, x)``, differentiable by JAX.
    params
        θ₀, a tree of arrays.

    Returns
    -------
    Callable
        A function of (params, x) that can be trained, compiled and differentiated like f. It is
        computed in the highest precision of θ₀, parameters and x; inside ``jit`` and ``grad``, in
        that of JAX, which is single unless ``jax.enable_x64`` says otherwise.

    Raises
    ------
    InvalidInput
        If f is no function of (params, x), or ``params`` holds no arrays of floats.

    Examples
    --------
    >>> import numpy as np
    >>> from largen.networks import linearize
    >>> line = linearize(lambda w, x: w**2 * x, np.array(1.0))
    >>> float(line(np.array(3.0), 1.0))
    5.0
    """
    return taylor_expand(f, params, 1)


def taylor_expand(f: Function, params: Any, degree: int) -> Function:
    """Return f expanded to a degree in the parameters, Σ_k dᵏ/dtᵏ f(θ₀ + t(θ − θ₀), x)/k! at 0.

    The cost of degree k grows as 2ᵏ, since derivatives are nested.

    Parameters
    ----------
    f, params
        As in :func:`linearize`.
    degree
        The highest power of θ − θ₀, at least 0.

    Raises
    ------
    InvalidInput
        If the degree is not an integer ≥ 0; when called, for parameters of another structure.

    Examples
    --------
    >>> import numpy as np
    >>> from largen.networks import taylor_expand
    >>> cubic = taylor_expand(lambda w, x: w**3 * x, np.array(1.0), 2)
    >>> float(cubic(np.array(2.0), 1.0))  # 1 + 3 + 3
    7.0
    """
    highest = integer("degree", degree, at_least=0, at_most=HIGHEST)
    takes("f", f, ("params", "x"))
    params = tree_of_floats("params", params)

    def expanded(at: Any, x: Any) -> Any:
        at = tree_of_floats("params", at)
        x = jax.tree.map(lambda v: v if isinstance(v, _LEAVES) else as_array("x", v), x)
        with precision(at, params, x):
            given = at, params, x
            expansion = of_one_precision(*same_precision(given))
            return finite_result("taylor_expand", like(expansion, given))

    def of_one_precision(at: Any, params: Any, x: Any) -> Any:
        _check_like(at, params)
        for out in jax.tree.leaves(outputs_on_shapes("f", f, at, x)):
            if not jax.numpy.issubdtype(out.dtype, np.floating):
                raise InvalidInput(f"f: wanted outputs that are floats, got {shown(out)}.")
        step = jax.tree.map(lambda new, old: new - old, at, params)

        def along(k: int) -> Callable[[Any], Any]:
            """The k-th derivative in the direction of the step."""
            if k == 0:
                return lambda theta: f(theta, x)
            return lambda theta: jax.jvp(along(k - 1), (theta,), (step,))[1]

        terms = [along(k)(params) for k in range(highest + 1)]
        return jax.tree.map(
            lambda *parts: sum(part / factorial(k) for k, part in enumerate(parts)), *terms
        )

    return expanded


def _check_like(at: Any, params: Any) -> None:
    """Check that parameters have the tree and the shapes of those expanded around."""
    check_same_tree("params", at, params)
    leaves = zip(jax.tree.leaves_with_path(at), jax.tree.leaves(params), strict=True)
    for (path, new), old in leaves:
        if new.shape != old.shape:
            name = leaf_name("params", path)
            raise InvalidInput(f"{name}: wanted shape {old.shape}, got {new.shape}.")
