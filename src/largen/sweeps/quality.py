"""Quality of transfer: three measures of transfer, in addition to drift and cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import xarray

POWERS = np.linspace(0.1, 3.0, 59)  # of 1/size, the candidates for the loss's approach to its limit
LEAST = 3  # sizes of a fit with a residual


class Line(NamedTuple):
    """A least-squares line: its slope, and the root mean square of its residuals."""

    # slope, error: NaN with fewer than two and fewer than three points, respectively.
    slope: float
    error: float


def line(x: np.ndarray, y: np.ndarray) -> Line:
    """Fit y = a + slope·x to the finite values."""
    sound = np.isfinite(y)
    x, y = x[sound], y[sound]
    if len(x) < 2:
        return Line(np.nan, np.nan)
    slope, start = np.polyfit(x, y, 1)
    rest = y - start - slope * x
    degrees = len(x) - 2
    return Line(float(slope), float(np.sqrt((rest**2).sum() / degrees)) if degrees else np.nan)


def curvature(log2_lr: np.ndarray, losses: np.ndarray) -> float:
    """Return c of loss/(best loss) = 1 + c·(log₂ of rate/best rate)² + …, from three rates.

    NaN at an end of the grid, next to a rate that diverges, and for losses that are not positive.
    """
    known = ~np.isnan(losses)
    x, y = log2_lr[known], losses[known]
    if not np.isfinite(y).any():
        return np.nan
    best = int(np.argmin(y))
    around = slice(best - 1, best + 2)
    if best in (0, len(y) - 1) or not (np.isfinite(y[around]) & (y[around] > 0)).all():
        return np.nan
    coefficient = float(np.polyfit(x[around] - x[best], np.log(y[around]), 2)[0])
    return coefficient if coefficient > 0 else np.nan


def asymptote(sizes: np.ndarray, losses: np.ndarray) -> float:
    """Return L(∞) of L = L(∞) + A·size^(−p), A ≥ 0, by least squares; NaN with too few sizes."""
    sound = np.isfinite(losses)
    n, y = sizes[sound].astype(float), losses[sound]
    if len(y) < LEAST:
        return np.nan
    best = (((y - y.mean()) ** 2).sum(), float(y.mean()))
    for power in POWERS:
        falling = (n / n[0]) ** -power
        slope, start = np.polyfit(falling, y, 1)
        missed = float(((y - start - slope * falling) ** 2).sum())
        if slope > 0 and start >= 0 and missed < best[0]:
            best = missed, float(start)
    return best[1]


def quality(
    best: xarray.Dataset, mean: xarray.DataArray, transferred: xarray.DataArray, along: str
) -> xarray.Dataset:
    """Return the three numbers of each scheme, over the other axis of sizes."""
    import xarray

    other = "depth" if along == "width" else "width"
    sizes, log2_lr = best[along].values.astype(float), np.log2(mean["lr"].values)
    shape = (best.sizes["scheme"], best.sizes[other])
    names = ("exponent", "fit_error", "kappa", "loss_at_infinity", "transferred_at_infinity")
    measures = {name: np.full(shape, np.nan) for name in names}
    curvatures = np.full((*shape, len(sizes)), np.nan)
    for i, scheme in enumerate(best["scheme"].values):
        for j, size in enumerate(best[other].values):
            at = {"scheme": scheme, other: size}
            rates = best["log2_lr"].where(best["trains"]).sel(at).values
            fit = line(np.log2(sizes), rates)
            measures["exponent"][i, j], measures["fit_error"][i, j] = fit
            blocks = mean.sel(at).transpose(along, "lr").values
            curvatures[i, j] = [curvature(log2_lr, block) for block in blocks]
            measures["kappa"][i, j] = line(np.log2(sizes), np.log2(curvatures[i, j])).slope
            measures["loss_at_infinity"][i, j] = asymptote(sizes, best["loss"].sel(at).values)
            moved = transferred.sel(at).values
            diverges = moved[-1] == np.inf
            measures["transferred_at_infinity"][i, j] = (
                np.inf if diverges else asymptote(sizes, moved)
            )
    axes = ("scheme", other)
    data = xarray.Dataset(
        {
            **{name: (axes, values) for name, values in measures.items()},
            "curvature": ((*axes, along), curvatures),
        },
        {axis: best[axis] for axis in (*axes, along)},
    )
    least = data["loss_at_infinity"].min("scheme")
    data["penalty"] = data["loss_at_infinity"] / least - 1
    data["transferred_penalty"] = data["transferred_at_infinity"] / least - 1
    return data
