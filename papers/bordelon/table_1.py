"""Table 1: standard, mean-field and depth-μP rows beside each other, in width and in depth."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import xarray
from matplotlib.figure import Figure as Picture

import largen as lg
from papers.claims import Claim
from papers.record import Figure, Found, one_part
from papers.verdicts import draw_power, exceeds, mean_of, near, power

ROWS = {"SP": lg.standard(), "μP": lg.mean_field(), "μP with branches 1/√L": lg.depth_mup()}
STANDARD, MEAN_FIELD, OURS = ROWS
RNG = np.random.default_rng(0)
DATA = lg.Dataset(RNG.standard_normal((4, 6)), np.array([1.0, -1.0, 1.0, -1.0]))
LR, STEPS = 0.2, 3
QUANTITIES = ("features", "tangent", "moved")


class Settings(NamedTuple):
    """Sizes and networks: widths at the first depth, depths at the first width."""

    widths: tuple[int, ...]
    depths: tuple[int, ...]
    seeds: int


def _measured(row: str, width: int, depth: int, seeds: int) -> list[tuple[float, float]]:
    """Return |Φ| and the tangent kernel's trace at the start, and |ΔΦ|/|Φ| of a few steps."""
    # Only the start is of interest where features or outputs grow beyond bounds.
    lr = LR if row == OURS else 1e-9
    run = lg.Run(
        lg.residual_mlp(depth, "relu"), ROWS[row], DATA, optimizer=lg.gd(lr), steps=STEPS
    )  # fmt: skip
    nets = lg.train(run, width=width, seeds=seeds, record=["feature_kernel", "ntk"])
    kernel = nets.feature_kernel[:, :, -1]
    size = np.linalg.norm(kernel, axis=(-2, -1))
    change = np.linalg.norm(kernel[:, -1] - kernel[:, 0], axis=(-2, -1)) / size[:, 0]
    tangent = np.trace(nets.ntk[:, 0], axis1=-2, axis2=-1)
    return [mean_of(size[:, 0]), mean_of(tangent), mean_of(change)]


def _compute(settings: Settings) -> xarray.Dataset:
    n, l, seeds = settings.widths[0], settings.depths[0], settings.seeds
    over = {
        "width": [[_measured(row, N, l, seeds) for N in settings.widths] for row in ROWS],
        "depth": [[_measured(row, n, L, seeds) for L in settings.depths] for row in ROWS],
    }
    return xarray.Dataset(
        {f"over_{axis}": (("row", axis, "which", "what"), values) for axis, values in over.items()},
        {"row": list(ROWS), "which": list(QUANTITIES)},
    )


def claims(settings: Settings, found: Found) -> list[Claim]:
    """Return claims on powers of width and depth in which features and outputs move."""
    data = found["all"]
    sizes = {"width": settings.widths, "depth": settings.depths}

    def pairs(row: str, which: str, axis: str) -> np.ndarray:
        return data[f"over_{axis}"].sel(row=row, which=which).values

    def measured(axis: str) -> str:
        return f"power of the {axis}, {axis}s {sizes[axis]}, {settings.seeds} networks each"

    def stays(row: str, which: str, axis: str, words: str) -> Claim:
        found_power = power(sizes[axis], pairs(row, which, axis))
        return near(f"{row}: {words}: power", measured(axis), found_power, 0.0, 0.2)

    first, last = (pairs(MEAN_FIELD, "features", "depth")[k] for k in (0, -1))
    blocks = sizes["depth"][-1] - sizes["depth"][0]
    grown = float(np.log(last[0] / first[0])) / blocks
    error = float(np.hypot(first[1] / first[0], last[1] / last[0])) / blocks
    step = "outputs begin to move independently of the"
    return [
        *(stays(OURS, "tangent", axis, f"{step} {axis}") for axis in sizes),
        *(stays(OURS, "moved", axis, f"features move independently of the {axis}")
          for axis in sizes),
        stays(MEAN_FIELD, "tangent", "width", f"{step} width"),
        exceeds(f"{MEAN_FIELD}: without 1/√L features grow exponentially with the depth",
                "growth of log |Φ| a block at initialisation", (grown, error), 0.1),
        exceeds(f"{STANDARD}: at one rate the outputs' first step grows with the width: its power",
                measured("width"), power(sizes["width"], pairs(STANDARD, "tangent", "width")), 0.5),
    ]  # fmt: skip


def _draw(settings: Settings, found: Found) -> Picture:
    picture = Picture(figsize=(8.5, 3.3), layout="constrained")
    for axes, axis in zip(picture.subplots(1, 2), ("width", "depth"), strict=True):
        sizes = settings.widths if axis == "width" else settings.depths
        for row in ROWS:
            pairs = found["all"][f"over_{axis}"].sel(row=row, which="tangent").values
            draw_power(axes, sizes, pairs, 1.0 if (row, axis) == (STANDARD, "width") else 0.0,
                       label=row)  # fmt: skip
        axes.set(xlabel=axis, ylabel="trace of the tangent kernel")
        axes.legend(fontsize=8)
    return picture


FIGURE = Figure(
    name="001-T1",
    title="Table 1: three parameterizations in width and depth",
    source="Bordelon et al., Depthwise hyperparameter transfer in residual networks, Table 1",
    images=(),
    settings=Settings((128, 256, 512), (8, 16, 32), 128),
    fast=Settings((32, 64, 128), (4, 8, 16), 48),
    parts=one_part("rows of Table 1, tangent kernels, depths at the first width", _compute),
    claims=claims,
    draw=_draw,
    notes=(
        "residual relu networks on four samples; the table has no numbers, its claim is in the "
        "text: features and predictions move independently of width and depth in the last column",
        "outputs begin to move by the tangent kernel, with the rates of the row; |ΔΦ|/|Φ| of the "
        "last hidden layer is that of three steps",
        "sizes and networks were raised until the claims were decided; a first, smaller run "
        "measured the first step of the outputs in place of the tangent kernel",
    ),
)
