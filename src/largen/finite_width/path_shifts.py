r"""Shifts of mean kernels at order 1/width, with convolutions and branches, by paths of neurons.

Let O be all averages over neurons on which one another depend, O = E a(x; O) over the random
numbers x of a neuron's path. A network has Ô = (1/n) Σ_i a(x_i; Ô), and to order 1/n

    n E[Ô − O] = 𝒢 {E[∂a(x)·r(x)] + ½ E ∂²a : E[r r]},    r(x) = 𝒢 [a(x) − O],  𝒢 = (1 − E ∂a)⁻¹,

with r the response of all averages to a single path, which :mod:`largen.finite_width.neuron_paths`
samples. The first term is the correlation of a neuron's response with its own contribution; it
vanishes where a population is read for the first time.

The averages are S and G, and for each matrix W between two populations one that is odd in the
read-out. Given the preactivations u = Wφ/√n, the backward pass through W is, with ζ ~ N(0, Z),

    Wᵀγ/√n_q = ζ + φη,    η = (φᵀφ/n)⁻¹ [√(n_q/n) uᵀγ/n_q − φᵀζ/n],

for gradients γ by u, so that averages of gradients change by E[(φ'φη)(φ'φη)]. Of u and ζ only
Stein's derivatives are left: with T_cb = Σ E[∂_c(φ'_b φ_d)] η_db over the layers that read h = u,
or h + βu in a stream,

    √n η_cb = σ_w² ∂γ_b/∂u_c/√n_q (of a path) + σ_w² β² T_cb,

where the path's derivative is an average over directions ω, of ω ⊗ γ(u + sω) by s. Without branches
E[ηη] is the tensor F of :mod:`largen.finite_width.recursion`, from the last layer to the first.

In convolutions neurons are channels, and a, b, c, d are samples with positions: u = Σ_k W_k T_k φ
is a product of one matrix W with the features T_k φ of all taps k, and what Wᵀ returns has

    Σ_k T_kᵀ η T_k in place of σ_w² η, at the positions of φ,

while all of the above holds of η at the positions of u.

S and Q do not depend on ζ, and no second order is quadratic in G, so that averages over ζ are taken
of what a path adds to G: Σ φ'φ' Z over its layers.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from largen.expectations.nodes import kinks_of
from largen.finite_width import heads
from largen.finite_width.layered_network import Heads, LayeredNetwork, PositionMap, Read
from largen.finite_width.neuron_paths import Limits, bent, outer, over_positions, response
from largen.interrupts import check as check_interrupts


class Shifts(NamedTuple):
    """E S − K of the outputs and E Θ̂ − Θ, (sample, sample), and their standard errors.

    With attention the latter are None.
    """

    kernel: np.ndarray
    tangent: np.ndarray | None
    kernel_error: np.ndarray
    tangent_error: np.ndarray | None


def has_shifts(network: LayeredNetwork) -> bool:
    """Whether shifts are known: without kinks where branches share their neurons."""
    kinked = any(
        kinks_of(read.phi) or read.phi.jumps
        for part in network.parts
        for read in part.reads
        if isinstance(read, Read)
    )
    branches = any(part.square is not None for part in network.parts)
    return not (branches and kinked)


def shifts_of(
    network: LayeredNetwork, limits: Limits, draws: int, key: Any, at_once: int
) -> Shifts:
    """Return the shifts of a network that has them."""
    constants = jax.tree.map(lambda a: jnp.asarray(a, np.float32), (limits.layers, limits.first))
    at_once, sums = max(2, min(at_once, draws)), None
    batches = -(-draws // at_once)
    for number in range(batches):
        now = jax.random.fold_in(key, number)
        part = jax.tree.map(
            lambda a: np.asarray(a, np.float64), _sums(network, at_once, constants, now)
        )
        sums = part if sums is None else jax.tree.map(np.add, sums, part)
        check_interrupts()
    count = batches * at_once
    means, squares = jax.tree.map(lambda s: s / count, sums)
    errors = jax.tree.map(
        lambda mean, square: np.sqrt(np.maximum(square - mean**2, 0) / count), means, squares
    )
    return Shifts(*means, *errors)


@partial(jax.jit, static_argnums=(0, 1))
def _sums(network: LayeredNetwork, draws: int, constants: Any, key: Any) -> Any:
    """Return sums over draws of second orders and of their squares."""
    limits, bare = constants
    normals = _draw(network, draws, limits, key)
    if network.attends:
        forward = _forward_orders(network, limits, _paths(network, normals, 0.0), normals.heads)
        kernel = forward[0][1]
        return (kernel.sum(0), None), ((kernel**2).sum(0), None)
    own = jax.jvp(lambda s: _by_own(network, limits, normals, s), (0.0,), (1.0,))[1]
    shared = [a + b for a, b in zip(own, _by_others(network, limits, normals), strict=True)]
    found = _second_order(network, limits, bare, normals, shared)
    return jax.tree.map(lambda a: a.sum(0), found), jax.tree.map(lambda a: (a**2).sum(0), found)


class _Normals(NamedTuple):
    """Random numbers of paths: of each population's start, and of the maps behind its layers."""

    first: Any  # h of the first layer
    forward: tuple[tuple[Any, ...], ...]  # u, of all parts
    # Of mean 0 and variance 1, (…, draw, sample).
    backward: tuple[tuple[Any, ...], ...]  # ζ over the root of Z
    directions: tuple[tuple[Any, ...], ...]  # ω
    sources: tuple[tuple[Any, ...], ...]
    heads: Any  # a key


def _draw(network: LayeredNetwork, draws: int, limits: Any, key: Any) -> _Normals:
    keys = iter(jax.random.split(key, 4 * len(network.widths) + 2))

    def normal(of):
        return jax.random.normal(next(keys), (draws, len(of)), of.dtype) @ of.T

    def signs(of: Any, *lead: int):
        if of is None:
            return None
        return jax.random.rademacher(next(keys), (*lead, draws, len(of)), of.dtype)

    def of_layers(draw: Any) -> tuple[tuple[Any, ...], ...]:
        return tuple(tuple(draw(at) for at in ats) for ats in limits)

    return _Normals(
        normal(limits[0][0].root_Q),
        of_layers(lambda at: normal(at.root_S)),
        of_layers(lambda at: signs(at.Z)),
        of_layers(lambda at: signs(at.S)),
        of_layers(lambda at: signs(at.Z, 5)),
        next(keys),
    )


def _paths(network: LayeredNetwork, normals: _Normals, s: Any) -> Any:
    """Return h of all layers and parts, where each u is moved by sω."""
    h, paths = normals.first, []
    for part, us, omegas in zip(network.parts, normals.forward, normals.directions, strict=True):
        inner, seen = h, []
        for u, omega in zip(us, omegas, strict=True):
            seen.append(inner)
            inner = u + s * omega
        paths.append(seen)
        h = inner if part.square is None else h + np.sqrt(part.square) * inner
    return paths


class _Own(NamedTuple):
    """What is odd in the read-out, of the population behind a map or a branch."""

    g: Any  # of the path, (draw, sample)
    T: Any  # (draw, sample c, sample b)
    Y: Any  # φ'_b φ·η_b summed over the path's layers, (draw, sample)


def _by_own(network: LayeredNetwork, limits: Any, normals: _Normals, s: Any) -> list[Any]:
    """Return what becomes n times the change of E gg by a neuron's own η, by its derivative in s.

    Layers are in order from the last one. Only in a stream are the neurons before and behind a
    branch the same.
    """
    paths, found = _paths(network, normals, s), []
    if all(part.square is None for part in network.parts):
        return [_none(h)[1] for part in reversed(paths) for h in reversed(part)]
    back = _Own(zero := _none(normals.directions[-1][-1])[0], _none(zero)[1], zero)
    given = network.parts, limits, paths, normals.backward, normals.directions
    for part, *of_part in zip(*map(reversed, given), strict=True):
        whole, square = back, part.square or 1.0
        for read, at, h, signs, omega in reversed(list(zip(part.reads, *of_part, strict=True))):
            zero, none = _none(h)
            gamma = np.sqrt(square) * back.g  # of the read-out 0, for its g, 1, does not vary
            eta = omega[:, :, None] * gamma[:, None] + square * back.T
            eta, square = read.map.returned(eta), 1.0
            joins = part.square is not None and read is part.reads[0]
            base = whole if joins else _Own(zero, none, zero)
            value, slope = read.phi(h), read.phi.derivative(h)
            g = base.g + slope * (signs @ at.root_Z.T)
            back = _Own(g, base.T + _bend(at, eta), base.Y + slope * _through(value, eta))
            found.append(2 * _symmetric(back.g, back.Y) if joins else none)
    return found


def _by_others(network: LayeredNetwork, limits: Any, normals: _Normals) -> list[Any]:
    """Return n times the change of E gg by the η to which other neurons contribute.

    Averages of their paths, w² β⁴ Σ Z_ab E[∂_c∂_d(φ'_a φ'_b)] over later layers, are those of a
    pair of matrices that each layer adds to T.
    """
    zero, none = _none(normals.directions[-1][-1])
    back, found = ((none, none), (zero, zero)), []  # T and Y of both
    given = network.parts, limits, _paths(network, normals, 0.0), normals.sources
    for part, *of_part in zip(*map(reversed, given), strict=True):
        whole, square = back, part.square or 1.0
        for read, at, h, signs in reversed(list(zip(part.reads, *of_part, strict=True))):
            etas, square = [read.map.returned(square * T) for T in back[0]], 1.0
            joins = part.square is not None and read is part.reads[0]
            zero, none = _none(h)
            Ts, Ys = whole if joins else ((none, none), (zero, zero))
            value, slope = read.phi(h), read.phi.derivative(h)
            sources = zip(Ts, etas, _sources(at, signs), strict=True)
            back = (
                tuple(T + _bend(at, eta) + source for T, eta, source in sources),
                tuple(Y + slope * _through(value, eta) for Y, eta in zip(Ys, etas, strict=True)),
            )
            found.append(_symmetric(*back[1]))
    return found


def _sources(at: Any, signs: Any) -> tuple[Any, Any]:
    """Return X_ca and X'_db, (draw, P, P), with E[X_ca X'_db] = Z_ab E[∂_c∂_d(φ'_a φ'_b)].

    With C = Z ∘ E[φ''φ''] and D = Z ∘ E[φ'''φ'] it is C_ab (δ_ca δ_db + δ_cb δ_da) +
    D_ab δ_ca δ_da + D_ba δ_cb δ_db.
    """
    by_covariance, by_first = at.of_slope  # on the diagonal E[φ''² + φ'''φ']
    C, D = at.Z * by_covariance, 2 * at.Z * by_first
    one, two, other, three, four = signs
    eye = jnp.eye(len(C), dtype=C.dtype)
    X = eye * (one + three)[:, None] + other[:, :, None] * C * two[:, None]
    X = X + four[:, :, None] * D
    Y = eye * (one @ C + four)[:, None] + two[:, :, None] * other[:, None]
    return X, Y + three[:, :, None] * D


def _none(h: Any) -> tuple[Any, Any]:
    """Return zeros of the shape of a path, (draw, N), and of its products, (draw, N, N)."""
    return jnp.zeros_like(h), jnp.zeros((*h.shape, h.shape[1]), h.dtype)


def _through(value: Any, eta: Any) -> Any:
    return jnp.einsum("rd,rdb->rb", value, eta)


def _symmetric(f: Any, g: Any) -> Any:
    """Return (f_a g_b + g_a f_b)/2."""
    product = f[:, :, None] * g[:, None, :]
    return (product + jnp.swapaxes(product, 1, 2)) / 2


def _bend(at: Any, eta: Any) -> Any:
    """Return Σ_d E[∂_c(φ'_b φ_d)] η_db, (draw, c, b)."""
    by_covariance, by_first = at.of_value
    first, twice = jnp.diagonal(by_covariance), 2 * by_first  # E[φ'² + φφ''], E[φ''_b φ_d]
    P = len(first)
    diagonal = jnp.einsum("bd,rdb->rb", twice, eta) + first * jnp.einsum("rbb->rb", eta)
    apart = eta * (at.p * (1 - jnp.eye(P, dtype=eta.dtype)))
    return apart + diagonal[:, :, None] * jnp.eye(P, dtype=eta.dtype)


class _Passed(NamedTuple):
    """A layer's path and its averages: h, first and second orders of Q and of S."""

    h: Any
    Q: tuple[Any, Any]
    S: tuple[Any, Any]
    fresh: bool  # whether no layer before reads the same neurons


class _Back(NamedTuple):
    """The backward path, δR, δG and G as in ``neuron_paths``, with first and second orders."""

    squares: Any  # gg of the path, averaged over ζ
    response: tuple[Any, Any]
    total: tuple[Any, Any]
    G: Any


def _second_order(
    network: LayeredNetwork, limits: Any, bare: Any, normals: _Normals, shared: list[Any]
) -> tuple[Any, Any]:
    """Return the second order of S and of Θ̂, (draw, sample, sample), whose means are the shifts."""
    Q, passed = _forward_orders(network, limits, _paths(network, normals, 0.0), normals.heads)
    none = _none(normals.first)[1]
    still, end = (none, none), jnp.zeros_like(Q[1])
    back = _Back(end, (end, end), (end, end), jnp.ones_like(end[0]))
    tangent, layer, samples = end, 0, end.shape[1]
    for part, ats, seen in zip(*map(reversed, (network.parts, limits, passed)), strict=True):
        whole, b = back, part.square
        if b is not None:
            total = (b * back.total[0], b * back.total[1])
            back = back._replace(total=total, G=b * back.G)
        for read, at, one in reversed(list(zip(part.reads, ats, seen, strict=True))):
            tangent = tangent + _second_of_product(read.map, back, at.S, one.S, samples)
            base = whole if b is not None and read is part.reads[0] else None
            back = _backwards(read, at, one, back, base, shared[layer])
            layer += 1
    return Q[1], tangent + _second_of_product(network.first, back, bare, still, samples)


def _forward_orders(network: LayeredNetwork, limits: Any, paths: Any, key: Any) -> Any:
    """Return both orders of the kernel, (draw, sample, sample), and the layers before."""
    none = _none(paths[0][0])[1]
    Q, passed, fresh = (none, none), [], True
    samples = limits[-1][-1].S.shape[0]
    for place, (part, ats, hs) in enumerate(zip(network.parts, limits, paths, strict=True)):
        deviation, seen = Q, []
        for read, at, h in zip(part.reads, ats, hs, strict=True):
            new = fresh or read is not part.reads[0]
            if isinstance(read, Heads):
                now = jax.random.fold_in(jax.random.fold_in(key, place), len(seen))
                S = heads.response(read, at, deviation, now, samples)
            else:
                S = _forwards(read, at, h, deviation, new)
            seen.append(_Passed(h, deviation, S, new))
            deviation = S
        passed.append(seen)
        b, fresh = part.square, part.square is None
        Q = deviation if b is None else (Q[0] + b * deviation[0], Q[1] + b * deviation[1])
    return Q, passed


def _forwards(read: Read, at: Any, h: Any, Q: tuple[Any, Any], fresh: bool) -> tuple[Any, Any]:
    """Return both orders of S behind a layer."""
    root = np.sqrt(read.width)
    first = response(at.of_value, Q[0]) + (outer(read.phi(h)) - at.phi_kernel) / root
    second = response(at.of_value, Q[1]) + bent(at.bend_of_value, Q[0])
    if not fresh:
        second = second + _along(read.phi, h, Q[0]) / root
    return read.map.weighed(first), read.map.weighed(second)


def _backwards(
    read: Read, at: Any, one: _Passed, back: _Back, whole: _Back | None, shared: Any
) -> _Back:
    """Return the backward path and both orders of G before a layer."""
    root = np.sqrt(read.width)
    Z = [read.map.returned(each) for each in back.total]
    products, slopes = outer(read.phi.derivative(one.h)), response(at.of_slope, one.Q[0])
    squares, first = products * at.Z, at.p * Z[0] + at.Z * slopes
    own = (products - at.p) * Z[0]
    if not one.fresh:
        own = own + at.Z * _along(read.phi.derivative, one.h, one.Q[0])
    changes = response(at.of_slope, one.Q[1]) + bent(at.bend_of_slope, one.Q[0])
    second = at.p * Z[1] + at.Z * changes + slopes * Z[0] + own / root
    if whole is not None:
        squares = whole.squares + squares
        first, second = whole.response[0] + first, whole.response[1] + second
    total = first + (squares - at.G) / root, second + shared / read.width
    return _Back(squares, (first, second), total, at.G)


def _along(f: Any, h: Any, change: Any) -> Any:
    """Return ½ Σ_cd ∂_c∂_d(f_a f_b) δQ_cd on a path."""
    ones = jnp.ones_like(h)

    def slope(h):
        return jax.jvp(f, (h,), (ones,))[1]

    first, second = jax.jvp(slope, (h,), (ones,))
    diagonal = jnp.einsum("raa->ra", change)
    curved = (second * diagonal)[:, :, None] * f(h)[:, None, :]
    return outer(first) * change + (curved + jnp.swapaxes(curved, 1, 2)) / 2


def _second_of_product(
    of: PositionMap, back: _Back, S: Any, change: tuple[Any, Any], samples: int
) -> Any:
    """Return the second order of an affine map's part of the tangent kernel."""
    rate, of_bias = of.rates
    both = back.G * change[1] + back.total[0] * change[0]
    return over_positions(back.total[1] * (rate * S + of_bias * of.bias) + rate * both, samples)
