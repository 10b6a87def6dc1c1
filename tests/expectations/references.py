"""Independent values: closed forms in mpmath at 60 digits, and plain quadrature over the plane."""

import numpy as np
from mpmath import mp, mpf

DIGITS = 60


def _erf(a, b, ab):
    return 2 / mp.pi * mp.asin(2 * ab / mp.sqrt((1 + 2 * a) * (1 + 2 * b)))


def _absolute(a, b, ab):
    c = ab / mp.sqrt(a * b)
    theta = mp.acos(max(min(c, mpf(1)), mpf(-1)))
    return 2 / mp.pi * mp.sqrt(a * b) * (mp.sin(theta) + (mp.pi / 2 - theta) * mp.cos(theta))


def _gelu(a, b, ab):
    # E[uv Φ(u)Φ(v)] = ∂/∂s ∂/∂t of the moment generating function of (u, v) weighted by ΦΦ;
    # here by Stein's identity, once in u and once in v.
    density = 1 / (2 * mp.pi * mp.sqrt((1 + a) * (1 + b) - ab**2))
    both = mpf(1) / 4 + mp.asin(ab / mp.sqrt((1 + a) * (1 + b))) / (2 * mp.pi)
    first = a * (b - ab**2 / (1 + a)) * density  # a E[v Φ'(u) Φ(v)]
    second = ab * ab / (1 + b) * density  # q12 E[v Φ(u) Φ'(v)]
    return first + ab * both + second


COVARIANCES = {
    "linear": lambda a, b, ab: ab,
    "abs": _absolute,
    "relu": lambda a, b, ab: ab / 4 + _absolute(a, b, ab) / 4,
    "leaky_relu": lambda a, b, ab: mpf("0.505") ** 2 * ab + mpf("0.495") ** 2 * _absolute(a, b, ab),
    "erf": _erf,
    "gelu": _gelu,
    "sin": lambda a, b, ab: mp.exp(-(a + b) / 2) * mp.sinh(ab),
    "cos": lambda a, b, ab: mp.exp(-(a + b) / 2) * mp.cosh(ab),
    "exp": lambda a, b, ab: mp.exp((a + b) / 2 + ab),
}


def gap_of(name, q1, q2, gap):
    """Gap of (φ(u), φ(v)), subtracting at 60 digits."""
    with mp.workdps(DIGITS):
        q1, q2, gap = mpf(float(q1)), mpf(float(q2)), mpf(float(gap))
        f = COVARIANCES[name]
        return (f(q1, q1, q1) + f(q2, q2, q2)) / 2 - f(q1, q2, (q1 + q2) / 2 - gap)


def derivative_of(name, q1, q2, gap):
    """E[φ'(u)φ'(v)] = ∂E[φ(u)φ(v)]/∂q12 (Price), by the angle for the kinked ones."""
    with mp.workdps(DIGITS):
        q1, q2, gap = mpf(float(q1)), mpf(float(q2)), mpf(float(gap))
        q12 = (q1 + q2) / 2 - gap
        slopes = {"abs": (0, 1), "relu": (0.5, 0.5), "leaky_relu": ("0.505", "0.495")}
        if name in slopes:
            odd, even = (mpf(x) for x in slopes[name])
            theta = mp.acos(max(min(q12 / mp.sqrt(q1 * q2), mpf(1)), mpf(-1)))
            return odd**2 + even**2 * (1 - 2 * theta / mp.pi)
        step = mpf(10) ** -20 * mp.sqrt(q1 * q2)
        f = COVARIANCES[name]
        return (f(q1, q2, q12 + step) - f(q1, q2, q12 - step)) / (2 * step)


def plane(function, q1, q2, gap, step=0.04, reach=9.0):
    """E[function(u, v)] by the trapezoidal rule in the mean and the difference of the angles."""
    n = round(reach / step)
    z = np.arange(-n, n + 1) * step
    weights = step * np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
    c = np.clip(((q1 + q2) / 2 - gap) / np.sqrt(q1 * q2), -1, 1)
    half = np.arccos(c) / 2
    common, apart = np.cos(half) * z[:, None], np.sin(half) * z[None, :]
    u, v = np.sqrt(q1) * (common + apart), np.sqrt(q2) * (common - apart)
    return weights @ function(u, v) @ weights


def panels(breaks, order=40):
    """Gauss–Legendre nodes and Gaussian weights between sorted breaks, along the last axis."""
    x, w = np.polynomial.legendre.leggauss(order)
    low, high = breaks[..., :-1, None], breaks[..., 1:, None]
    z = (low + high) / 2 + (high - low) / 2 * x
    weights = (high - low) / 2 * w * np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
    return (a.reshape(*a.shape[:-2], -1) for a in (z, weights))


def split(function, kinks, q1, q2, c):
    """E[f(u)f(v)]: outer integral over u, inner over v given u, both split at the kinks."""
    r1, r2, s = np.sqrt(q1), np.sqrt(q2), np.sqrt(1 - c * c)
    layers = [k / r2 / c + d * s / abs(c) for k in kinks for d in (-9, -6, -4, -2, 0, 2, 4, 6, 9)]
    outer = np.clip([*np.arange(-10, 11), *(k / r1 for k in kinks), *layers], -10, 10)
    z, weights = panels(np.sort(outer))
    inner = [np.full_like(z, t) for t in np.arange(-10, 11, 2.5)]
    inner += [(k / r2 - c * z) / s for k in kinks]
    y, inner_weights = panels(np.sort(np.clip(np.stack(inner, axis=-1), -10, 10)))
    conditional = np.sum(inner_weights * function(r2 * (c * z[:, None] + s * y)), axis=1)
    return weights @ (function(r1 * z) * conditional)
