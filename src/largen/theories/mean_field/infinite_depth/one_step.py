"""One step of gradient descent in a linear residual network of infinite depth, in closed form."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from largen.arrays import finite_result
from largen.bibliography import cites
from largen.errors import InvalidInput
from largen.results import brief, fields_over, in_notebooks, plot_result, save_result
from largen.scalars import LARGEST, flag, integer, real

MOST_POINTS = 10**6


@cites("bordelon2023depthwise")
class InfiniteDepthStep(NamedTuple):
    """What :func:`infinite_depth_one_step` returns.

    Attributes
    ----------
    tau
        The depth τ = l/L, shape ``(points,)``.
    feature_before, feature_after
        H₀ and H₁, of the same shape.
    gradient_before, gradient_after
        G₀ and G₁.
    response
        A(τ), from the gradients before the step to the features after it.
    f
        The output after the step.
    """

    tau: np.ndarray
    feature_before: np.ndarray
    feature_after: np.ndarray
    gradient_before: np.ndarray
    gradient_after: np.ndarray
    response: np.ndarray
    f: float

    __repr__ = brief
    _repr_html_ = in_notebooks
    to_xarray = fields_over(
        tau=("tau",),
        feature_before=("tau",),
        feature_after=("tau",),
        gradient_before=("tau",),
        gradient_after=("tau",),
        response=("tau",),
    )
    save = save_result
    plot = plot_result


def infinite_depth_one_step(
    y: float,
    *,
    gamma: float = 1.0,
    lr: float = 1.0,
    kernel: float = 1.0,
    read_in: bool = True,
    read_out: bool = True,
    points: int = 101,
) -> InfiniteDepthStep:
    r"""Kernels of a linear residual network of infinite depth on one sample, after one step.

    The branches are L^(−1/2) Wˡhˡ/√N and N and L are infinite. With q = x·x/D, k = η₀²γ₀²y²,
    s = 1 − τ, and ρ = 1, ρ' = 1 for a read-in and a read-out that train, else 0,

        H₀ = q e^τ,   G₀ = e^s,   A = η₀γ₀ y q e^τ (τ + ρ),
        H₁ = q e^τ {1 + ρ k e q + 2 e k q [τ³/3 + τ²/2 + ρ(τ² + 2τ)]},
        G₁ =   e^s {1 + ρ'k e q + 2 e k q [s³/3 + s²/2 + ρ'(s² + 2s)]},
        f₁ = η₀ y q e (1 + ρ + ρ')

    Bordelon et al., *Depthwise hyperparameter transfer in residual networks*, have H₁ for ρ = 0
    and q = 1. Their (9) and (101) read H₁ = e^τ{1 + 2k[τ³/3 + τ²/2 + (1 + e⁻¹)(τ²e^τ − τe^τ +
    e^τ − 1)]}, (101) without y²; they follow from G₀ = e^(−τ) + 1 − e⁻¹ in (94) and (100), where
    −∂G₀ = G₀ and G₀(1) = 1 give e^(1−τ). Their tangent kernel (8), ∫GH dτ, lacks the contribution
    of the read-out, so that f₁ would have no ρ'.

    Parameters
    ----------
    y
        The target.
    gamma, lr
        γ₀ and η₀.
    kernel
        q.
    read_in, read_out
        Whether the read-in and the read-out train.
    points
        Number of points of the grid of τ.

    Returns
    -------
    InfiniteDepthStep
        Kernels before and after, the response function and the output.

    Raises
    ------
    InvalidInput
        For numbers out of range.

    Examples
    --------
    >>> step = infinite_depth_one_step(0.5, points=2)
    >>> step.feature_after.round(3).tolist(), round(step.f, 3)
    ([1.68, 18.728], 4.077)
    """
    y, q = real("y", y), real("kernel", kernel, above=0)
    lr, gamma = real("lr", lr, above=0), real("gamma", gamma, above=0)
    root = lr * gamma * y
    if max(abs(root), q) > LARGEST:
        raise InvalidInput(f"lr: lr · gamma · y = {root:g} is too large: its square overflows.")
    first, last = float(flag("read_in", read_in)), float(flag("read_out", read_out))
    tau = np.linspace(0, 1, integer("points", points, at_least=2, at_most=MOST_POINTS))
    size = np.e * root**2 * q

    def grown(x: np.ndarray, trains: float) -> np.ndarray:
        change = x**3 / 3 + x**2 / 2 + trains * (x**2 + 2 * x)
        return 1 + size * (trains + 2 * change)

    before, behind = q * np.exp(tau), np.exp(1 - tau)
    found = InfiniteDepthStep(
        tau,
        before,
        before * grown(tau, first),
        behind,
        behind * grown(1 - tau, last),
        root * before * (tau + first),
        lr * y * q * np.e * (1 + first + last),
    )
    finite_result("infinite_depth_one_step", found)
    return found
