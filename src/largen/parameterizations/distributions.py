"""Distributions of single weights at initialisation: symmetric, with variance one.

A weight starts as its rule's standard deviation times a number from one of these distributions. The
number is an odd, increasing function of a standard Gaussian number z. Exponents of the width are
the same for all distributions (Golikov, *Towards a general theory of infinite-width limits of
neural classifiers*, App. A). Limits are the same where many weights are summed, but not where they
depend on single weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
from jax.scipy.special import erf, ndtr, ndtri

from largen.errors import one_of

ROLES = ("input", "hidden", "output", "bias")
GAUSSIAN = "gaussian"

# A standard Gaussian cut off at two standard deviations, and the standard deviation after the cut.
CUT, CUT_STD = 2.0, 0.8796256610342398

FROM_NORMAL: dict[str, Callable[[Any], Any]] = {
    GAUSSIAN: lambda z: z,
    "uniform": lambda z: 3**0.5 * erf(z / 2**0.5),
    "truncated": lambda z: ndtri(ndtr(-CUT) + (ndtr(CUT) - ndtr(-CUT)) * ndtr(z)) / CUT_STD,
    "sign": lambda z: jnp.where(z < 0, -jnp.ones_like(z), jnp.ones_like(z)),
}

Distributions = tuple[tuple[str, str], ...]


def from_normal(distribution: str, z: Any) -> Any:
    """Map standard Gaussian numbers to a distribution of mean 0 and variance 1."""
    return FROM_NORMAL[distribution](z)


def checked_distributions(distribution: Any) -> Distributions:
    """Return the distribution of each role that is not Gaussian, from a name or a mapping."""
    by_role = isinstance(distribution, Mapping)
    given: dict[str, Any] = dict(distribution) if by_role else dict.fromkeys(ROLES, distribution)
    for role, name in given.items():
        one_of("distribution", role, ROLES)
        one_of("distribution", name, FROM_NORMAL)
    return tuple((role, given[role]) for role in ROLES if given.get(role, GAUSSIAN) != GAUSSIAN)


def in_words(distributions: Distributions) -> str:
    """Describe distributions in words, such as ``"uniform weights"``."""
    names = {name for _, name in distributions}
    if len(names) == 1 and len(distributions) == len(ROLES):
        return f"{names.pop()} weights"
    return ", ".join(f"{name} {role}" for role, name in distributions)
