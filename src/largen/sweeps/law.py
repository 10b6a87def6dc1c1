"""The law of losses in the size, and the weights with which small sizes foretell a large one.

At every rate and time, with x = m/n for the sizes n and the widest pilots' m,

    E l_n = L + c x + |c| (u x² + v x log x),   u ~ N(0, 0.1²),   v ~ N(0, 0.2²),   Var l_n = V/n:

losses are straight in 1/n, as kernels and predictions of networks at finite width are at leading
order; u is the size of the next order, and v the error of the exponent, since
x^p = x + (p − 1) x log x + …. L and c are free. All is linear in the pilots' means.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

# Standard deviations of u and v, by the coverage of intervals over models, data and optimizers.
SIZES = 0.1, 0.2
TINY = 1e-300


def terms(x: np.ndarray, sizes: tuple[float, float] = SIZES) -> np.ndarray:
    """Return the terms of u and v for c = 1, (2, *x)."""
    return np.stack([sizes[0] * x**2, sizes[1] * x * np.log(np.maximum(x, 1e-12))])


def slopes(x: np.ndarray, mean: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Return |c| of the straight line through means (size, …), at least its standard error."""
    weight = 1 / (noise + TINY)
    axes = (-1, *[1] * (mean.ndim - 1))
    at = x.reshape(axes) - (weight * x.reshape(axes)).sum(0) / weight.sum(0)
    spread = (weight * at**2).sum(0)
    return np.maximum(abs((weight * at * mean).sum(0)) / spread, spread**-0.5)


def weights(
    x: np.ndarray,  # (size,)
    target: float,
    noise: np.ndarray,  # the variances of the means, (size, …)
    slope: np.ndarray,  # |c|, (…)
    sizes: tuple[float, float] = SIZES,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the best linear unbiased weights (size, …), and the law's errors by u and v (2, …).

    With the covariance K = RᵀR + N of the pilots' means, R the law's terms and N the noise, w has
    the least variance of wᵀ mean − l_target among all with Σ w = 1 and Σ w x = target.
    """
    spread = np.moveaxis(noise, 0, -1)
    r, q = terms(x, sizes), terms(np.array(target), sizes)
    square = slope[..., None, None] ** 2
    cov = square * (r.T @ r) + spread[..., None] * np.eye(len(x))
    size = np.trace(cov, axis1=-2, axis2=-1)[..., None, None] / len(x)
    cov = cov + np.where(size > 0, 1e-9 * size, 1.0) * np.eye(len(x))
    free = np.stack([np.ones_like(x), x], 1)  # L and c
    known = square * (r.T @ q)[:, None]
    both = np.concatenate([np.broadcast_to(free, (*slope.shape, *free.shape)), known], -1)
    solved = np.linalg.solve(cov, both)
    there = np.array([1.0, target]) - np.einsum("kf,...k->...f", free, solved[..., 2])
    left = np.linalg.solve(np.einsum("kf,...kg->...fg", free, solved[..., :2]), there[..., None])
    w = np.moveaxis(solved[..., 2] + (solved[..., :2] @ left)[..., 0], -1, 0)
    axes = (2, *[1] * slope.ndim)
    return w, slope * (q.reshape(axes) - np.einsum("tk,k...->t...", r, w))


@dataclass(frozen=True)
class Fit:
    """What pilots say of one size, at every rate and time."""

    mean: np.ndarray  # the forecast of the mean over networks, (rate, time)
    law: np.ndarray  # its errors by u and v, (2, rate, time)
    seeds: np.ndarray  # its variance by the pilots' seeds, (rate, time)
    single: np.ndarray  # the standard deviation of one network about the mean, (rate, time)
    weights: np.ndarray  # of the pilots' means, (size, rate, time)
    dof: int  # degrees of freedom of the variances

    @property
    def error(self) -> np.ndarray:
        """The standard deviation of the error of ``mean``, (rate, time)."""
        return np.sqrt((self.law**2).sum(0) + self.seeds * _heavier(self.dof))


@dataclass(frozen=True)
class Ladder:
    """Losses of networks of several sizes on the same batches, (rate, seed, time) of each size."""

    sizes: np.ndarray
    losses: Sequence[np.ndarray]
    law: tuple[float, float] = SIZES

    @property
    def x(self) -> np.ndarray:
        """m/n."""
        return self.sizes[-1] / self.sizes

    @property
    def counts(self) -> np.ndarray:
        """The numbers of seeds, (size,)."""
        return np.array([a.shape[1] for a in self.losses])

    @property
    def means(self) -> np.ndarray:
        """(size, rate, time)."""
        return np.stack([a.mean(1) for a in self.losses])

    @property
    def dof(self) -> int:
        """Degrees of freedom of the pooled variance."""
        return int((self.counts - 1).sum())

    @property
    def pooled(self) -> np.ndarray:
        """V of Var l_n = V/n, (rate, time)."""
        each = [
            n * np.square(a - a.mean(1, keepdims=True)).sum(1)
            for n, a in zip(self.sizes, self.losses, strict=True)
        ]
        return sum(each, np.zeros(each[0].shape)) / self.dof

    @property
    def noise(self) -> np.ndarray:
        """The variances of the means, (size, rate, time)."""
        return self.pooled / (self.sizes * self.counts)[:, None, None]

    def fit(self, size: float) -> Fit:
        """Return the forecast of a size, with its errors."""
        x, mean, noise = self.x, self.means, self.noise
        w, law = weights(x, self.sizes[-1] / size, noise, slopes(x, mean, noise), self.law)
        single = np.sqrt(self.pooled / size)
        seeds = (w**2 * noise).sum(0)
        return Fit((w * mean).sum(0), law, seeds, single, w, self.dof)

    def draws(self, fit: Fit, count: int, rng: np.random.Generator) -> np.ndarray:
        """Return draws of the mean over networks, (draw, rate, time).

        u, v and the seeds' residuals are shared by all rates and times, so that curves stay smooth
        and differences between rates have the errors that they have.
        """
        noise, error = self.noise, np.zeros((count, *fit.mean.shape))
        for k, losses in enumerate(self.losses):
            own = losses - losses.mean(1, keepdims=True)
            power = np.square(own).sum(1)
            own = own * np.sqrt(noise[k] / np.maximum(power, TINY))[:, None]  # to the pooled V
            factors = rng.standard_normal((count, losses.shape[1]))
            error += fit.weights[k] * np.einsum("ds,rst->drt", factors, own)
        error *= np.sqrt(fit.dof / rng.chisquare(fit.dof, count))[:, None, None]
        law = np.einsum("dl,lrt->drt", rng.standard_normal((count, 2)), fit.law)
        return fit.mean + law + error

    def without_widest(self) -> Ladder:
        """Return the pilots without those of the largest size."""
        return Ladder(self.sizes[:-1], self.losses[:-1], self.law)


def _heavier(dof: int) -> float:
    """Return the variance of Student's t."""
    return dof / (dof - 2) if dof > 2 else 3.0
