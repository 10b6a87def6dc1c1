r"""Fluctuations of kernels at order 1/width in networks of any layers, by paths of single neurons.

At infinite width the channels of a network are independent copies of one random path: forwards h,
with the covariance Q of what the layer before makes, and backwards z and g, with z of the
covariance Z of what the layer behind returns. In a residual stream one channel has a path through
all blocks, h ← h + βu and g ← g + βφ'(h)z. Averages over n channels deviate by
(φφ − E φφ)/√n and (gg − E gg)/√n of one path, and what later layers make of this is linear:

    δΦ = E_Q[φφ]'·δQ + (φφ − E φφ)/√n,   δS = Σ_k T_k δΦ T_kᵀ,   δQ = δS, or δQ ← δQ + β²δS,
    δG = δR + (gg − E gg)/√n,   δR ← δR + β²(E[φ'φ'] ∘ δZ + Z ∘ E_Q[φ'φ']'·δQ),

where Z returns G of the affine map behind, and R is E gg for given Q and Z. The tangent kernel is
the sum of G ∘ S over affine maps and pairs of positions. Between forward and backward paths there
are correlations of order n^{−1/2} by the weights that both share; they do not change averages to
this order. Without branches the covariances are those of :mod:`largen.finite_width.recursion`.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from largen.finite_width import heads
from largen.finite_width.checks import check_alive
from largen.finite_width.layered_network import Heads, LayeredNetwork, Part, PositionMap, Read
from largen.finite_width.pairs import PairDerivatives, pair_derivatives
from largen.interrupts import check as check_interrupts


class _Reading(NamedTuple):
    """A layer at infinite width, over N samples and positions before it and M behind it."""

    phi_kernel: Any  # E φφ, (N, N)
    of_value: tuple[Any, Any]  # E φφ by its covariance, and by the first variance
    p: Any  # E φ'φ'
    of_slope: tuple[Any, Any]
    S: Any  # covariance behind the affine map, without σ_b², (M, M)
    Z: Any  # of z, (N, N)
    root_Z: Any
    root_S: Any  # of S + σ_b²
    G: Any  # E gg of the population that the layer reads, up to this layer, (N, N)
    root_Q: Any  # of the preactivations that are read
    # Second derivatives of E φφ and of E φ'φ' by the covariance, for ``bent``.
    bend_of_value: tuple[Any, ...]
    bend_of_slope: tuple[Any, ...]


class Limits(NamedTuple):
    """A network at infinite width."""

    kernel: np.ndarray  # of the outputs, (sample, sample)
    tangent: np.ndarray | None  # None with attention
    layers: tuple[tuple[Any, ...], ...]  # of all parts
    first: np.ndarray  # the covariance of the first preactivations, without σ_b²


def limits_of(network: LayeredNetwork, x: np.ndarray) -> Limits:
    """Return kernels of all layers at infinite width."""
    bare = network.first.weighed(network.covariance(x))
    Q = bare + network.first.bias
    samples, forward, number = len(x), [], 1
    for part in network.parts:
        stream, ahead = Q, []
        for read in part.reads:
            check_alive(Q, number)
            if isinstance(read, Heads):
                ahead.append(at := heads.limit_of(read, Q, samples))
                S = at.S
            else:
                of_value, of_slope = pair_derivatives(read.phi, Q)
                S = read.map.weighed(of_value.value)
                ahead.append((Q, of_value, of_slope, S))
            Q, number = S + read.map.bias, number + 1
        if part.square is not None:
            Q = stream + part.square * Q
        forward.append(ahead)
    kernel = Q
    if network.attends:
        return Limits(kernel, None, _only_forwards(network, forward), bare)
    G = np.ones((samples, samples))
    tangent, layers = np.zeros((samples, samples)), []
    for part, ahead in zip(reversed(network.parts), reversed(forward), strict=True):
        behind, done = (G if part.square is None else part.square * G), []
        for read, (Q, of_value, of_slope, S) in zip(
            reversed(part.reads), reversed(ahead), strict=True
        ):
            tangent += _contribution(read.map, behind, S, samples)
            Z = read.map.returned(behind)
            behind = of_slope.value * Z
            if part.square is not None and read is part.reads[0]:
                behind = behind + G
            layer = (of_value.value, slopes_of(of_value), of_slope.value, slopes_of(of_slope), S, Z)
            roots = root(Z), root(S + read.map.bias)
            bends = bends_of(of_value), bends_of(of_slope)
            done.append(_Reading(*layer, *roots, behind, root(Q), *bends))
        G = behind
        layers.append(tuple(reversed(done)))
    tangent += _contribution(network.first, G, bare, samples)
    return Limits(kernel, tangent, tuple(reversed(layers)), bare)


def _only_forwards(network: LayeredNetwork, forward: Any) -> tuple[tuple[Any, ...], ...]:
    """Return layers without a backward pass."""

    def of_layer(read: Read | Heads, ahead: Any) -> Any:
        if isinstance(read, Heads):
            return ahead
        Q, of_value, _, S = ahead
        known: dict[str, Any] = dict.fromkeys(_Reading._fields)
        known["phi_kernel"], known["S"] = of_value.value, S
        known["of_value"], known["bend_of_value"] = slopes_of(of_value), bends_of(of_value)
        known["root_Q"], known["root_S"] = root(Q), root(S + read.map.bias)
        return _Reading(**known)

    return tuple(
        tuple(of_layer(*each) for each in zip(part.reads, ahead, strict=True))
        for part, ahead in zip(network.parts, forward, strict=True)
    )


def _contribution(of: PositionMap, G: Any, S: Any, samples: int) -> Any:
    """Return an affine map's part of the tangent kernel, (…, sample, sample)."""
    return over_positions(G * (of.rates[0] * S + of.rates[1] * of.bias), samples)


def over_positions(product: Any, samples: int) -> Any:
    """Return sums over all pairs of positions, (…, sample, sample)."""
    *lead, size, _ = product.shape
    return product.reshape(*lead, samples, size // samples, samples, size // samples).sum((-3, -1))


def sample(
    network: LayeredNetwork, limits: Limits, samples: int, draws: int, key: Any, at_once: int
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return deviations of the kernel and of the tangent kernel, (draw, sample, sample).

    With attention the latter are None.
    """
    given = limits.layers, limits.first
    constants = jax.tree.map(lambda a: jnp.asarray(a, np.float32), given)
    parts = []
    for number, first in enumerate(range(0, draws, at_once)):
        count = min(at_once, draws - first)
        now = jax.random.fold_in(key, number)
        parts.append(jax.tree.map(np.asarray, _sample(network, samples, count, constants, now)))
        check_interrupts()
    kernels, tangents = zip(*parts, strict=True)
    return np.concatenate(kernels), None if network.attends else np.concatenate(tangents)


class _Passed(NamedTuple):
    """What the backward pass needs of a layer: φ' on the path, δE[φ'φ'], δS."""

    slope: Any
    of_slopes: Any
    S: Any


@partial(jax.jit, static_argnums=(0, 1, 2))
def _sample(network: LayeredNetwork, samples: int, draws: int, constants: Any, key: Any) -> Any:
    limits, bare = constants
    keys = iter(jax.random.split(key, 3 * len(network.widths) + 2))

    def normal(of):
        return jax.random.normal(next(keys), (draws, len(of)), of.dtype) @ of.T

    def read_by(read: Read | Heads, at: Any, h, Q):
        if isinstance(read, Heads):
            still = jnp.zeros_like(Q)
            return heads.response(read, at, (Q, still), next(keys), samples)[0], None
        value, slope = read.phi(h), read.phi.derivative(h)
        noise = (outer(value) - at.phi_kernel) / np.sqrt(read.width)
        S = read.map.weighed(response(at.of_value, Q) + noise)
        return S, None if network.attends else _Passed(slope, response(at.of_slope, Q), S)

    h = normal(limits[0][0].root_Q)
    Q: Any = jnp.zeros((draws, h.shape[1], h.shape[1]), h.dtype)
    passed: list[list[Any]] = []
    for part, ats in zip(network.parts, limits, strict=True):
        inner, deviation, seen = h, Q, []
        for read, at in zip(part.reads, ats, strict=True):
            deviation, one = read_by(read, at, inner, deviation)
            seen.append(one)
            inner = normal(at.root_S)
        passed.append(seen)
        if part.square is None:
            h, Q = inner, deviation
        else:
            h, Q = h + np.sqrt(part.square) * inner, Q + part.square * deviation
    kernel = Q
    if network.attends:
        return kernel, None
    # R: response part of the deviation of G in the present population; g: the backward path.
    none = jnp.zeros_like(kernel)
    back = _Back(jnp.zeros((draws, samples), h.dtype), none, none, jnp.ones_like(kernel[0]))
    tangent = none
    for part, ats, seen in zip(
        reversed(network.parts), reversed(limits), reversed(passed), strict=True
    ):
        back, more = _backwards(part, ats, seen, back, samples, normal)
        tangent = tangent + more
    first, none = network.first, jnp.zeros_like(back.total)
    return kernel, tangent + _change(first, back, bare, none, samples)


class _Back(NamedTuple):
    """The backward path g, δR, δG, and G, of the population behind an affine map or a branch."""

    g: Any
    response: Any
    total: Any
    G: Any


def _backwards(part: Part, ats: Any, seen: Any, back: _Back, samples: int, normal: Any) -> Any:
    """Return the backward path before a part, and its share of the tangent kernel's deviation."""
    whole, tangent = back, 0.0
    if part.square is not None:
        back = back._replace(total=part.square * back.total, G=part.square * back.G)
    layers = list(zip(part.reads, ats, seen, strict=True))
    for read, at, one in reversed(layers):
        tangent = tangent + _change(read.map, back, at.S, one.S, samples)
        g = one.slope * normal(at.root_Z)
        response = at.p * read.map.returned(back.total) + at.Z * one.of_slopes
        if part.square is not None and read is part.reads[0]:
            g, response = whole.g + g, whole.response + response
        total = response + (outer(g) - at.G) / np.sqrt(read.width)
        back = _Back(g, response, total, at.G)
    return back, tangent


def _change(of: PositionMap, back: _Back, S: Any, deviation: Any, samples: int) -> Any:
    weighed = back.total * (of.rates[0] * S + of.rates[1] * of.bias)
    return over_positions(weighed + of.rates[0] * back.G * deviation, samples)


def outer(f: Any) -> Any:
    """Return f_a f_b, (draw, a, b)."""
    return f[:, :, None] * f[:, None, :]


def slopes_of(of: PairDerivatives) -> tuple[np.ndarray, np.ndarray]:
    """Return k_c and k_1; on the diagonal the derivative in the variance, and 0."""
    return of.c + np.diag(of.first), of.q1


def response(of: tuple[Any, Any], change: Any) -> Any:
    """Return the first order of an average in a change of the covariance."""
    by_covariance, by_first = of
    diagonal = jnp.diagonal(change, axis1=-2, axis2=-1)
    both = by_first * diagonal[..., :, None] + by_first.T * diagonal[..., None, :]
    return by_covariance * change + both


def bends_of(of: PairDerivatives) -> tuple[np.ndarray, ...]:
    """Return k_cc (on the diagonal the second derivative in the variance), k_11, k_12 and k_1c."""
    return of.cc + np.diag(of.second), of.q1q1, of.q1q2, of.q1c


def bent(of: tuple[Any, ...], change: Any) -> Any:
    """Return the second order of an average in a change of the covariance."""
    cc, q1q1, q1q2, q1c = of
    diagonal = jnp.diagonal(change, axis1=-2, axis2=-1)
    one, other = diagonal[..., :, None], diagonal[..., None, :]
    squares = cc * change**2 + q1q1 * one**2 + q1q1.T * other**2
    return squares / 2 + q1q2 * one * other + (q1c * one + q1c.T * other) * change


def root(covariance: np.ndarray) -> np.ndarray:
    """Return R with R Rᵀ = C, (…, N, N), without the negative eigenvalues of a singular C."""
    values, vectors = np.linalg.eigh(covariance)
    return vectors * np.sqrt(np.maximum(values, 0))[..., None, :]
