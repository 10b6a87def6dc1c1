"""Bordelon and Pehlevan 2022: self-consistent kernels of networks that learn features."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import xarray
from matplotlib.figure import Figure as Picture

import largen as lg
from papers.claims import Claim
from papers.record import Figure, Found, one_part
from papers.verdicts import draw_power, equals, exceeds, mean_of, near, power

GAMMA, STEPS, RATE = 1.5, 25, 0.5
WEAK = 0.05, 0.1  # γ₀ at which the leading order of kernels' movement is measured
X = np.random.default_rng(0).normal(size=(5, 4))
Y = np.sign(X[:, 0])


class Settings(NamedTuple):
    """Widths, and networks of each."""

    widths: tuple[int, ...]
    seeds: int


def _run(param: lg.scaling.Parameterization) -> lg.Run:
    net = lg.mlp(2, "tanh")
    return lg.Run(net, param, lg.Dataset(X, Y), optimizer=lg.gd(RATE), steps=STEPS)


def _alignment(kernels: np.ndarray) -> np.ndarray:
    """Return yᵀΦy/(|y|²|Φ|) of kernels (…, sample, sample)."""
    return np.einsum("...ij,i,j->...", kernels, Y, Y) / (
        (Y @ Y) * np.linalg.norm(kernels, axis=(-2, -1))
    )


def _moved(gamma: float) -> float:
    """Return how far the last feature kernel of a linear network moves at infinite width."""
    limit = lg.theories.solve_deep_linear(
        X @ X.T / 4, Y, hidden_layers=2, gamma=gamma, lr=0.3, steps=STEPS
    )
    kernels = limit.to_xarray()["feature_kernel"].values[:, -1]
    return float(np.linalg.norm(kernels[-1] - kernels[0]))


def _compute(settings: Settings) -> xarray.Dataset:
    limit = lg.solve(_run(lg.mean_field(GAMMA)))
    static = lg.solve(_run(lg.ntk()))
    wanted = limit.to_xarray()["feature_kernel"].values[-1]
    kernel, output, frozen, aligned, losses = [], [], [], [], np.zeros((0, STEPS + 1))
    for n in settings.widths:
        nets = lg.train(_run(lg.mean_field(GAMMA)), n, settings.seeds, n, record=["feature_kernel"])
        found = nets.to_xarray()["feature_kernel"].values
        kernel.append(mean_of(np.sqrt(np.mean((found[:, -1] - wanted) ** 2, axis=(1, 2, 3)))))
        for f, distances in ((limit.f_train, output), (static.f_train, frozen)):
            distances.append(mean_of(np.sqrt(np.mean((nets.f_train - f) ** 2, axis=(1, 2)))))
        losses = nets.loss_train
        before, after = np.moveaxis(_alignment(found[:, :, -1]), 1, 0)
        aligned.append(mean_of(after - before))
    axes = ("width", "what")
    return xarray.Dataset(
        {
            "kernel": (axes, kernel),
            "output": (axes, output),
            "static": (axes, frozen),
            "aligned": (axes, aligned),
            "moved": ("gamma", [_moved(gamma) for gamma in WEAK]),
            "loss": (("theory", "step"), [limit.loss_train, static.loss_train]),
            "losses": (("seed", "step"), losses),
        }
    )


def claims(settings: Settings, found: Found) -> list[Claim]:
    """Return claims that the field theory describes networks, and what its kernels do."""
    data, widths = found["all"], settings.widths
    where = f"{settings.seeds} networks each of widths {widths}, γ₀ = {GAMMA}"
    (own, error), (other, spread) = (data[name].values[-1] for name in ("output", "static"))
    ratio = other / own
    first, last = data["moved"].values
    exponent = np.log(last / first) / np.log(WEAK[1] / WEAK[0])
    return [
        near("feature kernels of networks come to the self-consistent ones by a power of the width",
             f"exponent in N of the distance after training, {where}",
             power(widths, data["kernel"].values), -0.5, 0.2),
        exceeds("the static tangent kernel fails where the field theory holds: ratio of distances",
                f"rms distance of outputs in training, static over field theory, N = {widths[-1]}",
                (ratio, ratio * np.hypot(error / own, spread / other)), 3.0),
        exceeds("feature kernels align with the targets: increase of the alignment",
                f"of yᵀΦy/|y|²|Φ| in the last layer, N = {widths[-1]}",
                data["aligned"].values[-1], 0.0),
        equals("kernels move by the order γ₀² at small γ₀: exponent",
               f"exponent in γ₀ between {WEAK[0]} and {WEAK[1]}, linear networks of infinite width",
               (exponent, 0.0), 2.0, 0.05),
    ]  # fmt: skip


def _draw(settings: Settings, found: Found) -> Picture:
    picture = Picture(figsize=(8.5, 3.3), layout="constrained")
    left, right = picture.subplots(1, 2)
    data = found["all"]
    left.semilogy(data["losses"].values.T, color="C0", alpha=0.25, lw=0.8)
    left.plot([], [], color="C0", label=f"networks, $N = {settings.widths[-1]}$")
    for line, style, label in zip(
        data["loss"].values, ("-", "--"), ("field theory", "static kernel"), strict=True
    ):
        left.plot(line, style, color="black", label=label)
    left.set(xlabel="step", ylabel="loss")
    left.legend(fontsize=8)
    draw_power(right, settings.widths, data["kernel"].values, -0.5, label="feature kernels")
    draw_power(right, settings.widths, data["output"].values, -0.5, label="outputs")
    right.set(xlabel="width $N$; dotted: $N^{-1/2}$", ylabel="distance from the field theory")
    right.legend(fontsize=8)
    return picture


FIGURE = Figure(
    name="2205.09653-kernels",
    title="Kernels of networks that learn features, and their self-consistent equations",
    source="Bordelon and Pehlevan, Self-consistent dynamical field theory of kernel evolution in "
    "wide neural networks, arXiv 2205.09653",
    images=(),
    settings=Settings((64, 256, 1024), 24),
    fast=Settings((32, 128), 8),
    parts=one_part(f"field theory {GAMMA} {STEPS} {RATE} {WEAK}", _compute),
    claims=claims,
    draw=_draw,
    notes=("tanh, two hidden layers, five inputs; gradient descent, of which the paper has flow",),
)
