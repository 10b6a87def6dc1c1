"""The hierarchy of variables that drives a finite network's training: f, its NTK, and beyond."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.typing import ArrayLike

from largen.architectures import Layer
from largen.arrays import finite_result, like, precision, same_precision, samples, shape_of
from largen.bibliography import cites
from largen.errors import NoTheory
from largen.memory import check_fits
from largen.networks.network import FiniteNetwork, network_of
from largen.parameterizations import Parameterization
from largen.scalars import integer

MOST_ORDERS = 6


@cites("dyer2020asymptotics", "bahri2022les")
def training_hierarchy(
    net: Layer, params: Any, x: ArrayLike, *, order: int, param: Parameterization | None = None
) -> tuple[Any, ...]:
    """Return the variables O_1, …, O_s of a finite network, between samples.

        O_1(x) = f(x),   O_s(x_1, …, x_s) = Σ_θ ρ_θ ∂O_{s−1}(x_1, …, x_{s−1})/∂θ ∂f(x_s)/∂θ,

    so that O_2 is the tangent kernel. Under gradient flow of Σ_α ℓ(f_α) each drives the one before,

        dO_s/dt = −Σ_α ℓ'(f_α) O_{s+1}(…, x_α)

    (Bahri and Hanin, Les Houches lectures, (97) and (98)). At initialisation O_3 and O_4 are of
    order 1/n and O_5 and O_6 of order 1/n² (:func:`correlator_order`), so that training to order
    1/n ends with O_4: :func:`largen.training.predict_training` has the result.

    Parameters
    ----------
    net
        A network of one output.
    params
        Parameters from :func:`largen.networks.init`.
    x
        P inputs, as for :func:`largen.networks.empirical_ntk`.
    order
        s, from 1 to 6. Memory and time grow as P^s.
    param
        The parameterization that the parameters were drawn in, with the rates ρ;
        :func:`largen.ntk` by default.

    Returns
    -------
    tuple of arrays
        O_1 to O_s, ``(P,)``, ``(P, P)``, ….

    Raises
    ------
    InvalidInput
        If the parameters or the inputs do not fit the network, or s is out of range.
    NoTheory
        For several outputs.
    OutOfMemory
        If the largest array does not fit.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> net, x = lg.mlp(1, "tanh"), np.eye(3)
    >>> params = lg.networks.init(net, lg.ntk(), width=8, inputs=3, key=0, dtype=np.float64)
    >>> result = lg.finite_width.training_hierarchy(net, params, x, order=3)
    >>> [each.shape for each in result]
    [(3,), (3, 3), (3, 3, 3)]
    >>> bool(np.allclose(result[1], lg.networks.empirical_ntk(net, params, x)))
    True
    """
    x = samples("x", x)
    network = network_of(net, params, param, None, shape_of(x))
    network.check_params(params)
    x = network.check_inputs("x", x)
    order = integer("order", order, at_least=1, at_most=MOST_ORDERS)
    if network.outputs not in (None, 1):
        raise NoTheory(
            f"lg.finite_width.training_hierarchy: wanted one output, got {network.outputs}."
        )
    P = np.shape(x)[0]
    check_fits(
        8.0 * 2**order * float(P) ** order,
        f"order: O_{order} of {P} samples",
        "Take fewer samples or a lower order.",
    )
    with precision(params, x):
        given = params, x
        found = like(_hierarchy((network, order), *same_precision(given)), given)
        return finite_result("lg.finite_width.training_hierarchy", found)


@partial(jax.jit, static_argnums=0)
def _hierarchy(given: tuple[FiniteNetwork, int], params: Any, x: Any) -> tuple[Any, ...]:
    network, order = given
    rates = network.per_leaf(network.table, "lr")

    def f(theta):
        return network.outputs_of(theta, x).reshape(-1)

    def further(variable: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def derived(theta):
            rows = jax.tree.map(lambda row, rate: rate * row, jax.jacrev(f)(theta), rates)
            along = lambda row: jax.jvp(variable, (theta,), (row,))[1]  # noqa: E731
            return jax.vmap(along, out_axes=-1)(rows)

        return derived

    variables: list[Callable[[Any], Any]] = [f]
    for _ in range(order - 1):
        variables.append(further(variables[-1]))
    return tuple(variable(params) for variable in variables)
