"""Kernels of a finite network from one forward and one backward pass per output."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from largen.architectures import Layer, check_one_output, layers_of
from largen.arrays import finite_result, like, precision, same_precision, samples, shape_of
from largen.bibliography import cites
from largen.errors import NoTheory
from largen.interrupts import interruptible
from largen.memory import check_fits
from largen.networks.modules import LayerKernels, Params
from largen.networks.network import FiniteNetwork, network_of
from largen.networks.rules.affine import Probe
from largen.parameterizations import Parameterization


@cites("jacot2018neural", "bahri2022les", "pehlevan2023lecture")
@interruptible()
def empirical_ntk(
    net: Layer,
    params: Params,
    x1: ArrayLike,
    x2: ArrayLike | None = None,
    *,
    param: Parameterization | None = None,
    outputs: int | None = None,
) -> Any:
    """Return the neural tangent kernel of a finite network, each weight weighted by its rate.

        K(x, x') = Σ_θ ρ_θ ∂f(x)/∂θ ∂f(x')/∂θ,

    with ρ_θ the rule's ``lr`` for gradient descent, so that df_μ/dt = (η₀/P) Σ_ν K_μν Δ_ν under
    gradient flow (Pehlevan and Bordelon's lecture notes, eq. (26); Bahri and Hanin, Les Houches
    lectures, §3). With :func:`largen.ntk`, ρ = 1; with :func:`largen.mean_field`, ρ = γ₀²N and K
    is of order one all the same.

    The Jacobian is never formed. For a weight matrix, ∂f/∂W = m a gᵀ with the input a and the
    backward vector g = ∂f/∂h, so that the sum over its entries is m² (a·a')(g·g'); for a
    convolution it is the sum of that over pairs of positions.

    Parameters
    ----------
    net
        What is computed.
    params
        Parameters from :func:`largen.networks.init`.
    x1, x2
        Inputs, ``(n1, input)`` or ``(n1, *space, channel)``, and n2 of the same shape. Without
        ``x2``, the kernel of ``x1`` with itself, which is exactly symmetric. Parameters and inputs
        of different precision are computed in the higher one.
    param
        The parameterization that the parameters were drawn in; :func:`largen.ntk` by default.
    outputs
        Pass 1 to keep the axes of a single output, which are otherwise dropped.

    Returns
    -------
    array
        Shape ``(n1, n2)``; with several outputs ``(n1, n2, output, output)``.

    Raises
    ------
    InvalidInput
        If the parameters or the inputs do not fit the network.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> net = lg.mlp(1, "linear")
    >>> params = lg.networks.init(net, lg.ntk(), width=4, inputs=3, key=0, dtype=np.float64)
    >>> x, (a, _, b) = np.eye(3), params
    >>> by_hand = x @ x.T / 3 * (b["weight"] ** 2).mean() + a["weight"] @ a["weight"].T / 12
    >>> bool(np.allclose(lg.networks.empirical_ntk(net, params, x), by_hand))
    True
    """
    x1 = samples("x1", x1)
    network = network_of(net, params, param, outputs, shape_of(x1))
    network.check_params(params)
    x1 = network.check_inputs("x1", x1)
    x2 = None if x2 is None else network.check_inputs("x2", x2)
    rows, columns = (np.shape(x)[0] for x in (x1, x1 if x2 is None else x2))
    check_fits(
        float(rows) * columns * (network.outputs or 1) ** 2 * np.result_type(x1).itemsize,
        f"x1: the tangent kernel of {rows} × {columns} samples",
        "Take fewer samples, or lg.networks.ntk_operator_of_function, which never forms it.",
    )
    with precision(params, x1, x2):
        given = params, x1, x2
        kernel = like(_ntk(network, *same_precision(given)), given)
        return finite_result("empirical_ntk", kernel)


def probe(
    network: FiniteNetwork,
    params: Params,
    x: Float[Array, "sample ..."],
    feedback: Params | None = None,
) -> Probe:
    """Return the inputs of all weights, and the gradient of every output behind these weights.

    ``feedback``: parameters in place of whose weights derivatives pass backward.
    """
    check_samples_apart(network.net)
    check_one_output(network.net, network.inputs)
    module = network.module
    taps = module.taps(len(x), x.dtype)

    def forward(taps):
        return module.forward(params, x, taps, feedback)

    f, backward, captures = jax.vjp(forward, taps, has_aux=True)

    def of_output(one_hot):
        return backward(jnp.broadcast_to(one_hot, f.shape))[0]

    # The output axis goes before the last one, that of the features.
    gradients = jax.vmap(of_output, out_axes=-2)(jnp.eye(f.shape[1], dtype=f.dtype))
    return Probe(captures, gradients)


def inputs_alone(network: FiniteNetwork, params: Params, x: Float[Array, "sample ..."]) -> Probe:
    """Return the inputs of all weights, with gradients of zero: feature kernels need no others."""
    taps = network.module.taps(len(x), x.dtype)
    captures = network.module.forward(params, x, taps)[1]
    return Probe(captures, jax.tree.map(lambda tap: jnp.expand_dims(tap, -2), taps))


def check_samples_apart(net: Layer) -> None:
    """Check that outputs depend on their sample alone, as kernels of two samples require."""
    layer = coupling(net)
    if layer is not None:
        raise NoTheory(
            f"empirical kernels: {layer!r} couples the samples of a batch, so that no kernel "
            "is a function of two samples; use LayerNorm() or RMSNorm(), or "
            "lg.networks.monte_carlo_kernel for means over networks, of the samples of one batch."
        )


def coupling(net: Layer) -> Layer | None:
    """Return a layer that couples the samples of a batch; None if there is none."""
    return next((layer for layer in layers_of(net) if layer.couples_samples), None)


def kernels(network: FiniteNetwork, one: Probe, two: Probe) -> LayerKernels:
    """Return Φ, G and the NTK between two sets of samples.

    The preactivations hˡ, l = 1 … L, are the outputs of all affine maps but the last.
    Φˡ = φ(hˡ)·φ(hˡ)/N is computed from the input of the next affine map, and Gˡ = gˡ·gˡ/N with
    g = √N γ ∂f/∂h, which is N γ₀ ∂f/∂h in the mean-field parameterization (Pehlevan and Bordelon,
    §2). With one scalar output the axes of outputs are dropped.
    """
    parts = network.module.kernels(one, two)
    assert parts is not None
    features, gradients = parts.features[1:], network.table.gamma**2 * parts.gradients[:-1]
    if network.outputs is None:
        return LayerKernels(features, gradients[..., 0, 0], parts.tangent[..., 0, 0])
    return LayerKernels(features, gradients, parts.tangent)


@partial(jax.jit, static_argnums=0)
def _ntk(network: FiniteNetwork, params, x1, x2):
    one = probe(network, params, x1)
    if x2 is not None:
        return kernels(network, one, probe(network, params, x2)).tangent
    kernel = kernels(network, one, one).tangent
    return (kernel + kernel.transpose((1, 0, 3, 2)[: kernel.ndim])) / 2  # exactly symmetric
