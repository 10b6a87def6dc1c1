"""Whether averages over sites can be trusted, and what to do where they cannot."""

from __future__ import annotations

from typing import Any

import numpy as np

from largen.errors import InvalidInput, NumericalFailure

LOWEST_EFFECTIVE = 0.01
NEGLIGIBLE = 1e-6  # weight of a site, relative to the largest
# Sites for each sample. Where φ' jumps, errors of the tilts grow with pairs of samples.
SITES_OF_SAMPLE, SITES_OF_PAIR = 16, 4


def status_of(effective: float, settled: bool, otherwise: str = "ok") -> str:
    """Return the status of a posterior with an effective fraction of sites."""
    if not settled:
        return "not_converged"
    return "low_effective_samples" if effective < LOWEST_EFFECTIVE else otherwise


def barrier_of(exponents: np.ndarray, weights: np.ndarray) -> float:
    """Return half the largest exponent φᵀΛφ of a site with weight."""
    return float(exponents[weights > NEGLIGIBLE * weights.max()].max() / 2)


def checked(found: Any, throw: bool) -> Any:
    """Return a posterior whose status does not say that it failed, or raise the failure."""
    more = "more sites of lg.regression.adaptive_posterior"
    if throw and found.status == "not_converged":
        raise NumericalFailure(
            "posterior: the iteration for the stationary point did not converge; take a larger "
            f"noise, a smaller gamma, or {more}.",
            found,
        )
    if throw and found.status == "low_effective_samples":
        samples, dimensions = found.x.shape
        raise NumericalFailure(
            f"posterior: only {found.effective_samples:.1%} of the sites carry the weight of the "
            f"tilted neurons, for {samples} samples in {dimensions} input dimensions at gamma="
            f"{found.equilibrium.gamma:g}. Take a smaller gamma, a larger noise, fewer samples or "
            f"directions of the inputs, or {more}; lg.regression.sample_posterior samples networks "
            "of a width with one hidden layer instead.",
            found,
        )
    return found


def check_sites(samples: int, sites: int, smooth: bool) -> None:
    """Refuse more samples than the sites have digits for."""
    enough = SITES_OF_SAMPLE * samples if smooth else SITES_OF_PAIR * samples**2
    if sites < enough:
        raise InvalidInput(
            f"x: the tilts of hidden layers are matrices of the samples; {samples} samples take at "
            f"least {enough} sites of lg.regression.adaptive_posterior, got {sites}."
        )
