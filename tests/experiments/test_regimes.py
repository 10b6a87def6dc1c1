"""Movement against γ: laws of the lazy regime, collapse in γ/√N, and the numbers by hand."""

import numpy as np
import pytest
import xarray

import largen as lg
from largen.experiments import Regimes

X = np.random.default_rng(0).normal(size=(5, 3))
RUN = lg.Run(
    lg.mlp(1, "tanh"),
    lg.ntk(),
    lg.Dataset(X, np.sign(X[:, 0])),
    optimizer=lg.gd(0.5),
    steps=8,
)


@pytest.mark.slow
def test_movement_collapses_in_units_of_root_width(tmp_path):
    regimes = lg.training.feature_movement(RUN, [2, 4, 8], [64, 256], seeds=12, key=0)
    data = regimes.to_xarray()
    np.testing.assert_allclose(data.gamma0.sel(width=256), [1 / 8, 1 / 4, 1 / 2])
    # Neighbouring widths, a factor of 4 apart: features move as γ/√N, kernels as γ²/N.
    assert 1.6 < regimes.spread(scaled=False) < 2.05
    assert regimes.spread(scaled=True) < 1.08
    for kernel in ("feature_kernel", "ntk"):
        assert 2.5 < regimes.spread(kernel, scaled=False) < 4.1
        assert regimes.spread(kernel, scaled=True) < 1.35
    lazy = data.features.sel(width=256).values
    assert np.log2(lazy[1] / lazy[0]) == pytest.approx(1.0, abs=0.1)
    assert "at equal γ/√N" in str(regimes)
    regimes.plot(tmp_path / "regimes.png")
    assert (tmp_path / "regimes.png").stat().st_size > 10_000

    # By hand, from networks of lg.mean_field: γ₀ = γ/√N is the same thing.
    same = lg.Run(RUN.net, lg.mean_field(0.25), RUN.data, optimizer=RUN.optimizer, steps=8)
    start, end = lg.networks.train_and_measure(
        same, 64, lambda network, start, end, x: (start, end), seeds=12, key=0
    )
    before, after = (
        np.tanh(np.einsum("pd,sdn->spn", X, params[0]["weight"]) / 3**0.5)
        for params in (start, end)
    )
    relative = ((after - before) ** 2).mean((1, 2)) / (before**2).mean((1, 2))
    assert float(data.features.sel(width=64, gamma=2)) == pytest.approx(np.sqrt(relative.mean()))


def made_up(gammas, widths, law):
    """Movement of a given law, without noise."""
    gammas, widths = np.array(gammas, float), np.array(widths)
    moved = law(gammas[None], widths[:, None].astype(float))
    gamma0 = gammas[None] / np.sqrt(widths)[:, None]
    axes = ("width", "gamma")
    return Regimes(
        xarray.Dataset(
            {"features": (axes, moved)},
            {"width": widths, "gamma": gammas, "gamma0": (axes, gamma0)},
        )
    )


def test_spread():
    def law(gamma, width):
        return 3 * gamma / np.sqrt(width)

    regimes = made_up([1, 2, 4, 8], [4, 16, 64], law)
    assert regimes.spread(scaled=False) == pytest.approx(2)
    assert regimes.spread(scaled=True) == pytest.approx(1)
    assert made_up([1, 2], [4, 16], lambda g, n: g + 0 * n).spread(scaled=True) == pytest.approx(2)
    assert np.isnan(made_up([1, 1.5], [4, 64], law).spread(scaled=True))  # ranges do not overlap


@pytest.mark.slow
def test_networks_in_which_nothing_moves():
    """Without inputs and biases no kernel has a size: the movement is 0, without a warning."""
    data = lg.Dataset(np.zeros((4, 3)), np.ones(4))
    run = lg.Run(lg.mlp(1, "relu"), lg.ntk(), data, optimizer=lg.gd(0.1), steps=2)
    with np.errstate(all="raise"):
        found = lg.training.feature_movement(run, [0.5, 1.0], [4, 8], seeds=2, progress=False)
        assert "nothing moves" in str(found)
    assert not found.to_xarray()["features_error"].any()
    assert np.isnan(found.spread(scaled=True))
