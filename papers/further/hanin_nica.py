"""Hanin and Nica 2018: logarithms of Jacobians of relu networks are nearly Gaussian."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np
import xarray
from matplotlib.figure import Figure as Picture
from scipy.stats import kurtosis, norm, skew

import largen as lg
from papers.claims import Claim
from papers.record import Figure, Found, one_part
from papers.verdicts import WITHIN, equals, mean_of, near

SIGMA = 2**0.5
# Widths of hidden layers. The first two have the same Σ 1/n, one with unequal layers.
WIDTHS = ((100,) * 40, (75,) * 20 + (150,) * 20, (100,) * 10, (100,) * 20, (100,) * 30)
JACOBIAN = 20, 60  # hidden layers and width of networks of which J u is computed with weights


class Settings(NamedTuple):
    """Networks drawn without weights, and networks whose Jacobians are computed."""

    draws: int
    jacobians: int


def _beta(widths: Sequence[int]) -> float:
    return 5 * sum(1 / n for n in widths)


def _jacobians(draws: int) -> np.ndarray:
    """Return log |J u|² of networks with as many outputs as neurons, for u orthogonal to x."""
    layers, n = JACOBIAN
    net = lg.mlp(layers, "relu", weight_std=SIGMA)
    network = lg.networks.finite_network(net, lg.ntk(), width=n, inputs=n, outputs=n)
    x, u = np.eye(n, dtype=np.float32)[:2, None] * n**0.5

    @jax.jit
    def size(key):
        params = network.init(key)
        _, found = jax.jvp(lambda x: network.apply(params, x), (x,), (u,))
        return (found**2).mean() / SIGMA**2

    keys = [jax.random.fold_in(jax.random.key(0), i) for i in range(draws)]
    return np.log([float(size(key)) for key in keys])


def _compute(settings: Settings) -> xarray.Dataset:
    logs = []
    for k, widths in enumerate(WIDTHS):
        net = lg.mlp(len(widths), "relu", weight_std=SIGMA)
        S = lg.finite_width.sample_kernels(
            net, np.ones((1, 1)), width=widths, draws=settings.draws, key=k
        )
        logs.append(np.log(S[:, 0, 0] / SIGMA**2))
    return xarray.Dataset(
        {"log": (("net", "draw"), logs), "jacobian": ("other", _jacobians(settings.jacobians))}
    )


def _variance(logs: np.ndarray) -> tuple[float, float]:
    return mean_of((logs - logs.mean()) ** 2)


def claims(settings: Settings, found: Found) -> list[Claim]:
    """Return claims on the distribution of the logarithm of squared norms."""
    logs, jacobian = found["all"]["log"].values, found["all"]["jacobian"].values
    (first, own), (second, other) = (_variance(each) for each in logs[:2])
    ratio = second / first
    beta, draws = _beta(WIDTHS[0]), settings.draws
    where = f"of {draws} networks, L = 40, n = 100"
    layers, n = JACOBIAN
    wanted = _beta((n,) * layers) + 2 / n
    return [
        equals("the mean of log |Jx|² is −β/2 with β = 5 Σ 1/n", f"mean {where}",
               mean_of(logs[0]), -beta / 2, 0.05),
        equals("the variance of log |Jx|² is β", f"variance {where}", (first, own), beta, 0.1),
        equals("widths matter through Σ 1/n alone: the ratio of two variances at one Σ 1/n",
               "20 layers of width 75 and 20 of width 150, over 40 of width 100",
               (ratio, ratio * np.hypot(own / first, other / second)), 1.0, 0.1),
        near("log |Jx|² becomes Gaussian: its skewness", f"skewness {where}",
             (skew(logs[0]), (6 / draws) ** 0.5), 0.0, 0.15),
        near("log |Jx|² becomes Gaussian: its excess of kurtosis", f"kurtosis − 3 {where}",
             (kurtosis(logs[0]), (24 / draws) ** 0.5), 0.0, 0.15),
        equals("a vector orthogonal to the input is stretched alike: the variance of log |Ju|²",
               f"variance of {len(jacobian)} networks with weights, L = {layers}, n = {n}, "
               "with 2/n of the linear read-out", _variance(jacobian), wanted, 0.2),
    ]  # fmt: skip


def _draw(settings: Settings, found: Found) -> Picture:
    picture = Picture(figsize=(8.5, 3.3), layout="constrained")
    left, right = picture.subplots(1, 2)
    logs, beta = found["all"]["log"].values, _beta(WIDTHS[0])
    for each, label in zip(logs[:2], ("40 × 100", "20 × 75, 20 × 150"), strict=True):
        left.hist(each, 80, density=True, histtype="step", label=label)
    x = np.linspace(-7, 5, 200)
    left.plot(x, norm.pdf(x, -beta / 2, beta**0.5), color="black", label=r"$N(-\beta/2, \beta)$")
    left.set(xlabel=r"$\log |Jx|^2$", ylabel="density", xlim=(-7, 5))
    left.legend(fontsize=8)
    for widths, each in zip(WIDTHS, logs, strict=True):
        value, error = _variance(each)
        right.errorbar(_beta(widths) / 5, value, WITHIN * error, fmt="o", color="C0", ms=4)
    right.plot([0, 0.42], [0, 2.1], color="black", label=r"$\beta = 5\sum 1/n$")
    right.set(xlabel=r"$\sum_\ell 1/n_\ell$", ylabel=r"variance of $\log |Jx|^2$")
    right.legend(fontsize=8)
    return picture


FIGURE = Figure(
    name="1812.05994-log",
    title="Logarithms of norms of Jacobians of relu networks",
    source="Hanin and Nica, Products of many large random matrices and gradients in deep neural "
    "networks, arXiv 1812.05994",
    images=(),
    settings=Settings(20_000, 3000),
    fast=Settings(2000, 200),
    parts=one_part(f"relu Jacobians {WIDTHS} {JACOBIAN}", _compute),
    claims=claims,
    draw=_draw,
    notes=("x itself without weights, by its distribution at any width; J x = z for relu",),
)
