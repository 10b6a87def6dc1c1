"""Parameterizations by name, and their power of depth."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from largen.errors import InvalidInput, one_of
from largen.parameterizations import (
    Parameterization,
    complete_p,
    depth_mup,
    mean_field,
    mup,
    ntk,
    standard,
)
from largen.parameterizations.exponents import exact

SCHEMES = {
    "standard": standard,
    "ntk": ntk,
    "mean_field": mean_field,
    "mup": mup,
    "depth_mup": depth_mup,
    "complete_p": complete_p,
}


def scheme_of(scheme: Any, alpha: Any = None) -> Parameterization:
    """Return a scheme from its name, with residual branches l^(−α) if α is given.

    With gradient descent the rates within branches then have the factor l^(2α−1) (Bordelon et al.,
    Table 1, for α = ½), since L branches together change the features by L·l^(−α)·η·l^(−α).

    >>> scheme_of(("mup", "1/2")).branch == scheme_of("depth_mup").branch
    True
    """
    if isinstance(scheme, tuple) and len(scheme) == 2:
        scheme, alpha = scheme
    if isinstance(scheme, Parameterization):
        param = scheme
    else:
        param = SCHEMES[one_of("scheme", scheme, SCHEMES)]()
    if param.reference is not None:
        raise InvalidInput(f"scheme: {param} has a reference network; here the base model is one.")
    if alpha is None:
        return param
    power = exact("alpha", alpha)
    return replace(param, name=f"{param.name} α={power}", branch=power, branch_rate=2 * power - 1)


def of_repeated_blocks(param: Parameterization) -> Parameterization:
    """Return a scheme for branches of one block that is applied again and again.

    Random branches of l blocks add up to l^½ times one of them, and those of one block to l times:
    its branches have 1/l.
    """
    return scheme_of(param, 1) if 0 < param.branch < 1 else param


def as_built(param: Parameterization) -> bool:
    """Whether the scheme leaves models as built; only the standard scheme does."""
    return replace(param, name="standard") == standard()
