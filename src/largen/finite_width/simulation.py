"""Exact samples of a finite network's kernel, drawn without weight matrices."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import groupby
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from largen.architectures import Layer
from largen.errors import InvalidInput
from largen.expectations import ActivationFunction
from largen.finite_width.batched_draws import cholesky, in_batches
from largen.finite_width.checks import checked_inputs
from largen.finite_width.sized_network import SizedNetwork, sized_network
from largen.finite_width.stream_simulation import draw_streams
from largen.parameterizations import Parameterization
from largen.scalars import integer, random_key

Layers = tuple[tuple[ActivationFunction, int], ...]  # activations and widths
MOST_INPUTS = 16  # whose Cholesky factor is written out
_AT_ONCE = 2**20  # Gaussian numbers: far less than half a second


def sample_kernels(
    net: Layer, x: ArrayLike, *, width: int | Sequence[int], draws: int,
    param: Parameterization | None = None, key: Any = 0,
) -> np.ndarray:  # fmt: skip
    """Draw the covariance of a finite network's outputs given its last hidden layer.

    Given a layer, the neurons behind it are independent Gaussians of covariance S, so that

        S ← σ_b² + (σ_w²/n) Σ_j φ(z_jα)φ(z_jβ),   z_j ~ N(0, S),

    is a Markov chain with exactly the distribution of networks at any width. It takes n·P Gaussian
    numbers a layer instead of n² weights, and uses no expansion in 1/n, so that it is an
    independent reference like :func:`largen.networks.init` and :func:`largen.networks.apply`;
    outputs are N(0, S) given S. For relu and deep networks S has heavy tails: means of its powers
    converge slowly, and log S is the better observable. In residual networks the neurons of the
    stream are kept, h ← h + βN(0, S).

    Parameters
    ----------
    net
        :class:`largen.Dense` and :class:`largen.Activation` in turn, and residual branches of them,
        such as :func:`largen.residual_mlp`.
    x
        Inputs, (P, D), at most 16.
    width
        Neurons of all hidden layers (times their ``width_ratio``), or one number for each.
    draws
        Number of networks.
    param
        The parameterization; :func:`largen.ntk` by default. It sets every σ_w² and σ_b² at this
        width, such as σ_w²/(γ₀²n) of the read-out in :func:`largen.mean_field`, and the factor
        β = L^(−α) of residual branches.
    key
        A JAX key or an integer.

    Returns
    -------
    numpy.ndarray
        S of every network, (draws, P, P), float64.

    Raises
    ------
    InvalidInput
        For inputs that are not finite floats, too many of them, or counts that are not positive.
    NoRule, NoTheory
        For other networks, and for weights that are not Gaussian.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> net = lg.mlp(2, "relu", weight_std=2**0.5)
    >>> drawn = lg.finite_width.sample_kernels(net, np.ones((1, 3)), width=20, draws=4000, key=0)
    >>> exact = (1 + 5 / 20) ** 2 - 1  # of the variance of S/K
    >>> bool(abs(drawn.var() / 4 / exact - 1) < 0.2)
    True
    """
    inputs, draws, key = checked_draws(x, draws, key)
    what = "lg.finite_width.sample_kernels"
    network = sized_network(net, width, what, param, inputs.shape[1], branches=True)
    if network.branched:
        return draw_streams(network, inputs, draws, key)
    return in_batches(_batch, *of_layers(network), network, inputs, draws, key, _AT_ONCE)


def checked_draws(x: ArrayLike, draws: Any, key: Any) -> tuple[np.ndarray, int, Any]:
    """Return few enough inputs, the number of networks and a key, after checking them."""
    inputs, draws, key = checked_inputs(x), integer("draws", draws, at_least=1), random_key(key)
    if len(inputs) > MOST_INPUTS:
        raise InvalidInput(f"x: wanted at most {MOST_INPUTS} inputs, got {len(inputs)}.")
    return inputs, draws, key


def of_layers(network: SizedNetwork) -> tuple[Layers, np.ndarray]:
    """Return activations and widths, and the variances (weight, bias) of hidden layers."""
    layers = tuple((layer.phi, layer.width) for layer in network.hidden)
    return layers, np.array([(layer.weight, layer.bias) for layer in network.hidden])


def _batch(given: tuple[Layers, int], key: Any, first: Any, constants: Any) -> Any:
    """Return the kernels of a batch of networks, (batch, P, P)."""
    layers, batch = given
    state, place = (jnp.broadcast_to(first, (batch, *first.shape)), key), 0
    for (phi, width), alike in groupby(layers):
        # Equal layers are compiled once.
        count = len(list(alike))
        layer = partial(_behind, phi, width)
        state, _ = lax.scan(layer, state, constants[place : place + count])
        place += count
    return state[0]


def _behind(phi: ActivationFunction, width: int, state: Any, constant: Any) -> Any:
    S, key = state
    key, now = jax.random.split(key)
    noise = jax.random.normal(now, (S.shape[0], width, S.shape[1]), S.dtype)
    value = phi(jnp.einsum("rna,rba->rnb", noise, cholesky(S)))
    weight, bias = constant
    return (bias + weight / width * jnp.einsum("rna,rnb->rab", value, value), key), None
