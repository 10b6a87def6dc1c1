"""Kernels by hand in NumPy, which share no code with the library.

A state is a pair of matrices K and T over all rows, which are (sample, position) with the samples
first. Affine maps act on rows by matrices, one for each tap of a window.
"""

from typing import NamedTuple

import numpy as np
from scipy import special

# The rule of equal steps converges exponentially for functions that are analytic around the axis.
NODES = np.linspace(-9, 9, 181)
WEIGHTS = np.exp(-(NODES**2) / 2)
WEIGHTS /= WEIGHTS.sum()


class State(NamedTuple):
    K: np.ndarray
    T: np.ndarray

    def __add__(self, other):
        return State(self.K + other.K, self.T + other.T)

    def __mul__(self, other):  # of independent values
        return State(self.K * other.K, self.T * other.K + self.K * other.T)

    def scaled(self, factor):
        return State(self.K * factor**2, self.T * factor**2)


def data(x):
    """Rows (sample, position, channel)."""
    rows = x.reshape(-1, x.shape[-1])
    return State(rows @ rows.T / rows.shape[1], np.zeros((len(rows), len(rows))))


def moved(state, taps, n):
    """The mean over taps of A K Aᵀ, with matrices A of positions."""
    found = []
    for kernel in state:
        whole = [np.kron(np.eye(n), A) for A in taps]
        found.append(sum(A @ kernel @ A.T for A in whole) / len(taps))
    return State(*found)


def affine(state, weight, bias=0.0):
    return State(weight * state.K + bias, weight * (state.K + state.T) + bias)


def taps_1d(length, window=3, stride=1, padding=1, dilation=1):
    outputs = (length + 2 * padding - dilation * (window - 1) - 1) // stride + 1
    found = []
    for k in range(window):
        A = np.zeros((outputs, length))
        for o in range(outputs):
            i = o * stride + k * dilation - padding
            if 0 <= i < length:
                A[o, i] = 1
        found.append(A)
    return found


def taps_2d(length, **options):
    one = taps_1d(length, **options)
    return [np.kron(A, B) for A in one for B in one]


def pooled_1d(length, window):
    return np.kron(np.eye(length // window), np.full((1, window), 1 / window))


def flattened(state, positions, n):
    """The mean over the diagonal of positions."""
    cut = (k.reshape(n, positions, n, positions) for k in state)
    return State(*(np.einsum("apbp->ab", k) / positions for k in cut))


def normed(state, eps):
    scale = 1 / np.sqrt(np.diag(state.K) + eps)
    return State(*(k * np.outer(scale, scale) for k in state))


def relu(state):
    s = np.sqrt(np.diag(state.K))
    cos = np.clip(state.K / np.outer(s, s), -1, 1)
    angle = np.arccos(cos)
    K = np.outer(s, s) * (np.sin(angle) + (np.pi - angle) * cos) / (2 * np.pi)
    return State(K, state.T * (np.pi - angle) / (2 * np.pi))


def function(state, f, df):
    """E[f f] and E[f' f'] by quadrature in two dimensions."""
    K, D = np.zeros_like(state.K), np.zeros_like(state.K)
    w = np.outer(WEIGHTS, WEIGHTS)
    for a in range(len(K)):
        for b in range(a + 1):
            q = np.sqrt(state.K[a, a])
            u = q * NODES[:, None] + 0 * NODES
            rest = max(state.K[b, b] - (state.K[a, b] / q) ** 2, 0)
            v = state.K[a, b] / q * NODES[:, None] + np.sqrt(rest) * NODES
            K[a, b] = K[b, a] = np.sum(w * f(u) * f(v))
            D[a, b] = D[b, a] = np.sum(w * df(u) * df(v))
    return State(K, D * state.T)


def _logistic(z):
    return 1 / (1 + np.exp(-z))


def tanh(state):
    return function(state, np.tanh, lambda z: 1 / np.cosh(z) ** 2)


def gelu(state):
    def cdf(z):
        return (1 + special.erf(z / np.sqrt(2))) / 2

    def slope(z):
        return cdf(z) + z * np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)

    return function(state, lambda z: z * cdf(z), slope)


def silu(state):
    def slope(z):
        return _logistic(z) * (1 + z * (1 - _logistic(z)))

    return function(state, lambda z: z * _logistic(z), slope)


def erf(state):
    return function(state, special.erf, lambda z: 2 / np.sqrt(np.pi) * np.exp(-(z**2)))


def behind_uniform(x, weight, bias, f, df):
    """The moments behind f of a layer of uniform weights and biases, by Gauss-Legendre."""
    nodes, weights = np.polynomial.legendre.leggauss(32)
    d = x.shape[1]
    grid = np.stack(np.meshgrid(*[nodes] * (d + 1), indexing="ij"), -1).reshape(-1, d + 1)
    mass = np.prod(np.meshgrid(*[weights / 2] * (d + 1), indexing="ij"), axis=0).ravel()
    u = grid[:, :d] @ (x * np.sqrt(3 * weight / d)).T + np.sqrt(3 * bias) * grid[:, d:]
    K = np.einsum("s,sa,sb->ab", mass, f(u), f(u))
    D = np.einsum("s,sa,sb->ab", mass, df(u), df(u))
    return State(K, D * (weight * x @ x.T / d + bias))
