"""Kernels of spatial networks by an independent route: one plain covariance of all positions.

All samples and positions are one set of points, K and Θ are matrices over it, position first. A
window is a list of 0/1 matrices, one for each offset, which JAX's own convolution makes of one-hot
images and one-hot filters; nothing is aligned, separated or carried as a gap.
"""

from dataclasses import dataclass, replace
from itertools import product

import jax
import numpy as np
from jax import lax


@dataclass
class Joint:
    """K, Θ and means of (position, sample), of data (n, *space, channels) to begin with."""

    n: int
    K: np.ndarray
    T: np.ndarray
    m: np.ndarray

    @classmethod
    def of(cls, x):
        rows = x.reshape(len(x), -1, x.shape[-1]).swapaxes(0, 1).reshape(-1, x.shape[-1])
        K = rows @ rows.T / rows.shape[1]
        return cls(len(x), K, 0 * K, rows.mean(axis=1))

    def affine(self, windows, w=1.0, b=0.0):
        maps = [np.kron(S, np.eye(self.n)) for S in windows]
        K = sum(S @ self.K @ S.T for S in maps) / len(maps)
        T = sum(S @ self.T @ S.T for S in maps) / len(maps)
        return Joint(self.n, w * K + b, w * K + b + w * T, np.zeros(len(K)))

    def dense(self, w=1.0, b=0.0):
        return self.affine([np.eye(len(self.K) // self.n)], w, b)

    def local(self):
        P = len(self.K) // self.n
        equal = np.kron(np.eye(P), np.ones((self.n, self.n)))
        return replace(self, K=self.K * equal, T=self.T * equal)

    def relu(self):
        q = np.diag(self.K)
        r = np.sqrt(np.outer(q, q))
        theta = np.arccos(np.clip(self.K / np.where(r > 0, r, 1), -1, 1))
        np.fill_diagonal(theta, 0)
        K = r * (np.sin(theta) + (np.pi - theta) * np.cos(theta)) / (2 * np.pi)
        D = (np.pi - theta) / (2 * np.pi)
        return replace(self, K=K, T=D * self.T, m=np.sqrt(q / (2 * np.pi)))

    def erf(self):
        q = np.diag(self.K)
        s = np.outer(1 + 2 * q, 1 + 2 * q)
        K = 2 / np.pi * np.arcsin(2 * self.K / np.sqrt(s))
        D = 4 / np.pi / np.sqrt(s - 4 * self.K**2)
        return replace(self, K=K, T=D * self.T, m=0 * q)

    def linear(self, A):
        return self.mixed(np.kron(A, np.eye(self.n)))

    def mixed(self, A):
        """Behind a linear map of everything, (positions behind × n, positions × n)."""
        return replace(self, K=A @ self.K @ A.T, T=A @ self.T @ A.T, m=A @ self.m)

    def flatten(self):
        P = len(self.K) // self.n
        K, T = (x.reshape(P, self.n, P, self.n) for x in (self.K, self.T))
        m = self.m.reshape(P, self.n).mean(axis=0)
        return Joint(self.n, *(np.einsum("pipj->ij", x) / P for x in (K, T)), m)

    def scaled(self, s):
        s = np.outer(s, s)
        return replace(self, K=s * self.K, T=s * self.T)

    def norm(self, centre=False, over_space=False, eps=0.0):
        P = len(self.K) // self.n
        over = np.full((P, P), 1 / P) if over_space else np.eye(P)
        over = np.kron(over, np.eye(self.n))
        M = over @ self.m if centre else 0 * self.m
        K = self.K - np.outer(self.m, M) - np.outer(M, self.m) + np.outer(M, M)
        return replace(self, K=K, m=self.m - M).scaled(1 / np.sqrt(over @ np.diag(K) + eps))

    def attended(self, scale, there=None):
        there = np.ones(len(self.K)) if there is None else there
        sample = np.arange(len(self.K)) % self.n
        A = np.exp(scale * self.K) * (sample[:, None] == sample) * there
        return self.mixed(A / A.sum(axis=1, keepdims=True))

    def plus(self, other, beta=1.0):
        cross = beta * (np.outer(self.m, other.m) + np.outer(other.m, self.m))
        return Joint(
            self.n,
            self.K + beta**2 * other.K + cross,
            self.T + beta**2 * other.T,
            self.m + beta * other.m,
        )

    def times(self, other):
        T = self.T * other.K + self.K * other.T
        return Joint(self.n, self.K * other.K, T, self.m * other.m)


def windows(space, window, strides=1, padding="SAME", dilation=1, transposed=False):
    """One 0/1 matrix (positions behind, positions before) for each offset of a window."""
    d, P = len(space), int(np.prod(space))
    strides, dilation = (s if isinstance(s, tuple) else (s,) * d for s in (strides, dilation))
    images = np.eye(P).reshape(P, *space, 1)
    letters = "XYZ"[:d]
    numbers = (f"N{letters}C", f"{letters}IO", f"N{letters}C")
    if padding == "CIRCULAR":
        reach = [k * (w - 1) + 1 for k, w in zip(dilation, window, strict=True)]
        outs = [-(-L // s) for L, s in zip(space, strides, strict=True)]
        total = [
            max(0, (o - 1) * s + r - L)
            for o, s, r, L in zip(outs, strides, reach, space, strict=True)
        ]
        widths = [(t // 2, t - t // 2) for t in total]
        images, padding = np.pad(images, [(0, 0), *widths, (0, 0)], mode="wrap"), "VALID"
    found = []
    for offset in product(*map(range, window)):
        filters = np.zeros((*window, 1, 1))
        filters[(*offset, 0, 0)] = 1
        with jax.enable_x64(True):
            if transposed:
                out = lax.conv_transpose(
                    images, filters, strides, padding, dilation, dimension_numbers=numbers
                )
            else:
                out = lax.conv_general_dilated(
                    images,
                    filters,
                    strides,
                    padding,
                    rhs_dilation=dilation,
                    dimension_numbers=numbers,
                )
        found.append(np.asarray(out).reshape(P, -1).T)
    return found


def averages(space, window, strides=None, padding="VALID"):
    """The matrix of an average over what of each window lies inside."""
    sums = sum(windows(space, window, window if strides is None else strides, padding))
    return sums / sums.sum(axis=1, keepdims=True)
