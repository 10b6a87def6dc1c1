"""Kernels by independent routes: textbook formulas for relu and erf, quadrature for anything."""

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


def quadrature_mlp_entry(phi, slope, xa, xb, hidden, weight_std, bias_std):
    """One entry of NNGP and NTK: E over (u, v) by the trapezoidal rule over the plane."""
    w, b = weight_std**2, bias_std**2
    aa, ab, bb = (b + w * np.mean(s * t) for s, t in ((xa, xa), (xa, xb), (xb, xb)))
    ntk = ab
    for _ in range(hidden):
        derivative = _pair(slope, aa, ab, bb)
        aa, ab, bb = (b + w * _pair(phi, *q) for q in ((aa, aa, aa), (aa, ab, bb), (bb, bb, bb)))
        ntk = ab + w * derivative * ntk
    return ab, ntk


# The error of step h is exp(−2π·strip/(h√q)) for f analytic in a strip.
_NODES = np.arange(-400, 401) / 40
_WEIGHTS = np.exp(-(_NODES**2) / 2) / np.sqrt(2 * np.pi) / 40


def _pair(f, aa, ab, bb):
    along, rest = ab / np.sqrt(aa), np.sqrt(max(bb - ab**2 / aa, 0.0))
    v = along * _NODES[:, None] + rest * _NODES[None, :]
    return (_WEIGHTS * f(np.sqrt(aa) * _NODES)) @ f(v) @ _WEIGHTS
