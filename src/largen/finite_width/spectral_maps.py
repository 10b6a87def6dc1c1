"""The resolvent of feature kernels behind layers of width in proportion to the samples.

m(z) = (1/P) tr(S − z)⁻¹ at one layer follows explicitly from (z, m) at the layer before it. Given
their inputs' Gram matrix Φ, the neurons of a layer are independent vectors over the samples. Neuron
i shares the offset √o ξ_i over all of them, and on top of it has the covariance b²(ξ)Φ + c²(ξ), so
that the Gram matrix of the layer is a mixture of Wishart matrices. Its deterministic equivalent is

    (S − z')⁻¹ ≈ (aΦ + s − z')⁻¹,   E_ξ[b²/(a + γB)] = 1,   s = E_ξ[c²a/(a + γB)],
    B(ξ) = b²u + c²m,   u = 1 + zm,   z' = za + s,   m' = m/a,      γ = P/width.

So z' is a function of a single complex number at any depth, the innermost z, at which m is the
mean of 1/(λ − z) over the eigenvalues λ of the first features' covariance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from largen.errors import NumericalFailure

_ALONG, _AROUND = 40, 40  # steps towards z in modulus, and in the angle
_MOST = 40  # steps of Newton's method
_AT_ONCE = 2**21  # complex numbers


@dataclass(frozen=True)
class Level:
    """A layer as a map of resolvents."""

    # slopes, noises: b² and c² at the nodes in ξ, times σ_w² of the map behind.
    slopes: np.ndarray
    noises: np.ndarray
    weights: np.ndarray  # weights of the nodes
    ratio: float  # γ = P/width

    @property
    def slope(self) -> float:
        """E b²."""
        return float(self.weights @ self.slopes)

    @property
    def noise(self) -> float:
        """E c²."""
        return float(self.weights @ self.noises)

    def behind(self, point: _Point, a: np.ndarray) -> tuple[_Point, np.ndarray]:
        """Return z', m' and their derivatives, and a, from a guess of a."""
        z, m, dz, dm = point
        b, c, p = self.slopes[:, None], self.noises[:, None], self.weights
        step = self.ratio * (b * (1 + z * m) + c * m)
        dstep = self.ratio * (b * (dz * m + z * dm) + c * dm)
        for _ in range(_MOST):  # Newton on 1/E[b²/(a + γB)] = 1, exact in one step for one node
            total = p @ (b / (a + step))
            change = total * (1 - total) / (p @ (b / (a + step) ** 2))
            a = a - change
            if np.all(np.abs(change) <= 1e-14 * np.abs(a)):
                break
        x = a + step
        da = -(p @ (b * dstep / x**2)) / (p @ (b / x**2))
        outer = z * a + p @ (c * a / x)
        douter = dz * a + z * da + p @ (c * (da * x - a * (da + dstep)) / x**2)
        return (outer, m / a, douter, dm / a - m * da / a**2), a


_Point = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # z, m, dz/du, dm/du


def resolvent(z: np.ndarray, eigenvalues: np.ndarray, levels: Sequence[Level]) -> np.ndarray:
    """Return m(z), (point,), Im z ≠ 0, by Newton's method along a ray and a circle."""
    at_once = max(1, _AT_ONCE // len(eigenvalues))
    parts = [
        _resolvent(z[start : start + at_once], eigenvalues, levels)
        for start in range(0, len(z), at_once)
    ]
    return np.concatenate([*parts, np.zeros(0, complex)])


def _resolvent(z: np.ndarray, eigenvalues: np.ndarray, levels: Sequence[Level]) -> np.ndarray:
    size, angle = np.abs(z), np.angle(z)
    far = 100 * np.maximum(size, largest(eigenvalues, levels))
    ray = np.maximum(angle, np.pi / 2)
    path = [far ** (1 - t) * size**t * np.exp(1j * ray) for t in np.linspace(0, 1, _ALONG)]
    path += [
        size * np.exp(1j * ray ** (1 - t) * angle**t) for t in np.linspace(0, 1, _AROUND + 1)[1:]
    ]
    path[-1] = z
    u = path[0]
    for level in levels[::-1]:
        u = (u - level.noise) / level.slope
    factors = [np.full(len(z), level.slope, complex) for level in levels]
    upper = np.imag(z) > 0
    change = np.zeros(len(z))
    for target in path:
        for _ in range(_MOST):
            (outer, _, slope, _), factors = _forward(u, eigenvalues, levels, factors)
            new = u - (outer - target) / slope
            for _ in range(60):
                left = upper & (np.imag(new) <= 0)
                if not left.any():
                    break
                new = np.where(left, (u + new) / 2, new)
            change, u = np.abs(new - u), new
            if np.all(change <= 1e-12 * np.abs(u)):
                break
        else:
            raise NumericalFailure(
                "lg.finite_width.kernel_spectrum: Newton's method for the resolvent does not "
                f"converge at z = {target[np.argmax(change / np.abs(u))]:.3g}, closer to the "
                "edge of the spectrum than rounding allows. Take z farther from the real axis."
            )
    return _forward(u, eigenvalues, levels, factors)[0][1]


def _forward(
    u: np.ndarray, eigenvalues: np.ndarray, levels: Sequence[Level], factors: list[np.ndarray]
) -> tuple[_Point, list[np.ndarray]]:
    inverse = 1 / (eigenvalues[:, None] - u)
    point: _Point = (u, inverse.mean(0), np.ones_like(u), (inverse**2).mean(0))
    found = []
    for level, a in zip(levels, factors, strict=True):
        point, a = level.behind(point, a)
        found.append(a)
    return point, found


def largest(eigenvalues: np.ndarray, levels: Sequence[Level]) -> float:
    """Return a bound of the spectrum from above."""
    found = float(eigenvalues.max())
    for level in levels:
        found = (level.slopes * found + level.noises).max() * (1 + level.ratio**0.5) ** 2
    return float(found)


def smallest(eigenvalues: np.ndarray, levels: Sequence[Level]) -> float:
    """Return a bound of positive eigenvalues from below, or a guess where offsets differ."""
    found = float(eigenvalues.min())
    for i, level in enumerate(levels):
        beyond = level.ratio < 1 or i == len(levels) - 1
        found = (level.slope * found + level.noise) * (1 - level.ratio**0.5) ** 2 * beyond
    return found
