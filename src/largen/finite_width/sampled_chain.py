"""Fluctuations of the kernels of hundreds of inputs at order 1/width, by sampling.

Linearised about infinite width, the chain of :mod:`largen.finite_width.recursion` is driven by the
noise of each layer. With an independent z ~ N(0, K) for each sample and layer,

    δS ← J[δS] + (s(z) − E s)/√n,        J[δS]_αβ = σ_w²(k_c δS_αβ + k_1 δS_αα + k_2 δS_ββ),
    δH̄ ← J_S[δS] + σ_w²E[φ'φ'] δH̄ + (h(z) − E h)/√n,

δS and δH̄ have the covariances V, A and D at order 1/n, without any tensor of four inputs. The rest
of one output's tangent kernel, of covariance B_{αβγδ} + B_{αβδγ}, is a sum over layers of

    (X + Xᵀ)/√2,   X_αβ = σ_w² H_αβ φ'_α g_α φ'_β g'_β/√n,

with g and g' two Gaussian vectors whose covariance is the product of all σ_w²E[φ'φ'] behind.

Convolutions, residual branches and other parameterizations are in
:mod:`largen.finite_width.neuron_paths`, and their shifts in
:mod:`largen.finite_width.path_shifts`.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from largen.expectations import ActivationFunction
from largen.finite_width.checks import check_alive
from largen.finite_width.neuron_paths import outer, root, slopes_of
from largen.finite_width.pairs import PairDerivatives, pair_derivatives
from largen.finite_width.sized_network import HiddenLayer, SizedNetwork

AT_ONCE = 2**20  # numbers of one part of the samples


class Limit(NamedTuple):
    """A layer at infinite width; ``behind`` is the product of σ_w²E[φ'φ'] over later layers."""

    K: np.ndarray
    H: np.ndarray
    of_value: PairDerivatives
    of_slope: PairDerivatives
    behind: np.ndarray


class State(NamedTuple):
    """Samples of δS, δH̄ and the rest of Θ̂; shifts m and m_H; F of pairs by its two indices."""

    samples: tuple[np.ndarray, np.ndarray, np.ndarray]
    m: np.ndarray
    m_H: np.ndarray
    F: np.ndarray


def limits(network: SizedNetwork, inputs: np.ndarray) -> tuple[list[Limit], np.ndarray, np.ndarray]:
    """Return all hidden layers at infinite width, and kernel and NTK behind them."""
    H = K = network.first_kernel(inputs)
    check_alive(K, 1)
    limits = []
    for number, layer in enumerate(network.hidden, 2):
        of_value, of_slope = pair_derivatives(layer.phi, K)
        limits.append(Limit(K, H, of_value, of_slope, np.ones_like(K)))
        K = layer.bias + layer.weight * of_value.value
        H = K + layer.weight * of_slope.value * H
        check_alive(K, number)
    for place in range(len(limits) - 1, 0, -1):
        slopes = network.hidden[place].weight * limits[place].of_slope.value
        limits[place - 1] = limits[place - 1]._replace(behind=limits[place].behind * slopes)
    return limits, K, H


def start(P: int, samples: int) -> State:
    """Return the state of the first preactivations, whose kernels do not fluctuate."""
    none = tuple(np.zeros((samples, P, P), np.float32) for _ in range(3))
    zero = np.zeros((P, P))
    return State((none[0], none[1], none[2]), zero, zero, np.zeros((2, 2, P, P)))


def through(layer: HiddenLayer, limit: Limit, before: State, key: Any) -> State:
    """Return the state behind a layer; samples are changed in place."""
    w, n, H = layer.weight, layer.width, limit.H
    of_value, of_slope = limit.of_value, limit.of_slope
    V, D, four = _sample(layer, limit, before.samples, key)
    J, J_p = _slopes(w, of_value), _slopes(w, of_slope)
    J_m = _first_order(*J, before.m)
    shift, shift_of_slope = (w / 2 * _second_order(of, V) for of in (of_value, of_slope))
    # Cov(Ĥ_αβ, S_c) for c = αβ, αα and ββ; on the diagonal there is c = αα alone.
    F = before.F
    D = D + np.stack([F[0, 1] + F[1, 0], 2 * F[0, 0], 2 * F[1, 1]])
    bent = J_p[0] * D[0] + J_p[1] * D[1] + J_p[1].T * D[2]
    m_H = J_m + H * _first_order(*J_p, before.m) + w * of_slope.value * before.m_H
    return State(
        before.samples,
        m=J_m + shift,
        m_H=m_H + shift + H * shift_of_slope + bent,
        F=w**2 * (_exchange(F, of_value, of_slope) + four * H / n),
    )


def _sample(
    layer: HiddenLayer, limit: Limit, samples: tuple[np.ndarray, ...], key: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Propagate all samples through a layer, and return averages over the samples before it.

    The averages are E[δS_αβ²], E[δS_αα δS_ββ], E[δS_αα δS_αβ] (3, P, P); E[δH̄_αβ δS_c] for
    c = αβ, αα, ββ (3, P, P); and E[φ_γφ'_αφ'_βφ_δ] with γ, δ each α or β (2, 2, P, P).
    """
    w, of_value, of_slope = layer.weight, limit.of_value, limit.of_slope
    constants = (
        root(limit.K), root(limit.behind), *_slopes(w, of_value), *_slopes(w, of_slope), limit.H,
        of_value.value, of_slope.value, w, w / np.sqrt(layer.width),
    )  # fmt: skip
    constants = tuple(jnp.asarray(each, np.float32) for each in constants)
    draws, P = samples[0].shape[:2]
    part = max(1, min(draws, AT_ONCE // P**2))
    totals: Any = 0.0, 0.0, 0.0
    for number, first in enumerate(range(0, draws, part)):
        rows = slice(first, first + part)
        now = jax.random.fold_in(key, number)
        after, sums = _part(layer.phi, constants, tuple(each[rows] for each in samples), now)
        for whole, each in zip(samples, after, strict=True):
            whole[rows] = each
        totals = tuple(t + np.asarray(s, np.float64) for t, s in zip(totals, sums, strict=True))
    V, D, (one, other) = (total / draws for total in totals)
    return V, D, np.array([[one, other], [other, one.T]])


@partial(jax.jit, static_argnums=0)
def _part(phi: ActivationFunction, constants: Any, samples: Any, key: Any) -> Any:
    root, behind, J_c, J_1, p_c, p_1, H, k, p, w, noise = constants
    S, tangent, rest = samples
    diagonal = jnp.diagonal(S, axis1=1, axis2=2)
    V = jnp.stack([(S * S).sum(0), diagonal.T @ diagonal, jnp.einsum("ra,rab->ab", diagonal, S)])
    D = jnp.stack(
        [
            (tangent * S).sum(0),
            jnp.einsum("ra,rab->ab", diagonal, tangent),
            jnp.einsum("rb,rab->ab", diagonal, tangent),
        ]
    )
    normal = jax.random.normal(key, (3, len(S), len(root)), S.dtype)
    z = normal[0] @ root.T
    value, slope = phi(z), phi.derivative(z)
    g, other = (slope * (each @ behind.T) for each in normal[1:])
    products = outer(value) - k
    slopes = outer(slope) - p
    X = H * (g[:, :, None] * other[:, None, :])
    both = value * slope
    four = jnp.stack([(value * both).T @ slope, both.T @ both])
    deep = J_c * S + J_1 * diagonal[:, :, None] + J_1.T * diagonal[:, None, :] + noise * products
    bent = p_c * S + p_1 * diagonal[:, :, None] + p_1.T * diagonal[:, None, :] + noise * slopes
    tangent = deep + H * bent + w * p * tangent
    rest = rest + noise * (X + jnp.swapaxes(X, 1, 2)) / np.sqrt(2)
    return (deep, tangent, rest), (V, D, four)


def _slopes(w: float, of: PairDerivatives) -> tuple[np.ndarray, np.ndarray]:
    by_covariance, by_first = slopes_of(of)
    return w * by_covariance, w * by_first


def _first_order(J_c: np.ndarray, J_1: np.ndarray, change: np.ndarray) -> np.ndarray:
    diagonal = np.diagonal(change)
    return J_c * change + J_1 * diagonal[:, None] + J_1.T * diagonal


def _second_order(of: PairDerivatives, V: np.ndarray) -> np.ndarray:
    """Return M'':V for every pair."""
    diagonal = np.diagonal(V[0])
    total = of.cc * V[0] + of.q1q1 * diagonal[:, None] + of.q1q1.T * diagonal + 2 * of.q1q2 * V[1]
    total = total + 2 * of.q1c * V[2] + 2 * of.q1c.T * V[2].T
    return total + np.diag(of.second * diagonal)


def _exchange(F: np.ndarray, of_value: PairDerivatives, of_slope: PairDerivatives) -> np.ndarray:
    """Return Σ_μν E[∂_μ(φ_γφ'_α)] E[∂_ν(φ'_βφ_δ)] F_{αμβν} for γ, δ each α or β."""
    first, bent, p = of_value.first, 2 * of_value.q1, of_slope.value
    half = np.stack([first[:, None] * F[0], p * F[1] + bent * F[0]])
    whole = np.stack([p * half[:, 0] + bent.T * half[:, 1], first * half[:, 1]], axis=1)
    diagonal = np.eye(len(p), dtype=bool)
    return np.where(diagonal, first**2 * F, whole)
