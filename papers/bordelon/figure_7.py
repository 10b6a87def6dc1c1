"""Figure 7: features of a linear residual network of infinite depth after one step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import xarray
from matplotlib.figure import Figure as Picture

import largen as lg
from papers.claims import Claim
from papers.images import Images
from papers.record import Figure, Found, Part, Report
from papers.verdicts import WITHIN, equals, mean_of

RATE, TARGET = 0.5, 1.0
STEP = (RATE * TARGET) ** 2  # k = η₀²γ₀²y² with γ₀ = 1


class Settings(NamedTuple):
    """Depths that double, at infinite width; number, width and depth of the finite networks."""

    depths: tuple[int, ...]
    width: int
    blocks: int
    networks: int


def _run(blocks: float) -> lg.Run:
    param = lg.depth_mup().with_rates({"input": 0.0})
    data = lg.Dataset(np.ones((1, 1)), np.array([TARGET]))
    net = lg.residual_mlp(blocks, "linear")  # type: ignore[arg-type]
    return lg.Run(net, param, data, optimizer=lg.gd(RATE), steps=1)


def _parts(settings: Settings, images: Mapping[str, Images]) -> Sequence[Part]:
    def solved(report: Report) -> xarray.Dataset:
        ends = []
        for blocks in settings.depths:
            limit = lg.solve(_run(blocks), theory=lg.theories.DeepMeanField(method="closed"))
            ends.append(limit.feature_kernel[:, -1, 0, 0])
        return xarray.Dataset(
            {"end": (("depth", "step"), np.stack(ends))}, {"depth": list(settings.depths)}
        )

    def trained(report: Report) -> xarray.Dataset:
        nets = lg.train(
            _run(settings.blocks),
            width=settings.width,
            seeds=settings.networks,
            key=0,
            record=["feature_kernel"],
        )
        profile = nets.feature_kernel[..., 0, 0]
        tau = np.arange(profile.shape[2]) / settings.blocks
        return xarray.Dataset({"kernel": (("seed", "step", "tau"), profile)}, {"tau": tau})

    sizes = f"width {settings.width}, {settings.blocks} blocks, {settings.networks} networks"
    return [
        Part("solved", f"linear, one step, infinite width, {settings.depths}", 1.0, solved),
        Part("trained", f"linear, one step, {sizes}", 2.0, trained),
    ]


def printed(tau: np.ndarray) -> np.ndarray:
    """Return H₁(τ) of the paper's (9), with G₀ = e^(−τ) + 1 − e⁻¹."""
    inner = tau**2 * np.exp(tau) - tau * np.exp(tau) + np.exp(tau) - 1
    return np.exp(tau) * (1 + 2 * STEP * (tau**3 / 3 + tau**2 / 2 + (1 + np.exp(-1)) * inner))


def claims(settings: Settings, found: Found) -> list[Claim]:
    """Return claims on the convergence of kernels and on their limit."""
    depths, end = found["solved"]["depth"].values, found["solved"]["end"].values
    exact = lg.theories.infinite_depth_one_step(TARGET, lr=RATE, read_in=False)
    off = np.abs(end[:, 1] - end[:, 0] - (exact.feature_after - exact.feature_before)[-1])
    slopes = np.diff(np.log(off)) / np.diff(np.log(depths))
    # Where off = a/L (1 + b/L + …), slopes between L and 2L are -1 + O(1/L): that part is removed.
    *_, before, power = 2 * slopes[1:] - slopes[:-1]
    limit = float(np.polyfit(1 / depths, end[:, 1], len(depths) - 1)[-1])  # at 1/L = 0
    kernel = found["trained"]["kernel"].values
    share = kernel[:, 1, -1] / kernel[:, 0, -1] - 1
    there = end[list(depths).index(settings.blocks)]
    wanted = there[1] / there[0] - 1
    where = f"L = {depths[0]} to {depths[-1]} at infinite width"
    nets = f"{settings.networks} networks of width {settings.width}, {settings.blocks} blocks"
    return [
        equals(
            "H₁ − H₀ at τ = 1 approaches a limit as L^p, p",
            f"{where}, extrapolated in 1/L, with the change by the last doubling",
            (power, abs(power - before) / WITHIN),
            -1,
            0.1,
        ),
        equals("H₁(1), from G₀ = e^(1−τ)", where, (limit, 0.0), exact.feature_after[-1], 0.01),
        equals("H₁(1) as printed in (9)", where, (limit, 0.0), float(printed(np.ones(1))[0]), 0.01),
        equals(
            "(H₁ − H₀)/H₀ of the last layer, as at infinite width",
            nets,
            mean_of(share),
            wanted,
            0.15,
        ),
    ]


def _draw(settings: Settings, found: Found) -> Picture:
    picture = Picture(figsize=(5, 3.6), layout="constrained")
    axes = picture.subplots()
    exact = lg.theories.infinite_depth_one_step(TARGET, lr=RATE, read_in=False)
    kernel = found["trained"]["kernel"]
    for step, colour in ((0, "C0"), (1, "C3")):
        mean, spread = kernel.isel(step=step).mean("seed"), kernel.isel(step=step).std("seed")
        axes.fill_between(kernel["tau"], mean - spread, mean + spread, color=colour, alpha=0.3)
        axes.plot(
            kernel["tau"], mean, color=colour, label=f"networks, {'after' if step else 'before'}"
        )
    axes.plot(exact.tau, exact.feature_before, "k--", label="infinite width and depth")
    axes.plot(exact.tau, exact.feature_after, "k--")
    axes.plot(exact.tau, printed(exact.tau), ":", color="gray", label="(9) as printed")
    axes.set(xlabel=r"depth $\tau = l/L$", ylabel=r"$H(\tau)$", title="linear, one step")
    axes.legend(fontsize=7)
    return picture


FIGURE = Figure(
    name="001-7",
    title="Features of a linear residual network before and after one step",
    source="Bordelon et al., Depthwise hyperparameter transfer in residual networks, Figure 7",
    images=(),
    settings=Settings((16, 32, 64, 128), 400, 32, 32),
    fast=Settings((8, 16, 32, 64), 128, 16, 64),
    parts=_parts,
    claims=claims,
    draw=_draw,
    notes=("one sample, the read-in fixed as in (9); the paper's width is 1000",),
)
