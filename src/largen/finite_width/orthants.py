"""Exact averages over Gaussians for φ(z) = a₊z₊ + a₋z₋: relu, leaky relu, absolute value.

Products of φ and φ' of up to four inputs are moments of an orthant, summed over signs s of inputs,

    E[∏ φ(u_i)^{v_i} φ'(u_i)^{d_i}] = Σ_s ∏ s_i^{v_i} a_{s_i}^{v_i + d_i} G_v(sKs),
    G_v(K) = E[∏ u_i^{v_i} 1(u_i > 0)],

and Stein's lemma lowers the powers one at a time, with u_j = 0 where a step is differentiated:

    G_v = Σ_j K_ij (w_j G_{w − e_j}  or, where w_j = 0,  n(0; K_jj) G_w given u_j = 0),
    w = v − e_i.

The recursion ends at probabilities of orthants, which are known angles for up to three inputs, and
for four an integral over correlations tρ, 0 < t < 1 (Plackett 1954).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations, product

import numpy as np

from largen.expectations import ActivationFunction
from largen.expectations.nodes import kinks_of, values

_NEARLY_SINGULAR = 1e-12  # relative to the variances, added where they depend on one another


@lru_cache(maxsize=256)
def slopes_of(phi: ActivationFunction) -> tuple[float, float] | None:
    """Return (a₊, a₋) of a φ of degree one, or None for any other."""
    if kinks_of(phi) not in ((), (0.0,)):
        return None
    points = np.array([0.37, 1.0, 2.9, 11.0])
    right, left = values(phi, points)[0] / points, -values(phi, -points)[0] / points
    if any(not np.allclose(s, s[1], rtol=1e-12, atol=0) for s in (right, left)):
        return None
    return float(right[1]), float(left[1])


class HomogeneousAverages:
    """Averages of products of φ and φ', computed on demand, for ``slopes`` (a₊, a₋)."""

    def __init__(self, slopes: tuple[float, float], kernel: np.ndarray) -> None:
        self._kernel = _regular(kernel)
        self.inputs = len(kernel)
        self._signs = [s for s, slope in zip((1, -1), slopes, strict=True) if slope]
        self._slope: dict[int, float] = dict(zip((1, -1), slopes, strict=True))
        self._orthants: dict[int, tuple[dict, np.ndarray, _Orthant]] = {}
        self._tables: dict[tuple, np.ndarray] = {}

    def mean(self, values_of: Sequence[int], slopes_of: Sequence[int] = ()) -> float:
        """Return E[∏ φ(u_i) ∏ φ'(u_j)] over lists of inputs, with repetition."""
        chosen = tuple(sorted({*values_of, *slopes_of}))
        v = tuple(values_of.count(i) for i in chosen)
        d = tuple(slopes_of.count(i) for i in chosen)
        places, signs, orthant = self._orthant(len(chosen))
        if (v, d) not in self._tables:
            # Signs of inputs, (sign pattern, input), and of each a G_v for every set of inputs.
            weight = np.ones(len(signs))
            for column, i, j in zip(signs.T, v, d, strict=True):
                slope = np.array([self._slope[int(s)] for s in column])
                weight *= np.where(column < 0, (-1.0) ** i, 1) * slope ** (i + j)
            self._tables[v, d] = np.tensordot(weight, np.asarray(orthant(v)), 1)
        return float(self._tables[v, d][places[chosen]])

    def change(self, values_of: Sequence[int], i: int, j: int) -> float:
        """Return the derivative of E[∏ φ(u)] in a covariance, or in a variance.

        The latter follows from the former, as E is of degree v_i in the size of u_i.
        """
        if i not in values_of or j not in values_of:
            return 0.0
        if i != j:
            left = list(values_of)
            left.remove(i)
            left.remove(j)
            return values_of.count(i) * values_of.count(j) * self.mean(left, [i, j])
        others = set(values_of) - {i}
        total = values_of.count(i) * self.mean(values_of)
        total -= sum(self._kernel[i, k] * self.change(values_of, i, k) for k in others)
        return total / (2 * self._kernel[i, i])

    def _orthant(self, inputs: int) -> tuple[dict, np.ndarray, _Orthant]:
        if inputs not in self._orthants:
            sets = list(combinations(range(len(self._kernel)), inputs))
            blocks = np.array([self._kernel[np.ix_(s, s)] for s in sets])
            signs = np.array(list(product(self._signs, repeat=inputs)), np.float64)
            signed = blocks * (signs[:, :, None] * signs[:, None, :])[:, None]
            places = {chosen: number for number, chosen in enumerate(sets)}
            self._orthants[inputs] = places, signs, _Orthant(signed)
        return self._orthants[inputs]


class _Orthant:
    """Moments over u > 0 of Gaussians with covariances (…, input, input)."""

    def __init__(self, K: np.ndarray) -> None:
        self._K = K
        self._known: dict[tuple[int, ...], np.ndarray] = {}
        self._given: dict[int, tuple[np.ndarray, _Orthant]] = {}

    def __call__(self, powers: tuple[int, ...]) -> np.ndarray:
        """Return E[∏ u_i^{powers_i} 1(u_i > 0)]."""
        if powers not in self._known:
            self._known[powers] = self._moment(powers)
        return self._known[powers]

    def _moment(self, powers: tuple[int, ...]) -> np.ndarray:
        if not any(powers):
            return _probability(self._K)
        i = next(n for n, power in enumerate(powers) if power)
        lower = _less(powers, i)
        total = np.zeros(self._K.shape[:-2])
        for j, power in enumerate(lower):
            if power:
                term = power * self(_less(lower, j))
            else:
                density, others = self._at_zero(j)
                term = density * others(lower[:j] + lower[j + 1 :])
            total = total + self._K[..., i, j] * term
        return total

    def _at_zero(self, j: int) -> tuple[np.ndarray, _Orthant]:
        if j not in self._given:
            variance = self._K[..., j, j]
            row = np.delete(self._K[..., j, :], j, axis=-1)
            block = np.delete(np.delete(self._K, j, axis=-1), j, axis=-2)
            left = block - row[..., :, None] * row[..., None, :] / variance[..., None, None]
            self._given[j] = 1 / np.sqrt(2 * np.pi * variance), _Orthant(left)
        return self._given[j]


def _less(powers: tuple[int, ...], i: int) -> tuple[int, ...]:
    return (*powers[:i], powers[i] - 1, *powers[i + 1 :])


def _probability(K: np.ndarray) -> np.ndarray:
    """Return the probability of the positive orthant for up to four Gaussians."""
    inputs = K.shape[-1]
    if inputs < 2:
        return np.full(K.shape[:-2], 0.5**inputs)
    scale = np.sqrt(np.diagonal(K, axis1=-2, axis2=-1))
    rho = np.clip(K / (scale[..., :, None] * scale[..., None, :]), -1, 1)
    i, j = np.triu_indices(inputs, 1)
    if inputs < 4:
        angles = np.arcsin(rho[..., i, j]).sum(axis=-1)
        return 0.5**inputs + angles / (2 ** (inputs - 1) * np.pi)
    t, weights = _path()
    along = rho[..., None] * t
    probability = np.full(K.shape[:-2], 0.5**4)
    for a, b in combinations(range(4), 2):
        k, l = (n for n in range(4) if n not in (a, b))
        # Covariance of u_k and u_l given u_a = u_b = 0, all correlations being tρ.
        c = along[..., a, b, :]
        det = 1 - c**2
        ka, kb = along[..., k, a, :], along[..., k, b, :]
        la, lb = along[..., l, a, :], along[..., l, b, :]
        kk = 1 - (ka**2 + kb**2 - 2 * c * ka * kb) / det
        ll = 1 - (la**2 + lb**2 - 2 * c * la * lb) / det
        kl = along[..., k, l, :] - (ka * la + kb * lb - c * (ka * lb + kb * la)) / det
        left = np.clip(kl / np.sqrt(np.maximum(kk * ll, 1e-300)), -1, 1)
        rate = (0.25 + np.arcsin(left) / (2 * np.pi)) / (2 * np.pi * np.sqrt(det))
        probability = probability + rho[..., a, b] * (rate @ weights)
    return probability


@lru_cache
def _path() -> tuple[np.ndarray, np.ndarray]:
    """Return nodes and weights on 0 < t < 1, dense at 1, where Gaussians may nearly coincide."""
    ends = np.array([0.0, *(1 - 0.25 ** np.arange(0.5, 12)), 1.0])
    node, weight = np.polynomial.legendre.leggauss(10)
    lengths = np.diff(ends)[:, None]
    return (ends[:-1, None] + lengths * (node + 1) / 2).ravel(), (lengths * weight / 2).ravel()


def _regular(kernel: np.ndarray) -> np.ndarray:
    q = np.diagonal(kernel)
    scale = np.sqrt(q)
    if np.linalg.eigvalsh(kernel / np.outer(scale, scale))[0] > 100 * _NEARLY_SINGULAR:
        return kernel
    return kernel + np.diag(_NEARLY_SINGULAR * q)
