"""Linear networks at rest, mode by mode of the kernel: the limit, and every width exactly.

Given the other weights, the last matrix of a linear network acts on a vector as its norm times a
Gaussian vector, and so do the ones before it. Outputs are f | Q ~ N(0, QK/(γ₀²N)) with a single
random number, Q = Π_l χ²_N/N over the L hidden layers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

GRID = 4001  # points on which branches are searched
TILTS = 8  # densities of log Q that are computed, besides those at the branches
RESOLVED = 28.0  # a density from a Fourier transform is used down to exp(−28) of its maximum
FINEST, COARSEST = 2**20, 2**14  # points of log Q
PER_DEVIATION = 24  # points in a standard deviation of log Q


class Branch(NamedTuple):
    """A minimum of the action: r = Φˡ/Φˡ⁻¹ in the learned direction, and the action there."""

    scale: float
    action: float


class Modes(NamedTuple):
    """Training targets in the eigenvectors of the kernel."""

    # values, vectors: eigenvalues λ of the kernel and its eigenvectors in columns.
    values: Float[np.ndarray, " mode"]
    vectors: Float[np.ndarray, "sample mode"]
    targets: Float[np.ndarray, " mode"]  # targets in these coordinates
    # noise, gamma, hidden: κ, γ₀ and the number of hidden layers L.
    noise: float
    gamma: float
    hidden: int

    def branches(self) -> tuple[Branch, ...]:
        """Return all minima of the action over r ≥ 1, the lowest first.

        S(r) = (L/2)(r − 1 − log r) + (γ₀²/2) yᵀ(rᴸK + κ)⁻¹y, where
        r − 1 = γ₀² rᴸ yᵀ(rᴸK + κ)⁻¹ K (rᴸK + κ)⁻¹ y. With x = rᴸ ≥ 1, each term of the right side,
        xλ/(xλ + κ)², is at most the smaller one of 1/(4κ) and 1/λ.
        """
        from scipy.optimize import brentq

        weights, values, depth = self.targets**2, self.values, self.hidden
        with np.errstate(divide="ignore"):
            bounds = np.minimum(1 / (4 * np.asarray(self.noise)), 1 / values)
        seen = weights > 0
        top = self.gamma**2 * np.sum(weights[seen] * bounds[seen])

        def excess(log_gain: float) -> float:
            c = (1 + np.exp(log_gain)) ** depth
            fit = np.sum(weights * values * c / (c * values + self.noise) ** 2)
            return float(np.exp(log_gain) - self.gamma**2 * fit)

        logs = np.log(top * (1 + 1e-9)) - np.linspace(45, 0, GRID) if top > 0 else np.zeros(0)
        found = np.array([excess(log) for log in logs])
        ends = np.flatnonzero((found[:-1] < 0) & (found[1:] >= 0))
        roots = [brentq(excess, logs[i], logs[i + 1], xtol=1e-14) for i in ends]
        # Gains below e^(−45) of the bound are no gain in float64.
        scales = (1 + np.exp(np.asarray(roots, np.float64))).tolist() or [1.0]
        minima = [Branch(scale, self.action(scale)) for scale in scales]
        return tuple(sorted(minima, key=lambda branch: branch.action))

    def action(self, scale: float) -> float:
        """Return S(r)."""
        spread = scale**self.hidden * self.values + self.noise
        data = self.gamma**2 * np.sum(self.targets**2 / spread)
        return float(self.hidden * (scale - 1 - np.log(scale)) / 2 + data / 2)

    def limit(self, scale: float) -> Law:
        """Return the law of Q to leading order as N → ∞, around the saddle at Q = rᴸ.

        log Q has the density exp(−N S + a) up to O(1/N), with
        a = −(L − 1)/(2L) log Q − ½ log det(QK + κ). From its cumulants, with ' = d/d log Q,

            N Var = 1/S'',   N (⟨m⟩ − m) = m''/(2S'') + m' (a'/S'' − S'''/(2S''²)).
        """
        q, depth, noise = scale**self.hidden, self.hidden, self.noise
        h = q * self.values
        spread, weights = h + noise, self.gamma**2 * self.targets**2 / 2
        second = scale / (2 * depth) - np.sum(weights * h * (noise - h) / spread**3)
        third = scale / (2 * depth**2) - np.sum(
            weights * h * (noise**2 - 4 * noise * h + h**2) / spread**4
        )
        slope = -(depth - 1) / (2 * depth) - np.sum(h / spread) / 2
        first = noise * q / spread**2
        curved = noise * q * (noise - h) / spread**3
        shift = slope / second - third / (2 * second**2)
        between = self.gamma**2 * np.outer(first, first) / second
        correction = curved / (2 * second) + first * shift
        return Law(q / spread, q, q**2 / spread, between, correction)

    def at_width(self, width: int, branches: tuple[Branch, ...]) -> tuple[Law, float]:
        """Return averages over Q at a width N, and log p(y).

        The density of log Q is a convolution. Where the posterior is, it may be e^(−N) of its
        maximum: it is computed tilted by Q^t, where χ²_N is a Gamma variable around r = 1 + 2t/N.
        """
        depth = self.hidden
        highest = max(branch.scale for branch in branches)
        reach = 16 * np.sqrt(2 * depth / width) + 80 / width
        span = depth * np.log(highest) + reach
        deviation = np.sqrt(2 * depth / (width * highest))
        wanted = 2 * span * PER_DEVIATION / deviation
        count = int(np.clip(2 ** np.ceil(np.log2(wanted)), COARSEST, FINEST))
        u = (np.arange(count) - count // 2) * (2 * span / count)
        scales = {*np.geomspace(1, highest, TILTS).tolist(), *(each.scale for each in branches)}
        logs = _log_density(u, sorted(scales), width, depth)
        kept = np.isfinite(logs)
        q, logs, unit = np.exp(u[kept]), logs[kept], self.gamma**2 * width
        for value, target in zip(self.values, self.targets, strict=True):
            spread = q * value + self.noise
            logs = logs - np.log(spread) / 2 - unit * target**2 / (2 * spread)
        largest = logs.max()
        weights = np.exp(logs - largest)
        total = weights.sum()
        constant = len(self.values) * np.log(unit / (2 * np.pi)) / 2
        evidence = float(largest + np.log(total * (u[1] - u[0])) + constant)
        kept = weights > 1e-20
        q, weights = q[kept], weights[kept] / total
        factors = q[:, None] / (q[:, None] * self.values + self.noise)
        mean = weights @ factors
        moved = factors - mean
        between = unit * (moved * weights[:, None]).T @ moved
        within = weights @ (q[:, None] * factors)
        return Law(mean, float(weights @ q), within, between, np.zeros_like(mean)), evidence


class Law(NamedTuple):
    """Averages over Q, of which mean and covariance of outputs are linear functions."""

    mean: Float[np.ndarray, " mode"]  # ⟨Q/(Qλ + κ)⟩ of each mode
    size: float  # ⟨Q⟩
    within: Float[np.ndarray, " mode"]  # ⟨Q²/(Qλ + κ)⟩
    between: Float[np.ndarray, "mode mode"]  # γ₀²N Cov of Q/(Qλ + κ) between modes
    # N times the difference of a width's mean from the limit's.
    correction: Float[np.ndarray, " mode"]

    def moments(
        self, cross: np.ndarray, targets: np.ndarray, prior: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return mean, correction, and γ₀²N times the covariance or the variance at test samples.

        ``cross``: their kernel with the modes. ``targets``: in the modes. ``prior``: their kernel
        with one another, or its diagonal for variances alone.
        """
        along = cross * targets
        if prior.ndim == 2:
            spread = self.size * prior - (cross * self.within) @ cross.T
            spread = spread + along @ self.between @ along.T
        else:
            spread = self.size * prior - cross**2 @ self.within
            spread = spread + np.sum((along @ self.between) * along, 1)
        return along @ self.mean, along @ self.correction, spread


def _log_density(u: np.ndarray, scales: list[float], width: int, depth: int) -> np.ndarray:
    """Return the log density of log Q on a grid around 0; −∞ where no tilt resolves it."""
    from scipy.special import gammaln

    step, half = u[1] - u[0], width / 2
    best, logs = np.full(len(u), -RESOLVED), np.full(len(u), -np.inf)
    for scale in scales:
        shape, tilt = half * scale, half * (scale - 1)
        v = u - np.log(scale)
        one = np.exp(shape * (v - np.exp(v)) + shape * np.log(shape) - gammaln(shape))
        waves = np.fft.rfft(np.fft.ifftshift(one) * step) ** depth
        density = np.maximum(np.fft.fftshift(np.fft.irfft(waves, len(u))) / step, 1e-300)
        depth_below = np.log(density / density.max())
        norm = depth * (gammaln(shape) - gammaln(half) - tilt * np.log(half))
        better = depth_below > best
        best[better] = depth_below[better]
        logs[better] = (np.log(density) + norm - tilt * u)[better]
    return logs
