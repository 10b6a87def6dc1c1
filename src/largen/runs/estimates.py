"""Monte Carlo estimates of kernels, with standard errors."""

from __future__ import annotations

from typing import Any, NamedTuple

from largen.results import brief, in_notebooks


class KernelEstimate(NamedTuple):
    """Means of kernels over independent draws, and their standard errors; (n1, n2) each.

    Attributes
    ----------
    nngp, ntk
        Means: of f(x)f(x') and of the tangent kernel over networks, or of kernels over draws of
        their random parts.
    nngp_error, ntk_error
        One standard error of each, from the spread over draws.
    """

    nngp: Any
    ntk: Any
    nngp_error: Any
    ntk_error: Any

    __repr__ = brief
    _repr_html_ = in_notebooks
