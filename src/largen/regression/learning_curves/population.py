"""Errors of n samples and k features of a population: M → ∞ samples with given modes.

With eigenvalues λ_i, L_i = λ_i/(λ_i + κ), z = Σ L_i, a = 1 − z/k, μ = aκ, and between two ridges
q₁₂ = Σ L_i₁L_i₂, s₁₂ = Σ λ_i/((λ_i + κ₁)(λ_i + κ₂)),

    δ = μ(n − z),
    E = [Σ v_i²(1 − L_i₁)(1 − L_i₂) + κ₁κ₂s₁₂/(k − q₁₂) Σ v_i²λ_i/((λ_i + κ₁)(λ_i + κ₂)) + σ²]
        / (1 − d/n),    d = (μ₁z₁ − μ₂z₂)/(μ₁ − μ₂) = z₁ − a₂κ₂s₁₂/(1 − q₁₂/k),

and E(1 − z₁/n)(1 − z₂/n) on the samples: the limit of
:mod:`largen.regression.learning_curves.medium`. At equal ridges it is Simon et al. (2023).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from largen.regression.learning_curves.effective_ridge import effective_ridge, effective_ridges
from largen.regression.learning_curves.medium import mirrored
from largen.regression.learning_curves.modes import Modes


@dataclass(frozen=True)
class Population(Modes):
    """Eigenvalues λ_i of a kernel's operator, and the mean squares of targets in its modes."""

    power: np.ndarray  # v_i², (mode, output)
    noise: float  # σ²

    def spare(self, total: Any) -> Any:
        """Return 1: (M − df)/M for M → ∞."""
        return np.ones_like(total)

    def spare_slope(self, slope: Any) -> Any:
        """Return 0, the derivative of the same."""
        return np.zeros_like(slope)


@dataclass(frozen=True)
class PopulationMedium:
    """What errors depend on at pairs of effective ridges; the same shape for all, outputs last."""

    noise: float  # σ²
    first: np.ndarray  # κ₁
    second: np.ndarray  # κ₂
    learned: tuple[np.ndarray, np.ndarray]  # z₁, z₂
    once: np.ndarray  # s₁₂
    twice: np.ndarray  # q₁₂
    missed: np.ndarray  # Σ v²(1 − L₁)(1 − L₂), (..., output)
    kept: np.ndarray  # Σ v²λ/((λ + κ₁)(λ + κ₂)), (..., output)

    def ridge(self, n: Any, width: Any) -> np.ndarray:
        """Return the δ of κ₁."""
        z = self.learned[0]
        return self.first * (1 - z * (1 / width)) * (n - z)

    def errors(self, n: Any, width: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return products of residuals on new samples and on n samples, (..., output)."""
        (z, z_second), share = self.learned, 1 / width
        whole, mixed = 1 - self.twice * share, self.second * self.once
        freedom = z - (1 - z_second * share) * mixed / whole
        scattered = (self.first * mixed * share / whole)[..., None] * self.kept
        outside = (self.missed + scattered + self.noise) / (1 - freedom / n)[..., None]
        rest = (1 - z / n) * (1 - z_second / n)
        return outside, rest[..., None] * outside


def densities(
    population: Population, n: float, ridges: np.ndarray, width: float = np.inf
) -> tuple[np.ndarray, np.ndarray]:
    """Return products of residuals on new samples and on n samples, (ridge, ridge, output)."""
    if np.iscomplexobj(ridges):
        kappa = effective_ridges(population, n, ridges, width)
    else:
        kappa = np.array([effective_ridge(population, n, float(d), width) for d in ridges])
    left, share, power = population.unlearned(kappa), population.shares(kappa), population.power
    z = (1 - left).sum(axis=1)
    return PopulationMedium(
        noise=population.noise,
        first=kappa[:, None],
        second=mirrored(kappa),
        learned=(z[:, None], mirrored(z)),
        once=share @ mirrored(share).T,
        twice=(1 - left) @ mirrored(1 - left).T,
        missed=np.einsum("jm,km,mo->jko", left, mirrored(left), power, optimize=True),
        kept=np.einsum("jm,km,mo->jko", share, mirrored(share), power, optimize=True),
    ).errors(n, width)


def at_points(population: Population, kappa: np.ndarray) -> PopulationMedium:
    """Return what errors depend on at single real effective ridges, paired with themselves."""
    left, share, power = population.unlearned(kappa), population.shares(kappa), population.power
    z = (1 - left).sum(axis=1)
    return PopulationMedium(
        noise=population.noise,
        first=kappa,
        second=kappa,
        learned=(z, z),
        once=(share**2).sum(axis=1),
        twice=((1 - left) ** 2).sum(axis=1),
        missed=left**2 @ power,
        kept=share**2 @ power,
    )
