"""Fluctuations of the kernels of hundreds of inputs at order 1/width, by sampling.

Linearised about infinite width, the chain of :mod:`largen.finite_width.recursion` is driven by the
noise of each layer. With an independent z ~ N(0, K) for each sample and layer,

    δS ← J[δS] + (s(z) − E s)/√n,        J[δS]_αβ = σ_w²(k_c δS_αβ + k_1 δS_αα + k_2 δS_ββ),
    δH̄ ← J_S[δS] + σ_w²E[φ'φ'] δH̄ + (h(z) − E h)/√n,

δS and δH̄ have the covariances V, A and D at order 1/n, without any tensor of four inputs. The rest
of one output's tangent kernel, of covariance B_{αβγδ} + B_{αβδγ}, is a sum over layers of

    (X + Xᵀ)/√2,   X_αβ = σ_w² H_αβ φ'_α g_α φ'_β g'_β/√n,

with g and g' two Gaussian vectors whose covariance is the product of all σ_w²E[φ'φ'] behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from largen.architectures import Layer
from largen.arrays import as_array, finite_result
from largen.bibliography import cites
from largen.errors import InvalidInput
from largen.expectations import ActivationFunction
from largen.finite_width.checks import check_alive, checked_inputs
from largen.finite_width.next_order import SMALL, variance_at_next_order
from largen.finite_width.pairs import PairDerivatives, pair_derivatives
from largen.finite_width.sized_network import HiddenLayer, SizedNetwork, sized_network
from largen.interrupts import interruptible
from largen.results import Result, with_labels
from largen.scalars import integer, random_key
from largen.text import shown

if TYPE_CHECKING:
    import xarray

_AT_ONCE = 2**20  # numbers of one part of the samples
_MOST = 2**28  # numbers of all samples


@cites("bahri2022les", "roberts2022principles")
@dataclass(frozen=True, repr=False)
class WidthFluctuations(Result):
    """Kernels of one output and samples of their deviations; made by :func:`width_fluctuations`.

    Attributes
    ----------
    widths
        Numbers of neurons of the hidden layers.
    kernel, kernel_shift
        The NNGP kernel K, and E[z_α z_β] − K to order 1/n, (P, P).
    ntk, ntk_shift
        Θ at infinite width, and E[Θ̂] − Θ to order 1/n, (P, P).
    kernel_samples, ntk_samples
        Deviations of S, the covariance of outputs given the last hidden layer, and of Θ̂ from their
        means, (samples, P, P), float32. The same index in both is a joint sample. Their second
        moments are those of networks at order 1/n; higher moments are not.
    next_order, trusted
        As in :class:`largen.finite_width.WidthCorrections`.
    """

    widths: tuple[int, ...]
    kernel: np.ndarray
    kernel_shift: np.ndarray
    ntk: np.ndarray
    ntk_shift: np.ndarray
    kernel_samples: np.ndarray
    ntk_samples: np.ndarray
    next_order: np.ndarray
    trusted: bool

    def kernel_covariance(self, pairs: Any) -> np.ndarray:
        """Return V_ab = Cov(S_a, S_b) of chosen pairs of inputs, (pair, pair)."""
        return _covariance(self.kernel_samples, pairs)

    def ntk_covariance(self, pairs: Any) -> np.ndarray:
        """Return Cov(Θ̂_a, Θ̂_b) of chosen pairs of inputs, (pair, pair)."""
        return _covariance(self.ntk_samples, pairs)

    @with_labels
    def to_xarray(self) -> xarray.Dataset:
        """Return means, shifts and standard deviations over ``input`` and ``input_2``."""
        import xarray

        square = ("input", "input_2")
        variables: dict[str, Any] = {
            name: (square, getattr(self, name))
            for name in ("kernel", "kernel_shift", "ntk", "ntk_shift")
        }
        for name in ("kernel", "ntk"):
            samples = getattr(self, f"{name}_samples")
            variables[f"{name}_std"] = (square, _root_mean_square(samples))
        variables["next_order"] = ("input", self.next_order)
        attributes = {"widths": list(self.widths), "trusted": int(self.trusted)}
        return xarray.Dataset(variables, attrs=attributes)

    def __repr__(self) -> str:
        spread, tangent = (
            (_root_mean_square(samples).diagonal() / limit.diagonal()).max()
            for samples, limit in (
                (self.kernel_samples, self.kernel),
                (self.ntk_samples, self.ntk),
            )
        )
        return (
            f"WidthFluctuations: {len(self.kernel)} inputs, {len(self.kernel_samples)} samples, "
            f"hidden layers of {', '.join(map(str, self.widths))}\n"
            f"  standard deviations {spread:.2g} of the kernel, {tangent:.2g} of the NTK at most; "
            f"{'trusted' if self.trusted else 'not to be trusted'}"
        )


@interruptible()
def width_fluctuations(
    net: Layer, x: ArrayLike, *, width: int | Sequence[int], draws: int = 4000, key: Any = 0
) -> WidthFluctuations:
    """Return kernel and NTK of many inputs at order 1/width, with samples of their fluctuations.

    :func:`largen.finite_width.width_corrections` computes tensors of four inputs, for up to eight
    inputs. This function samples the fluctuations of hundreds of inputs, in time and memory
    proportional to samples times P². The equations are in :mod:`largen.finite_width.fluctuations`;
    shifts and covariances have a relative statistical error of about 1/√draws. For the exact
    tensors of four of the inputs, call :func:`largen.finite_width.width_corrections` with these
    four, since the tensors do not depend on other inputs.

    Parameters
    ----------
    net
        :class:`largen.Dense` and :class:`largen.Activation` in turn, in :func:`largen.ntk`.
    x
        Inputs, (P, D).
    width
        Neurons of all hidden layers (times their ``width_ratio``), or one number for each.
    draws
        Number of sampled deviations.
    key
        A JAX key or an integer.

    Raises
    ------
    InvalidInput
        For parallel inputs if φ has kinks, or more than 2²⁸ numbers.
    NoRule, NoTheory
        For other networks, as :func:`largen.finite_width.width_corrections`.
    NumericalFailure
        If averages are not resolved at a layer's variances, or the variance of an input vanishes.

    Examples
    --------
    >>> import largen as lg, numpy as np
    >>> x = np.random.default_rng(0).normal(size=(20, 5))
    >>> result = lg.finite_width.width_fluctuations(
    ...     lg.mlp(2, "relu", weight_std=2**0.5), x, width=100, key=0
    ... )
    >>> result.kernel_samples.shape
    (4000, 20, 20)
    >>> relative = result.kernel_covariance([(0, 0)])[0, 0] / result.kernel[0, 0] ** 2
    >>> bool(abs(relative - 5 * 2 / 100) < 0.02)
    True
    """
    network = sized_network(net, width, "lg.finite_width.width_fluctuations")
    inputs, draws = checked_inputs(x), integer("draws", draws, at_least=2)
    key = random_key(key)
    P = len(inputs)
    if draws * P * P > _MOST:
        raise InvalidInput(f"draws: {draws} of {P} × {P} numbers are more than 2**28. Take fewer.")
    layers, kernel, ntk = _limits(network, inputs)
    state = _start(P, draws)
    for number, (layer, limit) in enumerate(zip(network.hidden, layers, strict=True)):
        state = _through(layer, limit, state, jax.random.fold_in(key, number))
    q = np.diagonal(layers[0].K).copy()
    V, V2 = variance_at_next_order(network, q)
    ratio = np.divide(V2, V, out=np.zeros_like(V), where=V > 0)
    S, tangent, rest = state.samples
    tangent += rest
    finite_result("width_fluctuations", [state.m, state.m_H, S, tangent])
    return WidthFluctuations(
        widths=network.widths,
        kernel=kernel,
        kernel_shift=state.m,
        ntk=ntk,
        ntk_shift=state.m_H,
        kernel_samples=S,
        ntk_samples=tangent,
        next_order=ratio,
        trusted=bool(np.all(np.abs(ratio) <= SMALL)),
    )


class _Limit(NamedTuple):
    """A layer at infinite width; ``behind`` is the product of σ_w²E[φ'φ'] over later layers."""

    K: np.ndarray
    H: np.ndarray
    of_value: PairDerivatives
    of_slope: PairDerivatives
    behind: np.ndarray


class _State(NamedTuple):
    """Samples of δS, δH̄ and the rest of Θ̂; shifts m and m_H; F of pairs by its two indices."""

    samples: tuple[np.ndarray, np.ndarray, np.ndarray]
    m: np.ndarray
    m_H: np.ndarray
    F: np.ndarray


def _limits(
    network: SizedNetwork, inputs: np.ndarray
) -> tuple[list[_Limit], np.ndarray, np.ndarray]:
    """Return all hidden layers at infinite width, and kernel and NTK behind them."""
    H = K = network.first_kernel(inputs)
    check_alive(K, 1)
    limits = []
    for number, layer in enumerate(network.hidden, 2):
        of_value, of_slope = pair_derivatives(layer.phi, K)
        limits.append(_Limit(K, H, of_value, of_slope, np.ones_like(K)))
        K = layer.bias + layer.weight * of_value.value
        H = K + layer.weight * of_slope.value * H
        check_alive(K, number)
    for place in range(len(limits) - 1, 0, -1):
        slopes = network.hidden[place].weight * limits[place].of_slope.value
        limits[place - 1] = limits[place - 1]._replace(behind=limits[place].behind * slopes)
    return limits, K, H


def _start(P: int, samples: int) -> _State:
    none = tuple(np.zeros((samples, P, P), np.float32) for _ in range(3))
    zero = np.zeros((P, P))
    return _State((none[0], none[1], none[2]), zero, zero, np.zeros((2, 2, P, P)))


def _through(layer: HiddenLayer, limit: _Limit, before: _State, key: Any) -> _State:
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
    return _State(
        before.samples,
        m=J_m + shift,
        m_H=m_H + shift + H * shift_of_slope + bent,
        F=w**2 * (_exchange(F, of_value, of_slope) + four * H / n),
    )


def _sample(
    layer: HiddenLayer, limit: _Limit, samples: tuple[np.ndarray, ...], key: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Propagate all samples through a layer, and return averages over the samples before it.

    The averages are E[δS_αβ²], E[δS_αα δS_ββ], E[δS_αα δS_αβ] (3, P, P); E[δH̄_αβ δS_c] for
    c = αβ, αα, ββ (3, P, P); and E[φ_γφ'_αφ'_βφ_δ] with γ, δ each α or β (2, 2, P, P).
    """
    w, of_value, of_slope = layer.weight, limit.of_value, limit.of_slope
    constants = (
        _root(limit.K), _root(limit.behind), *_slopes(w, of_value), *_slopes(w, of_slope), limit.H,
        of_value.value, of_slope.value, w, w / np.sqrt(layer.width),
    )  # fmt: skip
    constants = tuple(jnp.asarray(each, np.float32) for each in constants)
    draws, P = samples[0].shape[:2]
    part = max(1, min(draws, _AT_ONCE // P**2))
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
    products = _outer(value) - k
    slopes = _outer(slope) - p
    X = H * (g[:, :, None] * other[:, None, :])
    both = value * slope
    four = jnp.stack([(value * both).T @ slope, both.T @ both])
    deep = J_c * S + J_1 * diagonal[:, :, None] + J_1.T * diagonal[:, None, :] + noise * products
    bent = p_c * S + p_1 * diagonal[:, :, None] + p_1.T * diagonal[:, None, :] + noise * slopes
    tangent = deep + H * bent + w * p * tangent
    rest = rest + noise * (X + jnp.swapaxes(X, 1, 2)) / np.sqrt(2)
    return (deep, tangent, rest), (V, D, four)


def _outer(f: Any) -> Any:
    return f[:, :, None] * f[:, None, :]


def _slopes(w: float, of: PairDerivatives) -> tuple[np.ndarray, np.ndarray]:
    """Return σ_w² times k_c and k_1; on the diagonal the derivative in the variance, and 0."""
    return w * (of.c + np.diag(of.first)), w * of.q1


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


def _root(covariance: np.ndarray) -> np.ndarray:
    eigenvalues, vectors = np.linalg.eigh(covariance)
    return vectors * np.sqrt(np.maximum(eigenvalues, 0))


def _covariance(samples: np.ndarray, pairs: Any) -> np.ndarray:
    chosen, P = np.asarray(as_array("pairs", pairs)), samples.shape[1]
    whole = np.issubdtype(chosen.dtype, np.integer)
    if not whole or chosen.ndim != 2 or chosen.shape[1] != 2 or not np.all(chosen // P == 0):
        raise InvalidInput(
            f"pairs: wanted pairs of the inputs 0 to {P - 1}, such as [(0, 0), (0, 1)], got "
            f"{shown(pairs)}."
        )
    deviations = samples[:, chosen[:, 0], chosen[:, 1]].astype(np.float64)
    return deviations.T @ deviations / len(samples)


def _root_mean_square(samples: np.ndarray) -> np.ndarray:
    return np.sqrt(np.mean(np.square(samples, dtype=np.float64), axis=0))
