"""Runs for Figure M.1: branches of four matrices that start at zero, and linear ones of any α."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import xarray

import largen as lg

LAYERS = 4  # K, matrices of a block
ZERO = 1e-6  # initial σ of a branch's last matrix, on which its rate does not depend
RNG = np.random.default_rng(0)
DATA = lg.Dataset(RNG.standard_normal((4, 5)), np.array([1.0, -1.0, 1.0, -1.0]))


def zero_branches(blocks: float, alpha: str, lr: float, steps: int, gamma: float) -> lg.Run:
    """Return a residual tanh network of blocks of four matrices, whose branches start at zero.

    Parameters
    ----------
    blocks, alpha
        L, and the exponent of the branches L^(−α).
    lr, steps, gamma
        η₀, the number of steps, and γ₀.
    """
    param = lg.abc(
        a=(0, 0, "1/2"), b=(0, 1, 0), c=(0, 1, 0), d="1/2", gamma=gamma,
        branch=alpha, branch_rate=2 * Fraction(alpha) - 1, std_in="init_std",
        name=f"branches L^-{alpha}",
    )  # fmt: skip
    phi = lg.Activation("tanh")
    inside = [phi, lg.Dense()] * (LAYERS - 1) + [phi, lg.Dense(weight_std=ZERO)]
    stack = lg.repeat(lg.Residual(lg.serial(*inside)), blocks)  # type: ignore[arg-type]
    net = lg.serial(lg.Dense(), stack, phi, lg.Dense())
    return lg.Run(net, param, DATA, optimizer=lg.gd(lr), steps=steps)


def linear(blocks: float, alpha: str) -> lg.Run:
    """Return a linear residual network with branches L^(−α), trained for a few steps."""
    half = "1/2"
    param = lg.abc(
        a=(0, half, half), b=0, c=0, d=half, branch=alpha,
        branch_rate=2 * Fraction(alpha) - 1, name=f"branches L^-{alpha}",
    )  # fmt: skip
    net = lg.residual_mlp(blocks, "linear")
    return lg.Run(net, param, DATA, optimizer=lg.gd(0.2), steps=4)


def linear_distances(alpha: str, depths: Sequence[int]) -> xarray.Dataset:
    """Return the RMS distance of the outputs from those of infinite depth, at infinite width."""
    limit = lg.solve(linear(np.inf, alpha)).f_train
    theory = lg.theories.DeepMeanField(method="closed")
    found = [lg.solve(linear(L, alpha), theory=theory).f_train - limit for L in depths]
    off = np.sqrt(np.mean(np.square(found), (1, 2)))
    return xarray.Dataset({"distance": ("depth", off)}, {"depth": list(depths)})
