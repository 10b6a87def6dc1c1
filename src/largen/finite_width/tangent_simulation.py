"""The exact joint distribution of a finite network's output and tangent kernel, without weights.

Behind a layer with activations Φ (n, P), a weight matrix W' = σ_w W/√n enters the forward pass by
W'Φ alone. With ΦᵀΦ = CCᵀ and Q = ΦC⁻ᵀ, Y = W'Q has independent Gaussian entries and W'Φ = YCᵀ.
In the backward pass, given Y, with gradients G of the layer behind and fresh Gaussian numbers Ξ,

    W'ᵀG = Q YᵀG + (1 − QQᵀ) Ξ,   Ξ of covariance (σ_w²/n) GᵀG in each row,

so that a layer takes Gaussian numbers in proportion to n·P. The tangent kernel of an output is

    Θ̂ = S^{L+1} + Σ_ℓ S^ℓ ∘ G^ℓᵀG^ℓ.

Averages over neurons minus their means given all earlier draws are martingale differences: their
mean is zero, and regression on them removes most of the variance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from largen.architectures import Layer
from largen.arrays import finite_result
from largen.errors import InvalidInput, NumericalFailure
from largen.expectations.nodes import derivatives_in_variance, nodes_for, values
from largen.finite_width.batched_draws import cholesky, in_batches
from largen.finite_width.simulation import Layers, checked_draws, of_layers
from largen.finite_width.sized_network import HiddenLayer, SizedNetwork, sized_network
from largen.results import fields_over, in_notebooks, plot_result, save_result

SQUARE = ("draw", "input", "input_2")
_AT_ONCE = 2**19  # numbers of one layer of a batch
_DEGREE = 48  # degree of polynomials in log S
_PER_CONTROL = 20  # networks
_HEAVY, _FEW = 0.3, 20.0  # largest share of one network in the variance, of many and of few
_PAIRED = 6  # largest number of inputs whose pairs have controls


class MeanWithError(NamedTuple):
    """A mean and its standard error."""

    mean: np.ndarray
    error: np.ndarray


class TangentSamples(NamedTuple):
    """Drawn networks; made by :func:`sample_tangent_kernels`.

    Attributes
    ----------
    outputs
        One output z at all inputs, (draws, P).
    kernel
        Covariance S of the outputs given the last hidden layer, (draws, P, P).
    ntk
        Tangent kernel Θ̂ of that output, (draws, P, P).
    controls
        Martingale differences, whose mean is exactly 0, (draws, control).
    """

    outputs: np.ndarray
    kernel: np.ndarray
    ntk: np.ndarray
    controls: np.ndarray

    def __repr__(self) -> str:
        draws, P = self.outputs.shape
        return f"TangentSamples: {draws} networks, {P} inputs, {self.controls.shape[1]} controls"

    _repr_html_ = in_notebooks
    to_xarray = fields_over(
        outputs=SQUARE[:2], kernel=SQUARE, ntk=SQUARE, controls=("draw", "control")
    )
    save = save_result
    plot = plot_result

    def estimate(self, observed: ArrayLike) -> MeanWithError:
        """Return the mean of an observable of each network, by regression on the controls.

        Parameters
        ----------
        observed
            Any function of the drawn networks, (draws, …), such as ``samples.ntk``.

        Raises
        ------
        InvalidInput
            If ``observed`` does not have one row for each network.
        NumericalFailure
            If a single network carries much of the variance: the tail is then so heavy that the
            standard error does not measure the error of the mean.
        """
        seen = np.asarray(observed, np.float64)
        draws, number = self.controls.shape
        if not seen.ndim or len(seen) != draws:
            raise InvalidInput(f"observed: wanted {draws} rows, got shape {seen.shape}.")
        if draws < _PER_CONTROL * number:
            raise InvalidInput(
                f"observed: {draws} networks are too few for a regression on {number} controls: "
                f"draw {_PER_CONTROL * number}."
            )
        flat = seen.reshape(draws, -1)
        size = self.controls.std(axis=0)
        moving = size > 1e-9 * np.max(size, initial=0.0)
        design = np.column_stack([np.ones(draws), self.controls[:, moving] / size[moving]])
        gram = np.linalg.pinv(design.T @ design, hermitian=True)
        fitted = gram @ (design.T @ flat)
        left = flat - design @ fitted
        variance = np.sum(left**2, axis=0) / (draws - design.shape[1]) * gram[0, 0]
        # The share in the observable itself: regression would also remove rare large values.
        squares = (flat - flat.mean(axis=0)) ** 2
        share = np.max(squares, axis=0) / np.maximum(np.sum(squares, axis=0), 1e-300)
        if np.any(share > _HEAVY + _FEW / draws):
            raise NumericalFailure(
                f"observed: one of {draws} networks carries {share.max():.0%} of the variance. "
                "Means of so heavy a tail are not known from draws: look at logarithms, or take "
                "wider or shallower networks.",
                MeanWithError(fitted[0].reshape(seen.shape[1:]), np.full(seen.shape[1:], np.inf)),
            )
        shape = seen.shape[1:]
        return MeanWithError(fitted[0].reshape(shape), np.sqrt(variance).reshape(shape))


def sample_tangent_kernels(
    net: Layer, x: ArrayLike, *, width: int | Sequence[int], draws: int, key: Any = 0
) -> TangentSamples:
    """Draw output, kernel and tangent kernel of finite networks jointly, without weight matrices.

    The distribution is exactly that of networks in :func:`largen.ntk` at initialisation, at any
    width. Unlike :func:`largen.networks.empirical_ntk`, it takes of order n Gaussian numbers a
    layer instead of n²; the equations are in :mod:`largen.finite_width.tangent_simulation`. Means
    of order 1/width are best estimated with the control variates, by
    :meth:`TangentSamples.estimate`: at one input they explain most of Var Θ̂.

    Parameters
    ----------
    net
        :class:`largen.Dense` and :class:`largen.Activation` in turn.
    x
        Inputs, (P, D), at most 16.
    width
        Neurons of all hidden layers (times their ``width_ratio``), or one number for each.
    draws
        Number of networks.
    key
        A JAX key or an integer.

    Raises
    ------
    InvalidInput
        For inputs that are not finite floats, too many of them, or counts that are not positive.
    NoRule, NoTheory
        For other networks.
    NumericalFailure
        If kernels overflow.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> net, x = lg.mlp(2, "relu", weight_std=2**0.5), np.ones((1, 3))
    >>> drawn = lg.finite_width.sample_tangent_kernels(net, x, width=20, draws=2000, key=0)
    >>> mean, error = drawn.estimate(drawn.ntk[:, 0, 0])
    >>> bool(abs(mean - 3 * 2) < 4 * error < 0.2)  # (L + 1) K, exactly
    True
    """
    network = sized_network(net, width, "lg.finite_width.sample_tangent_kernels")
    inputs, draws, key = checked_draws(x, draws, key)
    drawn = in_batches(_batch, *of_layers(network), network, inputs, draws, key, _AT_ONCE)
    outputs, kernel, ntk, forward, variances, backward = drawn
    finite_result("sample_tangent_kernels", drawn)
    # A dead layer does not fluctuate.
    alive = variances[:, :, None] > 0
    forward = np.where(alive, forward - _conditional(network, variances), 0)
    controls = np.concatenate([forward.reshape(draws, -1), backward.reshape(draws, -1)], axis=1)
    return TangentSamples(outputs, kernel, ntk, controls)


def _batch(given: tuple[Layers, int], key: Any, first: Any, constants: Any) -> Any:
    """Return outputs, kernels, tangent kernels and control variates of a batch of networks."""
    layers, batch = given
    P, depth = first.shape[0], len(layers)

    def normal(key: Any, width: int) -> Any:
        return jax.random.normal(key, (batch, width, P), np.float32).astype(first.dtype)

    keys = jax.random.split(key, 3 * depth)
    S = jnp.broadcast_to(first, (batch, P, P))
    z = normal(keys[0], layers[0][1]) @ jnp.swapaxes(cholesky(S), 1, 2)
    kernels, passed, statistics, paired = [S], [], [], []
    for number, (phi, width) in enumerate(layers):
        weight, bias = constants[number]
        value, slope = phi(z), phi.derivative(z)
        both = value * slope
        averages = (value**2, slope**2, z * both, both**2)
        statistics.append(jnp.stack([f.mean(axis=1) for f in averages], axis=1))
        paired.append(_polynomials(z, S))
        gram = jnp.einsum("rna,rnb->rab", value, value)
        C = cholesky(gram)
        Y = None
        S = bias + weight / width * gram
        passed.append((z, value, slope, C))
        kernels.append(S)
        if number + 1 < depth:
            wide = layers[number + 1][1]
            Y = jnp.sqrt(weight / width) * normal(keys[3 * number + 3], wide)
            shared = jax.random.normal(keys[3 * number + 4], (batch, wide, 1), np.float32)
            z = Y @ jnp.swapaxes(C, 1, 2) + jnp.sqrt(bias) * shared
        passed[-1] += (Y,)
    (weight, bias), (_, value, slope, _, _) = constants[-1], passed[-1]
    u = jax.random.normal(keys[1], (batch, layers[-1][1], 1), np.float32)
    u = jnp.sqrt(weight / layers[-1][1]) * u
    shift = jnp.sqrt(bias) * jax.random.normal(keys[2], (batch, 1), np.float32)
    outputs = jnp.sum(u * value, axis=1) + shift
    G = slope * u
    tangent = kernels[-1] + kernels[-2] * _squares(G)
    none = jnp.zeros_like(value)
    spread = jnp.broadcast_to(weight / layers[-1][1], kernels[-1].shape)
    differences = [_differences(passed[-1][0], slope, none, u, none[..., :0], spread)]
    for number in range(depth - 2, -1, -1):
        z, value, slope, C, Y = passed[number]
        share = constants[number, 0] / layers[number][1]
        Q = _orthonormal(value, C)
        inner = _squares(G)
        mean = Q @ jnp.einsum("rna,rnb->rab", Y, G)
        noise = normal(keys[3 * number + 5], layers[number][1])
        noise = jnp.sqrt(share) * (noise @ jnp.swapaxes(cholesky(inner), 1, 2))
        noise = noise - Q @ jnp.einsum("rna,rnb->rab", Q, noise)
        G = slope * (mean + noise)
        differences.append(_differences(z, slope, mean, noise, Q, share * inner))
        tangent = tangent + kernels[number] * _squares(G)
    forward = jnp.stack(statistics, axis=1)
    variances = jnp.stack([jnp.diagonal(S, axis1=1, axis2=2) for S in kernels[:-1]], axis=1)
    others = jnp.concatenate(differences + paired, axis=1)
    return outputs, kernels[-1], tangent, forward, variances, others


def _differences(z: Any, slope: Any, mean: Any, noise: Any, Q: Any, spread: Any) -> Any:
    """Return GᵀG and (z·G)² minus means over noise of covariance ``spread`` orthogonal to Q."""
    there = 1 - jnp.sum(Q**2, axis=2, keepdims=True)
    expected = _squares(slope * mean) + spread * _squares(slope * jnp.sqrt(jnp.maximum(there, 0)))
    lengths = _squares(slope * (mean + noise)) - expected
    along = z * slope
    drift, kick = jnp.sum(along * mean, axis=1), jnp.sum(along * noise, axis=1)
    inside = jnp.einsum("rnk,rna->rka", Q, along)
    diagonal = jnp.diagonal(spread, axis1=1, axis2=2)
    variance = diagonal * (jnp.sum(along**2, axis=1) - jnp.sum(inside**2, axis=1))
    i, j = _pairs(z.shape[2])
    return jnp.concatenate([lengths[:, i, j], kick**2 - variance + 2 * drift * kick], axis=1)


def _polynomials(z: Any, S: Any) -> Any:
    """Return averages of z_αz_β and of Hermite polynomials of degree four, minus their means."""
    i, j = np.triu_indices(z.shape[2] if z.shape[2] <= _PAIRED else 0, 1)
    diagonal = jnp.diagonal(S, axis1=1, axis2=2)[:, None]
    a, b, c = z[..., i], z[..., j], S[:, i, j][:, None]
    p, q = diagonal[..., i], diagonal[..., j]
    both = a * b
    polynomials = [both - c, both * (a**2 - 3 * p), both * (b**2 - 3 * q)]
    polynomials.append((a**2 - p) * (b**2 - q) - 2 * c**2)
    return jnp.concatenate([f.mean(axis=1) for f in polynomials], axis=1)


def _pairs(P: int) -> tuple[np.ndarray, np.ndarray]:
    return np.triu_indices(P) if P <= _PAIRED else (np.arange(P), np.arange(P))


def _squares(G: Any) -> Any:
    return jnp.einsum("rna,rnb->rab", G, G)


def _orthonormal(value: Any, C: Any) -> Any:
    """Return Q = ΦC⁻ᵀ, with zeros for directions of zero norm."""
    columns: list[Any] = []
    for j in range(C.shape[-1]):
        left = value[..., j]
        for k, column in enumerate(columns):
            left = left - column * C[:, j, k, None]
        pivot = C[:, j, j, None]
        columns.append(jnp.where(pivot > 0, left / jnp.where(pivot > 0, pivot, 1), 0))
    return jnp.stack(columns, axis=-1)


def _conditional(network: SizedNetwork, variances: np.ndarray) -> np.ndarray:
    """Return E[φ²], E[φ'²], E[zφφ'] and E[φ²φ'²] given each S, (draws, layer, 4, input)."""
    means = np.empty((*variances.shape[:2], 4, variances.shape[2]))
    for number, layer in enumerate(network.hidden):
        q = variances[:, number]
        means[:, number] = np.moveaxis(_interpolate(partial(_means, layer), q), 0, 1)
    return means


def _means(layer: HiddenLayer, q: np.ndarray) -> np.ndarray:
    nodes = nodes_for(layer.phi, q)
    value, slope = values(layer.phi, np.sqrt(q) * nodes.z)
    square, changed = derivatives_in_variance(value**2, nodes, q, 1)
    others = [np.sum(f * nodes.weights, axis=0) for f in (slope**2, (value * slope) ** 2)]
    return np.stack([square, others[0], q * changed, others[1]])


def _interpolate(function: Callable[[np.ndarray], np.ndarray], q: np.ndarray) -> np.ndarray:
    """Return functions of variances by polynomials in log q; q = 0 is treated as the smallest q."""
    alive = q[q > 0]
    if not alive.size:
        return function(np.ones(1))[:, :1, None] * np.zeros_like(q)
    low, high = np.log(alive.min()) - 1e-6, np.log(alive.max()) + 1e-6
    x = np.cos(np.pi * (np.arange(_DEGREE) + 0.5) / _DEGREE)
    known = function(np.exp((high + low) / 2 + (high - low) / 2 * x))
    fitted = np.polynomial.chebyshev.chebfit(x, known.T, _DEGREE - 1)
    places = (2 * np.log(np.maximum(q, alive.min())) - high - low) / (high - low)
    return np.polynomial.chebyshev.chebval(places, fitted)
