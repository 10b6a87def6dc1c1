"""Fit error, robustness and asymptotic penalty of surfaces that are known."""

import numpy as np
import pytest
import xarray

from largen.errors import InvalidInput
from largen.sweeps import Sweep
from largen.sweeps.quality import asymptote, curvature, line

WIDTHS = np.array([32, 64, 128, 256])
RATES = 2.0 ** np.arange(-8, 3)
TRUTH = {  # power of the best rate, of the curvature, loss at infinite width
    "standard": (-1.0, 0.5, 0.4),
    "mup": (0.0, 0.0, 0.3),
}


def surface(scatter=0.0):
    losses = []
    for power, kappa, limit in TRUTH.values():
        centre = -2 + power * np.log2(WIDTHS / 32) + scatter
        height = 0.05 * (WIDTHS / 32.0) ** kappa
        least = limit + 3 / WIDTHS
        x = np.log2(RATES)[None] - centre[:, None]
        losses.append(least[:, None] * np.exp(height[:, None] * x**2))
    loss = np.array(losses)[:, :, None, None]  # (scheme, width, depth, seed, lr)
    axes = ("scheme", "width", "depth", "seed", "lr")
    return Sweep(
        xarray.Dataset(
            {"loss": (axes, loss), "margin_error": (axes, np.full(loss.shape, 1e-6))},
            {"scheme": list(TRUTH), "width": WIDTHS, "depth": [2], "seed": [0], "lr": RATES},
            {"chance": 2.0},
        )
    )


def test_known_surfaces():
    found = surface().quality("width").isel(depth=0)
    for scheme, (power, kappa, limit) in TRUTH.items():
        at = found.sel(scheme=scheme)
        assert float(at["exponent"]) == pytest.approx(power, abs=1e-9)
        assert float(at["fit_error"]) == pytest.approx(0, abs=1e-9)
        assert float(at["kappa"]) == pytest.approx(kappa, abs=1e-9)
        assert float(at["loss_at_infinity"]) == pytest.approx(limit, abs=1e-6)
        assert at["curvature"].values == pytest.approx(0.05 * (WIDTHS / 32.0) ** kappa)
    assert found["penalty"].values == pytest.approx([1 / 3, 0], abs=1e-5)
    # The rate of the smallest width is wrong for larger ones, at which its loss grows.
    assert float(found["transferred_penalty"].sel(scheme="standard")) > 0.4
    assert float(found["transferred_penalty"].sel(scheme="mup")) == pytest.approx(0, abs=1e-5)


def test_fit_error_is_the_scatter_of_best_rates():
    """δ(1, −1, −1, 1) is orthogonal to every line through four equal steps."""
    scatter = 0.2 * np.array([1, -1, -1, 1])
    found = surface(scatter).quality("width").isel(depth=0)
    for scheme, (power, _, _) in TRUTH.items():
        at = found.sel(scheme=scheme)
        assert float(at["exponent"]) == pytest.approx(power, abs=1e-9)
        assert float(at["fit_error"]) == pytest.approx(0.2 * (4 / 2) ** 0.5, abs=1e-9)


def test_a_transferred_rate_that_diverges_has_no_finite_penalty():
    data = surface().data.copy(deep=True)
    data["loss"].loc[{"scheme": "standard", "width": 256, "lr": slice(0.25, None)}] = np.inf
    found = Sweep(data).quality("width").isel(depth=0)["transferred_penalty"]
    assert float(found.sel(scheme="standard")) == np.inf
    assert float(found.sel(scheme="mup")) == pytest.approx(0, abs=1e-5)


def test_too_few_sizes_and_other_axes():
    sweep = surface()
    few = Sweep(sweep.data.isel(width=[0, 1])).quality("width").isel(depth=0)
    assert np.isfinite(few["exponent"]).all()
    assert np.isnan(few["fit_error"]).all()
    assert np.isnan(few["penalty"]).all()
    assert np.isnan(sweep.quality("depth")["exponent"]).all()
    with pytest.raises(InvalidInput, match="along"):
        sweep.quality("seed")


def test_parts():
    x = np.arange(5.0)
    assert np.isnan(line(x, np.full(5, np.nan)).slope)
    assert np.isnan(curvature(x, np.array([1.0, 2, 3, 4, 5])))
    assert np.isnan(curvature(x, np.array([3.0, 1, np.inf, np.inf, np.inf])))
    assert np.isnan(curvature(x, np.full(5, np.inf)))
    n = np.array([16.0, 32, 64, 128, 256])
    assert asymptote(n, 0.2 + n**-0.5) == pytest.approx(0.2, abs=1e-6)
    assert asymptote(n, np.full(5, 0.7)) == pytest.approx(0.7)
    assert asymptote(n, np.array([0.5, np.nan, np.inf, 0.4, 0.35])) > 0
