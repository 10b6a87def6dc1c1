"""The law of networks of one width, from a limit and an ensemble of another width.

Pilots s of width m have outputs f_s = F_s + d_s, where F_s is the limit's prediction for pilot s:
f_∞ in a mean-field limit, in the kernel limit the prediction given the pilot's initial outputs.
With ρ = m/n and d̄ the mean of d, networks of width n are drawn as

    f = F_s + ρ d_s + √(ρ − ρ²) ξ,    ξ ~ N(0, Cov d),

with the same ξ at all times and samples. To order 1/n the mean of d is c/n and its covariance V/n,
so that Cov f = Cov F + 2ρ Cov(F, d) + ρ Cov d and E f = E F + ρ d̄ are right to that order, and so
is any smooth function of f. At n = m the draws are the pilots, at n = ∞ they are the limit.

If the limit is random, its law is known better than by as many draws as there are pilots. For any
statistic T the difference (1 − ρ)(T[F] − T[F_s]) has the mean zero to order 1/n, and is added: the
error is then ρ times that of T in the pilots. It is done for the mean and the variance of outputs,
which are then linear in 1/n between limit and pilots, and for the quantiles of losses.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from largen.runs import Loss
from largen.runs.losses import mean_loss

SPLITS = 20  # into halves, from which the noise of an ensemble is estimated
# Of the self check: in 240 checks of stable runs by 30 pilots 5 % were above, by 100 or more none;
# in unstable runs of 300 pilots all were, by factors of 2 to 10⁵.
LARGEST_NOISE, LARGEST_SHARE = 3.5, 0.25
# Of expansions by theory: stable runs of widths from 32 had up to 0.41, unstable ones 3 and more.
LARGEST_NEXT_ORDER = 0.5
LARGEST_CHANGE, CHANGE_BY_CHANCE = 0.35, 3.3  # of log N Var; the latter over the root of the pilots


class Samples(NamedTuple):
    """Outputs of pilots on training or test samples, and what the limit says of them."""

    f: np.ndarray  # outputs of the pilots, (pilot, step, sample[, output])
    limit: np.ndarray  # F_s, with the same axes, or (1, step, …) if it is the same for all
    losses: np.ndarray  # losses of networks of the limit, (draw, step), or (1, step)
    mean: np.ndarray  # of the limit's outputs, (step, sample[, output])
    variance: np.ndarray
    error: np.ndarray  # of the limit's mean
    y: np.ndarray  # targets
    shifts: np.ndarray | None = None  # estimates of d̄, like ``f``, if it is not measured in ``f``

    def some(self, pilots: slice) -> Samples:
        """Return a part of the pilots."""
        limit = self.limit if len(self.limit) == 1 else self.limit[pilots]
        f = self.f[pilots]
        if self.shifts is None:
            return self._replace(f=f, limit=limit)
        shifts = self.shifts[pilots]
        return self._replace(f=limit + shifts.mean(0) + f - f.mean(0), limit=limit, shifts=shifts)

    @property
    def error_of_deviation(self) -> np.ndarray:
        """The standard error of d̄."""
        estimates = self.f if self.shifts is None else self.shifts
        return np.sqrt(estimates.var(0, ddof=1) / len(estimates))


class Pilots(NamedTuple):
    """An ensemble of one width, on both kinds of samples."""

    width: int
    samples: dict[str, Samples]  # of "train" and, if there are any, "test"
    loss: Loss
    axes: tuple[str, ...]  # of a sample's output

    @property
    def number(self) -> int:
        """Number of networks."""
        return len(self.samples["train"].f)

    def some(self, pilots: slice) -> Pilots:
        """Return a part of the pilots."""
        return self._replace(samples={on: one.some(pilots) for on, one in self.samples.items()})

    def losses(self, on: str) -> np.ndarray:
        """Return the losses of the pilots, (pilot, step)."""
        one = self.samples[on]
        return mean_loss(self.loss, one.f, one.y, 1)


def moments(one: Samples, rho: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return mean and standard deviation of outputs at width n, and the error of the mean."""
    mean = (1 - rho) * one.mean + rho * one.f.mean(0)
    std = np.sqrt((1 - rho) * one.variance + rho * one.f.var(0, ddof=1))
    return mean, std, np.hypot((1 - rho) * one.error, rho * one.error_of_deviation)


class Draws:
    """Networks of width n, drawn by their random numbers, which are the same at all times."""

    def __init__(self, pilots: Pilots, width: float, draws: int, seed: np.ndarray):
        count = pilots.number
        self.pilots, self.rho = pilots, pilots.width / width
        self.chosen = np.arange(draws) % count
        normal = np.random.default_rng(seed).standard_normal((draws, count))
        self.weights = np.sqrt((self.rho - self.rho**2) / (count - 1)) * normal

    def outputs(self, on: str, step: int) -> np.ndarray:
        """Return outputs at a time index, (draw, sample[, output])."""
        one = self.pilots.samples[on]
        limit = one.limit[:, step]
        d = one.f[:, step] - limit
        chosen = self.chosen if len(limit) > 1 else np.zeros_like(self.chosen)
        spread = np.tensordot(self.weights.astype(d.dtype), d - d.mean(0), 1)
        return limit[chosen] + d.dtype.type(self.rho) * d[self.chosen] + spread

    def losses(self, on: str) -> np.ndarray:
        """Return losses at all times, (draw, step)."""
        one, loss = self.pilots.samples[on], self.pilots.loss
        steps = range(one.f.shape[1])
        drawn = [mean_loss(loss, self.outputs(on, t)[:, None], one.y, 1)[:, 0] for t in steps]
        losses = np.stack(drawn, 1)
        if len(one.losses) == 1:
            return losses
        change = (1 - self.rho) * between(one.losses, mean_loss(loss, one.limit, one.y, 1), losses)
        return losses + change.astype(losses.dtype)


def between(law: np.ndarray, sample: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Return Q_law − Q_sample at the ranks of a third sample, each (draw, step)."""
    levels = (np.arange(len(at)) + 0.5) / len(at)
    ranks = np.argsort(np.argsort(at, 0), 0)
    return np.take_along_axis(quantiles(law, levels) - quantiles(sample, levels), ranks, 0)


def quantiles(sample: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Return quantiles at all times, (level, step)."""
    return np.quantile(sample, levels, axis=0, method="hazen")


def distance(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the Wasserstein-1 distance of two samples (draw, step) at all times."""
    levels = (np.arange(max(len(first), len(second))) + 0.5) / max(len(first), len(second))
    return np.abs(quantiles(first, levels) - quantiles(second, levels)).mean(0)


def error_of_mean(pilots: Pilots, rho: float, on: str, seed: np.ndarray) -> np.ndarray:
    """Return the standard error of the mean loss, from groups of pilots."""
    groups = min(10, pilots.number // 4)
    means = [
        Draws(pilots.some(slice(g, None, groups)), pilots.width / rho, 400, seed).losses(on).mean(0)
        for g in range(groups)
    ]
    return np.std(means, 0, ddof=1) / np.sqrt(groups)


class Check(NamedTuple):
    """How well pilots predict those of twice their width, at all times."""

    ratio: np.ndarray  # of width times the variance of deviations from the limit, wider to narrower
    noise: np.ndarray  # the distance of the predicted law of the loss over that of a sample
    share: np.ndarray  # … over that of the limit
    failed: np.ndarray

    def at(self, width: float) -> Check:
        """Return the check for a width, which is the same for all."""
        return self

    @property
    def variables(self) -> dict[str, np.ndarray]:
        """The numbers by their names in data sets."""
        return {"spread_ratio": self.ratio, "check_noise": self.noise, "check_share": self.share}

    def __str__(self) -> str:
        return (
            f"N Var of the pilots changes by factors of {np.min(self.ratio):.3g} to "
            f"{np.max(self.ratio):.3g}"
        )


class NextOrder(NamedTuple):
    """The share that the next order in 1/n has in the variance, at all times, at a width."""

    width: float
    share: np.ndarray

    def at(self, width: float) -> NextOrder:
        """Return the share at another width."""
        return NextOrder(width, self.share * (self.width / width))

    @property
    def failed(self) -> np.ndarray:
        """Where the leading order is not to be trusted."""
        return ~(self.share <= LARGEST_NEXT_ORDER)

    @property
    def variables(self) -> dict[str, np.ndarray]:
        """The numbers by their names in data sets."""
        return {"next_order": self.share}

    def __str__(self) -> str:
        return f"the next order in 1/n is {np.max(self.share):.1%} of the variance at most"


def self_check(narrow: Pilots, wide: Pilots, on: str, draws: int, seed: np.ndarray) -> Check:
    """Predict the wider pilots from the narrower ones."""
    predicted = Draws(narrow, wide.width, draws, seed).losses(on)
    actual = wide.losses(on)
    missed = distance(predicted, actual)
    rounding = 100 * np.finfo(actual.dtype).eps * np.abs(actual).mean(0)
    missed = np.where(missed > rounding, missed, 0.0)  # outputs may be 0 but for it
    rng, half = np.random.default_rng(seed), wide.number // 2
    noise = np.zeros(actual.shape[1])
    for _ in range(SPLITS):
        mixed = actual[rng.permutation(wide.number)]
        noise += distance(mixed[:half], mixed[half:]) / (2 * SPLITS)
    of_limit = distance(wide.samples[on].losses, actual)
    ratio, error = growth(*([s.f - s.limit for s in p.samples.values()] for p in (narrow, wide)))
    missed_widely = (missed > LARGEST_NOISE * noise) & (missed > LARGEST_SHARE * of_limit)
    with np.errstate(divide="ignore", invalid="ignore"):
        failed = missed_widely | changes(ratio, error, wide.number)
        over, share = (np.where(missed == 0, 0.0, missed / size) for size in (noise, of_limit))
        return Check(ratio, over, share, failed)


def growth(narrow: list[np.ndarray], wide: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return 2 Var_2m/Var_m of deviations (pilot, step, …), summed over samples: 1 + O(1/m).

    The second array is the standard error of its logarithm.
    """

    def variance(parts: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        each = [d.reshape(*d.shape[:2], -1).astype(np.float64) for d in parts]
        squares = sum((np.square(d - d.mean(0)).sum(-1) for d in each), np.zeros(each[0].shape[:2]))
        count = len(squares)
        found = squares.sum(0) / (count - 1)
        return found, squares.std(0, ddof=1) / np.where(found > 0, found, 1.0) / count**0.5

    (before, error), (after, error_after) = variance(narrow), variance(wide)
    still = (before == 0) & (after == 0)  # as at initialisation, given the initial outputs
    with np.errstate(divide="ignore"):
        ratio = np.where(still, 1.0, 2 * after / np.where(still, 1.0, before))
    return ratio, np.hypot(error, error_after)


def changes(ratio: np.ndarray, error: np.ndarray, count: int) -> np.ndarray:
    """Return where N Var is not the same at two widths.

    Few pilots, and deviations with long tails, change it by chance; unstable runs have long tails,
    too, so that a factor of two is too much for any.
    """
    by_chance = np.clip(3 * error, LARGEST_CHANGE, np.log(2))
    with np.errstate(divide="ignore"):
        return ~(np.abs(np.log(ratio)) <= np.maximum(by_chance, CHANGE_BY_CHANCE / count**0.5))
