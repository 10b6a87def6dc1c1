"""NNGP and NTK of fully connected networks in NumPy: nothing of largen's is used.

Activations of degree one, erf, sines and the like have closed forms, in long double, since angles
lose half of the digits of near rows. Analytic ones are summed over a grid of the plane, whose error
falls exponentially; those with a kink at 0 are integrated over v by hand and over u panel by panel.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, log_ndtr, ndtr

PI = np.longdouble("3.14159265358979323846264338327950288")
MOST_NODES = 1000  # along an axis of the plane
Array = Any


class Covariance(NamedTuple):
    """E[u²], E[uv] and E[v²] of pairs, and whether both are of one sample."""

    aa: Array
    ab: Array
    bb: Array


class Unresolved(Exception):
    """The grid would be too fine: there is no reference for variances of this size."""


def homogeneous(above: float, below: float) -> tuple[Callable, Callable]:
    """above·x for x > 0 and below·x elsewhere (Cho and Saul, arc-cosine kernels)."""
    odd, even = (above + below) / 2, (above - below) / 2

    def angle(q):
        norm = np.sqrt(q.aa * q.bb)
        return norm, np.arccos(np.clip(q.ab / np.where(norm > 0, norm, 1), -1, 1))

    def value(q):
        norm, theta = angle(q)
        absolute = 2 / PI * norm * (np.sin(theta) + (PI / 2 - theta) * np.cos(theta))
        return odd**2 * q.ab + even**2 * absolute

    def slope(q):
        return odd**2 + even**2 * (1 - 2 * angle(q)[1] / PI)

    return value, slope


def jump(below: float) -> tuple[Callable, None]:
    """1 for x > 0 and ``below`` elsewhere."""
    mean, half = (1 + below) / 2, (1 - below) / 2

    def value(q):
        ratio = np.clip(q.ab / np.sqrt(q.aa * q.bb), -1, 1)
        return mean**2 + half**2 * 2 / PI * np.arcsin(ratio)

    return value, None


def _waves(q, sign, hyperbolic):
    mean, ab = (q.aa + q.bb) / 2, np.asarray(q.ab)
    small = np.abs(ab) < 1  # where the difference has fewer digits, and products do not overflow
    of_small = np.exp(-mean) * hyperbolic(np.where(small, ab, 0))
    return np.where(small, of_small, (np.exp(ab - mean) + sign * np.exp(-ab - mean)) / 2)


SIN, COS = (lambda q: _waves(q, -1, np.sinh)), (lambda q: _waves(q, 1, np.cosh))
CLOSED: dict[str, tuple[Any, ...]] = {
    "linear": homogeneous(1, 1),
    "relu": homogeneous(1, 0),
    "leaky_relu": homogeneous(1, 0.01),
    "abs": homogeneous(1, -1),
    "sign": jump(-1),
    "step": jump(0),
    "sin": (SIN, COS),
    "cos": (COS, SIN),
    "exp": (lambda q: np.exp((q.aa + q.bb) / 2 + q.ab),) * 2,
    "erf": (
        lambda q: 2 / PI * np.arcsin(2 * q.ab / np.sqrt((1 + 2 * q.aa) * (1 + 2 * q.bb))),
        # 1 + 2 (aa + bb) + 4 (aa bb − ab²): of equal large rows the last term is exactly 0.
        lambda q: 4 / PI / np.sqrt(1 + 2 * (q.aa + q.bb) + 4 * (q.aa * q.bb - q.ab**2)),
    ),
    # ∫∫ e^(−(u² + v²)/2): det(1 + Σ)^(−½); of −u e^(−u²/2): the covariance of that Gaussian.
    "gaussian": (
        lambda q: (1 + q.aa + q.bb + (q.aa * q.bb - q.ab**2)) ** -0.5,
        lambda q: q.ab * (1 + q.aa + q.bb + (q.aa * q.bb - q.ab**2)) ** -1.5,
    ),
    "square": (lambda q: q.aa * q.bb + 2 * q.ab**2, lambda q: 4 * q.ab),
    "cubic": (  # x + 0.1 x³: E[u³v³] = 9 ab aa bb + 6 ab³, E[u v³] = 3 ab bb
        lambda q: q.ab * (1 + 0.3 * (q.aa + q.bb) + 0.09 * q.aa * q.bb) + 0.06 * q.ab**3,
        lambda q: 1 + 0.3 * (q.aa + q.bb) + 0.09 * (q.aa * q.bb + 2 * q.ab**2),
    ),
}


def _softplus(u):
    return np.logaddexp(0, u)


def _silu_slope(u):
    return expit(u) * (1 + u * expit(-u))


def _gelu_slope(u):
    return ndtr(u) + u * np.exp(-(u**2) / 2) / np.sqrt(2 * np.pi)


# φ, φ', and the step of the grid over standard Gaussians that resolves a product of two at a
# variance q: the error of a step h is e^(−2π s/h√q) for poles at a distance s, and
# e^(−2π²/h²(1 + 2q)) for Φ.
def _poles(distance):
    return lambda q: 2 * np.pi * distance / (34 * np.sqrt(q))


SMOOTH: dict[str, tuple[Callable, Callable, Callable]] = {
    "tanh": (np.tanh, lambda u: np.cosh(np.clip(u, -300, 300)) ** -2, _poles(np.pi / 2)),
    "sigmoid": (expit, lambda u: expit(u) * expit(-u), _poles(np.pi)),
    "silu": (lambda u: u * expit(u), _silu_slope, _poles(np.pi)),
    "softplus": (_softplus, expit, _poles(np.pi)),
    "gelu": (lambda u: u * ndtr(u), _gelu_slope, lambda q: np.sqrt(2 / 34 / (1 + 2 * q)) * np.pi),
    "wave": (  # u tanh u, of the user's
        lambda u: u * np.tanh(u),
        lambda u: np.tanh(u) + u * np.cosh(np.clip(u, -300, 300)) ** -2,
        _poles(np.pi / 2),
    ),
}


def plane(f: Callable, step: Callable, q: Covariance) -> Array:
    """E[f(u) f(v)] by the trapezoidal rule, pair by pair."""
    most = max(np.max(q.aa), np.max(q.bb), 1e-30)
    h = min(0.1, float(step(most)))
    count = int(np.ceil(9 / h))
    if 2 * count + 1 > MOST_NODES:
        raise Unresolved
    z = np.arange(-count, count + 1) * h
    weights = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi) * h

    @cache
    def pair(aa, ab, bb):
        along = ab / np.sqrt(aa) if aa > 0 else 0.0
        rest = np.sqrt(max(bb - along**2, 0.0))
        v = f(along * z[:, None] + rest * z)
        return float((weights * f(np.sqrt(aa) * z)) @ v @ weights)

    return np.vectorize(pair, otypes=[float])(*(np.asarray(each, float) for each in q))


def _elu(alpha: float, scale: float) -> tuple[Callable, Callable]:
    """Means of elu and of its derivative over N(m, s²)."""

    def tail(m, s):  # E[e^v; v < 0]
        return np.exp(m + s**2 / 2 + log_ndtr(-(m + s**2) / s))

    def value(m, s):
        above = m * ndtr(m / s) + s * np.exp(-((m / s) ** 2) / 2) / np.sqrt(2 * np.pi)
        return scale * (above + alpha * (tail(m, s) - ndtr(-m / s)))

    def slope(m, s):
        return scale * (ndtr(m / s) + alpha * tail(m, s))

    return value, slope


MEANS = {"elu": _elu(1.0, 1.0), "selu": _elu(1.6732632423543772, 1.0507009873554805)}
_X, _W = np.polynomial.legendre.leggauss(16)
_EDGES = np.concatenate([[0.0], 2.0 ** np.arange(-40, -1), np.arange(0.5, 9.1, 0.5)])
_MIDDLE, _HALF = (_EDGES[1:] + _EDGES[:-1]) / 2, np.diff(_EDGES) / 2
_SIDE = (_MIDDLE[:, None] + _HALF[:, None] * _X).ravel()
_Z = np.concatenate([-_SIDE[::-1], _SIDE])
_DENSITY = np.tile((_HALF[:, None] * _W).ravel(), 2)
_DENSITY = np.concatenate([_DENSITY[: len(_SIDE)][::-1], _DENSITY[: len(_SIDE)]])
_DENSITY = _DENSITY * np.exp(-(_Z**2) / 2) / np.sqrt(2 * np.pi)


def panels(mean: Callable, q: Covariance) -> Array:
    """E[f(u) f(v)] = E[f(u) E[f(v) | u]], panels over u graded towards its kink at 0."""
    aa, ab, bb = (np.asarray(each, float)[..., None] for each in q)
    if max(aa.max(), bb.max()) > 400:
        raise Unresolved
    root = np.sqrt(np.maximum(aa, 1e-300))
    along = ab / root
    rest = np.sqrt(np.maximum(bb - along**2, 1e-26 * np.maximum(bb, 1e-250)))
    u = mean(root * _Z, np.full_like(root, 1e-13) * np.maximum(root, 1e-100))
    return np.sum(_DENSITY * u * mean(along * _Z, rest), axis=-1)


def expectations(name: str, q: Covariance) -> tuple[Array, Array | None]:
    """Return E[φ(u)φ(v)] and E[φ'(u)φ'(v)]; None for the latter where φ jumps."""
    if name in CLOSED:
        return tuple(None if f is None else f(q) for f in CLOSED[name])  # type: ignore
    if name in MEANS:
        value, slope = (panels(mean, q) for mean in MEANS[name])
        return value, slope
    function, derivative, step = SMOOTH[name]
    return plane(function, step, q), plane(derivative, step, q)


def kernels(steps: tuple, x1: np.ndarray, x2: np.ndarray) -> tuple[Array, Array | None]:
    """Return NNGP and NTK, all rates 1, of a network written as in ``networks.py``."""
    x1, x2 = (np.asarray(x, np.longdouble) for x in (x1, x2))
    both = np.concatenate([x1, x2])
    # Both diagonals and all pairs between them, as one list of pairs.
    rows = np.concatenate([np.arange(len(both)), np.repeat(np.arange(len(x1)), len(x2))])
    columns = np.concatenate([np.arange(len(both)), np.tile(len(x1) + np.arange(len(x2)), len(x1))])
    K = np.sum(both[rows] * both[columns], axis=1) / both.shape[1]
    K, T = _through(steps, K, np.zeros_like(K), rows, columns)
    shape = len(x1), len(x2)
    return K[len(both) :].reshape(shape), None if T is None else T[len(both) :].reshape(shape)


def _through(steps: tuple, K: Array, T: Array | None, rows: Array, columns: Array) -> tuple:
    count = int(np.sum(rows == columns))
    for what, *options in steps:
        diagonal = K[:count]
        q = Covariance(diagonal[rows], K, diagonal[columns])
        match what:
            case "dense":
                weight, bias = options
                K = bias**2 + weight**2 * K
                T = None if T is None else K + weight**2 * T
            case "phi":
                K, slopes = expectations(options[0], q)
                T = None if T is None or slopes is None else slopes * T
            case "normalise":  # of Gaussian features of mean zero: by the root of their variance
                scale = np.sqrt((q.aa + 1e-12) * (q.bb + 1e-12))
                K, T = K / scale, None if T is None else T / scale
            case "skip":
                branch = _through(options[0], K, T, rows, columns)
                K = K + branch[0]
                T = None if T is None or branch[1] is None else T + branch[1]
    return K, T
