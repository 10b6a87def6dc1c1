"""Figure 6: the tangent kernel of residual networks of growing depth, at initialisation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import xarray
from matplotlib.figure import Figure as Picture

import largen as lg
from largen.experiments import fit_exponent
from papers.claims import Claim
from papers.images import Images
from papers.record import Figure, Found, Part, Report
from papers.verdicts import equals


class Settings(NamedTuple):
    """Depths, and angles between 0 and π."""

    depths: tuple[int, ...]
    angles: int


def _kernels(settings: Settings) -> xarray.Dataset:
    angles = np.linspace(0, np.pi, settings.angles)
    circle = np.stack([np.cos(angles), np.sin(angles)], 1)
    param = lg.depth_mup()

    def kernel(blocks: float) -> np.ndarray:
        return lg.ntk_kernel(lg.residual_mlp(blocks, "relu"), circle[:1], circle, param=param)[0]

    finite = np.stack([kernel(blocks) for blocks in settings.depths])
    variables = {"finite": (("depth", "angle"), finite), "limit": ("angle", kernel(math.inf))}
    return xarray.Dataset(variables, {"depth": list(settings.depths), "angle": angles})


def _parts(settings: Settings, images: Mapping[str, Images]) -> Sequence[Part]:
    def compute(report: Report) -> xarray.Dataset:
        return _kernels(settings)

    return [Part("kernels", f"NTK of relu over the angle {settings}", 1.0, compute)]


def _errors(found: Found) -> tuple[np.ndarray, np.ndarray]:
    """Return depths, and mean squared distances of kernels from the limit."""
    data = found["kernels"]
    return data["depth"].values, ((data["finite"] - data["limit"]) ** 2).mean("angle").values


def claims(settings: Settings, found: Found) -> list[Claim]:
    """Return the claim that the squared error falls as 1/L²."""
    depths, squares = _errors(found)
    law = fit_exponent(depths.astype(float), squares, 1e-6 * squares)
    return [
        equals(
            "infinite width: the square of the kernel's error falls with the depth as L^p, p",
            f"fitted power of the mean over angles, L = {depths[0]} to {depths[-1]} blocks",
            (2 * law.value, 2 * law.error),
            -2.0,
            0.1,
        )
    ]


def _draw(settings: Settings, found: Found) -> Picture:
    picture = Picture(figsize=(8, 3.4), layout="constrained")
    left, right = picture.subplots(1, 2)
    data = found["kernels"]
    for k, depth in enumerate(data["depth"].values):
        shade = 0.85 - 0.7 * k / len(data["depth"])
        left.plot(
            data["angle"], data["finite"].sel(depth=depth), color=str(shade), label=f"L = {depth}"
        )
    left.plot(data["angle"], data["limit"], "--", color="C0", label="L = ∞")
    left.set(xlabel=r"angle $\theta$", ylabel="tangent kernel", title="infinite width, relu")
    left.legend(fontsize=7)
    depths, squares = _errors(found)
    right.loglog(depths, squares, "o-", color="black", label="mean square over angles")
    right.loglog(depths, squares[0] * (depths[0] / depths) ** 2.0, ":", label=r"$L^{-2}$")
    right.set(xlabel="depth $L$", ylabel="square of the error")
    right.legend()
    return picture


FIGURE = Figure(
    name="001-6",
    title="The tangent kernel of residual networks approaches that of infinite depth",
    source="Bordelon et al., Depthwise hyperparameter transfer in residual networks, Figure 6",
    images=(),
    settings=Settings((4, 8, 16, 32, 64, 128, 256), 65),
    fast=Settings((4, 8, 16, 32, 64), 17),
    parts=_parts,
    claims=claims,
    draw=_draw,
    notes=(
        "at infinite width, where the paper has finite widths as well",
        "the error of opposite inputs falls more slowly: relu has a bend there",
    ),
)
