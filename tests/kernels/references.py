"""Kernels by independent routes: NumPy for relu and erf, mpmath quadrature for anything."""

import mpmath
import numpy as np


def numpy_mlp(x, act, hidden, weight_std=1.0, bias_std=0.0):
    """NNGP and NTK of an MLP from the textbook formulas, in plain covariances."""
    w, b = weight_std**2, bias_std**2
    K = b + w * x @ x.T / x.shape[1]
    T = K.copy()
    for _ in range(hidden):
        q = np.diag(K)
        if act == "relu":
            r = np.sqrt(np.outer(q, q))
            c = np.clip(K / r, -1, 1)
            theta = np.arccos(c)
            np.fill_diagonal(theta, 0.0)
            E = r * (np.sin(theta) + (np.pi - theta) * np.cos(theta)) / (2 * np.pi)
            D = (np.pi - theta) / (2 * np.pi)
        else:
            s = np.outer(1 + 2 * q, 1 + 2 * q)
            E = 2 / np.pi * np.arcsin(2 * K / np.sqrt(s))
            D = 4 / np.pi / np.sqrt(s - 4 * K**2)
        K = b + w * E
        T = K + w * D * T
    return K, T


def mpmath_mlp_entry(phi, slope, xa, xb, hidden, weight_std, bias_std):
    """One entry of NNGP and NTK: E over (u, v) by the trapezoidal rule, in mpmath."""
    w, b, D = mpmath.mpf(weight_std) ** 2, mpmath.mpf(bias_std) ** 2, len(xa)
    aa, ab, bb = (
        b + w * mpmath.fsum(p * q for p, q in zip(s, t, strict=True)) / D
        for s, t in ((xa, xa), (xa, xb), (xb, xb))
    )
    ntk, same = ab, xa == xb
    for _ in range(hidden):
        value = _single(phi, aa) if same else _pair(phi, aa, ab, bb)
        derivative = _single(slope, aa) if same else _pair(slope, aa, ab, bb)
        aa, ab, bb = (b + w * e for e in (_single(phi, aa), value, _single(phi, bb)))
        ntk = ab + w * derivative * ntk
    return ab, ntk


def _rule(steps):
    """Nodes and weights of step 1/steps: the error is exp(−2π·strip·steps/√q) for analytic f."""
    nodes = [mpmath.mpf(k) / steps for k in range(-9 * steps, 9 * steps + 1)]
    return nodes, [mpmath.npdf(z) / steps for z in nodes]


def _single(f, q):
    root = mpmath.sqrt(q)
    return mpmath.fsum(w * f(root * z) ** 2 for z, w in zip(*_rule(32), strict=True))


def _pair(f, aa, ab, bb):
    root = mpmath.sqrt(aa)
    along, rest = ab / root, mpmath.sqrt(bb - ab**2 / aa)
    nodes, weights = _rule(10)
    outer = [w * f(root * z) for z, w in zip(nodes, weights, strict=True)]
    return mpmath.fsum(
        wz * wy * f(along * z + rest * y)
        for z, wz in zip(nodes, outer, strict=True)
        for y, wy in zip(nodes, weights, strict=True)
        if abs(wz) * wy > 1e-16
    )
