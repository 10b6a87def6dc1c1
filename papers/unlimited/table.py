"""Corrections to kernel and NTK of gelu networks at criticality, against sampled networks."""

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

VARIANCES = 1.98305826, 0.17292239  # of weights and biases, at gelu's half-stable point
X = np.array([[1.2, 0.3, -0.7, 0.4], [0.2, 1.0, 0.5, -1.1]])
QUANTITIES = ("kernel mean", "NTK mean", "kernel variance", "NTK variance")


class Settings(NamedTuple):
    """Widths, number of hidden layers, and number of networks drawn at each width."""

    widths: tuple[int, ...]
    layers: int
    draws: int

    def net(self) -> lg.layers.Layer:
        """Return the network."""
        weight, bias = np.sqrt(VARIANCES)
        return lg.mlp(self.layers, "gelu", weight_std=weight, bias_std=bias)


def _parts(settings: Settings, images: Mapping[str, Images]) -> Sequence[Part]:
    def part(n: int) -> Part:
        def compute(report: Report) -> xarray.Dataset:
            theory = lg.finite_width.width_corrections(settings.net(), X, width=n)
            drawn = lg.finite_width.sample_tangent_kernels(
                settings.net(), X, width=n, draws=settings.draws, key=n
            )
            assert theory.ntk is not None
            assert theory.ntk_shift is not None
            assert theory.ntk_covariance is not None
            rows = []
            i, j = theory.pairs.T
            for limit, shift, covariance, values in (
                (theory.kernel, theory.kernel_shift, theory.kernel_covariance, drawn.kernel),
                (theory.ntk, theory.ntk_shift, theory.ntk_covariance, drawn.ntk),
            ):
                mean = drawn.estimate(values)
                square = drawn.estimate((values - mean.mean) ** 2)
                variance = np.diagonal(covariance)
                rows.append((shift[i, j], (mean.mean - limit)[i, j], mean.error[i, j]))
                rows.append((variance, square.mean[i, j], square.error[i, j]))
            order = [rows[0], rows[2], rows[1], rows[3]]
            return xarray.Dataset(
                {"value": (("quantity", "what", "pair"), np.array(order))},
                {"quantity": list(QUANTITIES), "what": ["theory", "networks", "error"]},
            )

        return Part(f"width {n}", f"gelu {settings} {n}", float(n), compute)

    return [part(n) for n in settings.widths]


def _left(settings: Settings, found: Found, quantity: str) -> tuple[np.ndarray, np.ndarray]:
    """Return n times the relative error of the first-order correction, by width, with errors."""
    left, errors = [], []
    for n in settings.widths:
        value = found[f"width {n}"]["value"].sel(quantity=quantity)
        theory, seen, error = (value.sel(what=w).values for w in ("theory", "networks", "error"))
        largest = int(np.argmax(np.abs(theory)))
        left.append(n * (seen - theory)[largest] / theory[largest])
        errors.append(n * error[largest] / abs(theory[largest]))
    return np.array(left), np.array(errors)


def claims(settings: Settings, found: Found) -> list[Claim]:
    """Return claims that the error of each first-order correction falls by a further 1/width."""
    result = []
    for quantity in QUANTITIES:
        left, error = _left(settings, found, quantity)
        first, last = left[0] / settings.widths[0], left[-1] / settings.widths[-1]
        low, high = (float(abs(last) + s * 1.96 * error[-1] / settings.widths[-1]) for s in (-1, 1))
        falls = bool(abs(last) < abs(first) or low < 0)
        result.append(
            Claim(
                f"{quantity}: corrections of order 1/width are those of networks",
                f"relative difference at width {settings.widths[-1]}",
                float(abs(last)),
                max(low, 0.0),
                high,
                None if high - low > 0.5 else falls and low < 0.1,
            )
        )
    return result


def _draw(settings: Settings, found: Found) -> Picture:
    picture = Picture(figsize=(8, 2.6), layout="constrained")
    for axes, quantity in zip(picture.subplots(1, 4), QUANTITIES, strict=True):
        left, error = _left(settings, found, quantity)
        n = np.array(settings.widths)
        axes.errorbar(n, left / n, 1.96 * error / n, fmt="o")
        axes.axhline(0, color="gray", lw=0.8)
        axes.set(title=quantity, xlabel="width", xscale="log")
    picture.axes[0].set_ylabel("difference over correction")
    return picture


FIGURE = Figure(
    name="2508.11522-table",
    title="First-order corrections of gelu networks beside samples",
    source="ntk-unlimited, arXiv 2508.11522, table of the reproduction",
    images=(),
    settings=Settings((32, 64, 110, 220), 3, 40_000),
    fast=Settings((32, 110), 2, 10_000),
    parts=_parts,
    claims=claims,
    draw=_draw,
    notes=(
        "two inputs and three hidden layers; networks are drawn without weights and averaged with "
        "control variates (paper: 5 million networks a cell)",
    ),
)
