"""The posterior of linear networks, in the limit and exactly at every width."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jax.typing import ArrayLike

from largen.bibliography import cites
from largen.errors import InvalidInput, NoTheory, NumericalFailure
from largen.interrupts import interruptible
from largen.kernels.tiles import check_size
from largen.regression.equilibrium.linear_modes import Branch, Modes
from largen.regression.equilibrium.network import Equilibrium, width_of
from largen.regression.equilibrium.predictions import (
    AdaptivePrediction,
    at_any_number,
    shaped,
    test_inputs,
)
from largen.scalars import flag, integer

WIDEST = 10**8  # above it the grid of log Q does not resolve its density
LARGEST_CONDITION = 1e12


@cites("hanin2023bayesian", "li2021statistical", "vanmeegen2024coding")
@dataclass(frozen=True, eq=False, repr=False)
class DeepLinearPosterior:
    """The posterior of a linear network with moving features; see :func:`adaptive_posterior`.

    Attributes
    ----------
    equilibrium
        The network as it was read: its depth, γ₀ and standard deviations.
    x, y, noise
        Training samples, targets, and κ of each sample.
    dual
        α = (y − f)/κ in the limit.
    branches
        All minima (scale, action) of the action, the lowest first, which is the limit. From two
        hidden layers on there may be two: a first-order transition in γ₀ or κ.
    action
        S of the limit, log p(y) = −N S + O(1).
    feature_kernel
        The kernel of the last hidden layer under the posterior, (sample, sample).
    prior_kernel
        The NNGP kernel.
    status
        ``"ok"``, or ``"several_branches"``.
    """

    equilibrium: Equilibrium
    x: np.ndarray
    y: np.ndarray
    noise: np.ndarray
    dual: np.ndarray
    branches: tuple[Branch, ...]
    feature_kernel: np.ndarray
    prior_kernel: np.ndarray
    modes: Modes
    units: np.ndarray

    @property
    def scale(self) -> float:
        """r = Φˡ/Φˡ⁻¹ in the learned direction, equal in all layers; 1 if features do not move."""
        return self.branches[0].scale

    @property
    def action(self) -> float:
        """S of the limit."""
        return self.branches[0].action

    @property
    def status(self) -> str:
        """``"ok"``, or ``"several_branches"``."""
        return "ok" if len(self.branches) == 1 else "several_branches"

    def log_likelihood(self, width: int) -> float:
        """Return log p(y) of networks of a width, exactly.

        log ∫ p(Q) N(y; 0, (QK + κ)/(γ₀²N)) dQ with Q = Π_l χ²_N/N (Hanin and Zlokapa 2023).

        Parameters
        ----------
        width
            N, the number of neurons of each hidden layer.
        """
        neurons = integer("width", width, at_least=1, at_most=WIDEST)
        evidence = self.modes.at_width(neurons, self.branches)[1]
        return evidence - float(np.sum(np.log(self.units)))

    @interruptible()
    @at_any_number
    def predict(
        self, x_test: ArrayLike, *, covariance: bool = False, width: int | None = None
    ) -> AdaptivePrediction:
        """Return mean and variance of the outputs at test samples, without the targets' noise.

        With * for test samples and the prior's kernel K, averages over the law of Q,

            ⟨f_*⟩ = ⟨Q K_*(QK + κ)⁻¹y⟩,
            γ₀²N Cov = ⟨Q K_** − Q² K_*(QK + κ)⁻¹K_*ᵀ⟩ + γ₀²N Cov_Q(Q K_*(QK + κ)⁻¹y).

        Parameters
        ----------
        x_test, covariance
            As in :meth:`largen.regression.Posterior.predict`.
        width
            N, for mean and variance at this width, exactly; None for the limit, with the variance
            of γ₀√N f.
        """
        covariance, neurons = flag("covariance", covariance), width_of(width, WIDEST)
        x, dtype = test_inputs(x_test, self.x)
        rows = self.x.astype(np.float64)
        check_size("x_test", len(x), len(rows) + covariance * len(x), 4, np.float64)
        cross = (self.equilibrium.kernel(x, rows) / self.units) @ self.modes.vectors
        if neurons is None:
            law = self.modes.limit(self.scale)
        else:
            law = self.modes.at_width(neurons, self.branches)[0]
        prior = self.equilibrium.kernel(x) if covariance else self.equilibrium.variances(x)
        mean, correction, found = law.moments(cross, self.modes.targets, prior)
        spread = found if covariance else None
        variance = np.maximum(np.diagonal(found) if covariance else found, 0)
        if neurons is not None:
            unit = self.equilibrium.gamma**2 * neurons
            variance, spread = variance / unit, None if spread is None else spread / unit
        return shaped(
            mean[:, None],
            variance[:, None],
            None if spread is None else spread[:, None, :, None],
            np.zeros((len(x), 1)),
            correction[:, None],
            single=self.y.ndim == 1,
            dtype=dtype,
        )

    def __repr__(self) -> str:
        return (
            f"DeepLinearPosterior({len(self.x)} samples, gamma={self.equilibrium.gamma:g}, "
            f"{self.status}, scale {self.scale:.4g}, {self.equilibrium.net!r})"
        )


def solve_linear(
    of: Equilibrium, x: np.ndarray, y: np.ndarray, noise: np.ndarray
) -> DeepLinearPosterior:
    """Return the posterior of a linear network with one output from checked arguments."""
    targets = y.reshape(len(y), -1)
    if targets.shape[1] > 1:
        raise NoTheory(
            "y: linear networks of several hidden layers are implemented for one output; condition "
            "on one column at a time, or take one hidden layer."
        )
    check_size("x", len(x), len(x), 4, np.float64)
    prior = of.kernel(x.astype(np.float64))
    # In units of the noise of each sample, if they differ.
    equal = np.all(noise == noise[0])
    units = np.ones(len(x)) if equal else np.sqrt(noise)
    ridge = float(noise[0]) if equal else 1.0
    if not units.all():
        raise InvalidInput("noise: wanted one number, or numbers that are all positive.")
    values, vectors = np.linalg.eigh(prior / np.outer(units, units))
    values = np.maximum(values, 0)
    if values[-1] + ridge > LARGEST_CONDITION * (values[0] + ridge):
        raise NumericalFailure(
            f"posterior: the kernel of {len(x)} samples in {x.shape[1]} input dimensions plus "
            "noise is singular; take a larger noise."
        )
    modes = Modes(values, vectors, vectors.T @ (targets[:, 0] / units), ridge, of.gamma, of.hidden)
    branches = modes.branches()
    size = branches[0].scale ** of.hidden
    dual = vectors @ (modes.targets / (size * values + ridge)) / units
    along = prior @ dual
    gain = (size - 1) * np.outer(along, along) / max(float(dual @ along), 1e-300)
    return DeepLinearPosterior(
        of, x, y, noise, dual.reshape(y.shape), branches, prior + gain, prior, modes, units
    )
