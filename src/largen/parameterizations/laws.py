"""Laws of single weights at initialisation: symmetric, with variance one.

A weight starts as its rule's deviation times a number of one of these laws, each of which is an
odd, increasing function of a standard Gaussian number z. Exponents of the width are the same for
all of them (Golikov, *Towards a general theory of infinite-width limits of neural classifiers*,
App. A); limits are too where many weights add up, but not where single ones count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
from jax.scipy.special import erf, ndtr, ndtri

from largen.errors import one_of

ROLES = ("input", "hidden", "output", "bias")
GAUSSIAN = "gaussian"
# A Gaussian within two deviations, and the deviation that is left of it.
CUT, CUT_STD = 2.0, 0.8796256610342398

FROM_NORMAL: dict[str, Callable[[Any], Any]] = {
    GAUSSIAN: lambda z: z,
    "uniform": lambda z: 3**0.5 * erf(z / 2**0.5),
    "truncated": lambda z: ndtri(ndtr(-CUT) + (ndtr(CUT) - ndtr(-CUT)) * ndtr(z)) / CUT_STD,
    "sign": lambda z: jnp.where(z < 0, -jnp.ones_like(z), jnp.ones_like(z)),
}

Laws = tuple[tuple[str, str], ...]


def from_normal(law: str, z: Any) -> Any:
    """Return numbers of a law, with mean 0 and variance 1, from standard Gaussian ones."""
    return FROM_NORMAL[law](z)


def laws_of(law: Any) -> Laws:
    """Check: one law for all roles, or a law for each of some roles.

    Raises
    ------
    InvalidInput
        If a law or a role is not known.
    """
    given: dict[str, Any] = dict(law) if isinstance(law, Mapping) else dict.fromkeys(ROLES, law)
    for role, name in given.items():
        one_of("law", role, ROLES)
        one_of("law", name, FROM_NORMAL)
    return tuple((role, given[role]) for role in ROLES if given.get(role, GAUSSIAN) != GAUSSIAN)


def in_words(laws: Laws) -> str:
    """Return laws as text, such as ``"uniform weights"``."""
    names = {name for _, name in laws}
    if len(names) == 1 and len(laws) == len(ROLES):
        return f"{names.pop()} weights"
    return ", ".join(f"{name} {role}" for role, name in laws)
