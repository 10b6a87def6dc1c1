"""Learning rates of layers from the first step of gradient descent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jax.typing import ArrayLike

from largen.architectures import Layer
from largen.bibliography import cites
from largen.expectations.nodes import nodes_for, values
from largen.finite_width.checks import check_alive, checked_inputs
from largen.finite_width.sized_network import sized_network
from largen.results import fields_over, in_notebooks, plot_result, save_result


@cites("hanin2026primer")
class LayerRates(NamedTuple):
    """Gradients and learning rates of each layer at the first step, from the input to the output.

    Attributes
    ----------
    gradients
        E (∂f/∂W_ij)² of each layer's weights, (L + 1,).
    rates
        η_ℓ at which each layer contributes 1/(L + 1) of the tangent kernel, (L + 1,).
    """

    gradients: np.ndarray
    rates: np.ndarray

    def __repr__(self) -> str:
        rates = ", ".join(f"{rate:.3g}" for rate in self.rates)
        return f"LayerRates: {rates}"

    _repr_html_ = in_notebooks
    to_xarray = fields_over(gradients=("layer",), rates=("layer",))
    save = save_result
    plot = plot_result


def layer_learning_rates(net: Layer, x: ArrayLike, *, width: int | Sequence[int]) -> LayerRates:
    """Return a learning rate for each layer, such that outputs move by order one in one step.

    For weights W^ℓ (n_ℓ, n_{ℓ−1}) that carry their own variance σ_w²/n_{ℓ−1}, as in
    :func:`largen.standard` (Hanin, lectures on scaling limits of neural networks, §2.2.3),

        E (∂f/∂W_ij)² = (1/n_ℓ) ∏_{k=ℓ}^{L} χ_⊥^{(k)} ⟨φ²⟩_{ℓ−1},
        η_ℓ = 1/[(L + 1) n_{ℓ−1} ∏_{k=ℓ}^{L} χ_⊥^{(k)} ⟨φ²⟩_{ℓ−1}],

    with χ_⊥^{(k)} = σ_w²⟨φ'²⟩ in the hidden layer k and ⟨φ²⟩₀ = |x|²/n₀. This holds at infinite
    width, and at any width for critical relu networks. Every layer then contributes 1/(L + 1) to
    the tangent kernel Σ_ℓ η_ℓ |∂f/∂W^ℓ|², which is 1. Biases are 0.

    Parameters
    ----------
    net
        :class:`largen.Dense` without bias and :class:`largen.Activation` in turn.
    x
        Inputs, (P, D); ⟨φ²⟩ and gradients are averages over them.
    width
        Neurons of all hidden layers (times their ``width_ratio``), or one number for each.

    Raises
    ------
    InvalidInput
        For inputs that are not finite floats, or widths that are not positive.
    NoRule, NoTheory
        For other networks, and for biases.
    NumericalFailure
        If the variance of an input vanishes, or its kernel overflows.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> net = lg.mlp(2, "relu", weight_std=2**0.5)
    >>> result = lg.finite_width.layer_learning_rates(net, np.ones((1, 4)), width=20)
    >>> result.rates.round(6)  # σ_w²/((L + 1) K n) with K = 2
    array([0.083333, 0.016667, 0.016667])
    """
    what = "lg.finite_width.layer_learning_rates"
    network = sized_network(net, width, what)
    inputs = checked_inputs(x)
    network.check_no_biases(what)
    q = np.diagonal(network.first_kernel(inputs)).copy()
    check_alive(np.diag(q), 1)
    squares, slopes = [np.sum(inputs**2, axis=1) / inputs.shape[1]], []
    for number, layer in enumerate(network.hidden, 2):
        nodes = nodes_for(layer.phi, q)
        value, slope = values(layer.phi, np.sqrt(q) * nodes.z)
        squares.append(np.sum(value**2 * nodes.weights, axis=0))
        slopes.append(layer.weight * np.sum(slope**2 * nodes.weights, axis=0))
        q = layer.weight * squares[-1]
        check_alive(np.diag(q), number)
    behind = np.cumprod([np.ones_like(q), *slopes[::-1]], axis=0)[::-1]
    size = np.mean(behind * np.stack(squares), axis=1)
    sizes = np.array([inputs.shape[1], *(layer.width for layer in network.hidden), 1])
    return LayerRates(size / sizes[1:], 1 / (len(size) * sizes[:-1] * size))
