"""Monte Carlo estimates of kernels, with standard errors."""

from __future__ import annotations

from typing import Any, NamedTuple

from largen.results import brief, fields_over, in_notebooks, plot_result, save_result

PAIR = ("sample", "sample_2")


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
    to_xarray = fields_over(nngp=PAIR, ntk=PAIR, nngp_error=PAIR, ntk_error=PAIR)
    save = save_result
    plot = plot_result
